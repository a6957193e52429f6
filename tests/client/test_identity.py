from __future__ import annotations

import pytest

from rocketlet.client.talking.identity import local_address


@pytest.mark.parametrize("remote", ["127.0.0.1:9876", "a..b:9876", "x" * 64 + ".example:9876", "\udc80:9876"])
def test_a_host_that_cannot_be_a_name_does_not_prevent_a_start(remote: str) -> None:
    assert local_address(remote) == "127.0.0.1"
