"""Whatever the JSON, a body is read or refused: no other error reaches a handler."""

from __future__ import annotations

import json
from random import Random

import pytest

from rocketlet.remoting.errors import BodyError
from tests.support.hostile_peer import HostilePeer, all_bodies


@pytest.mark.parametrize("name", sorted(all_bodies()))
def test_any_odd_body_is_read_or_refused(name: str) -> None:
    kind = all_bodies()[name]
    chance = Random(name)
    peer = HostilePeer({}, [], chance, [])
    read = 0
    for _ in range(40):
        value = peer.value_of(kind, 0, name)
        for data in (json.dumps(value), json.dumps({"x": value}), json.dumps([value]), str(value)):
            try:
                kind.from_json(data.encode("utf-8", "surrogatepass"))
                read += 1
            except BodyError:
                pass
    assert read
