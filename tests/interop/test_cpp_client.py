"""The official C++ client against our broker with access control: in strict mode and in Java's.

Its library is the file named by LIBROCKETMQ, or found by the linker. The Python wheel `rocketmq` 0.4.4 contains one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from ctypes.util import find_library
from pathlib import Path

import pytest

from tests.support.memory_folder import account, accounts
from tests.support.programs import broker, name_server

pytestmark = pytest.mark.interop

CLIENT = Path(__file__).parent / "cpp_client.py"
SECRET = "correct-horse"
SECONDS = 60

Cpp = Callable[..., list[str]]


@pytest.fixture
def library() -> str:
    found = os.environ.get("LIBROCKETMQ") or find_library("rocketmq")
    if not found:
        pytest.skip("no library of the official C++ client; set LIBROCKETMQ to a librocketmq.so")
    return found


@pytest.fixture(params=["strict", "java"])
def cpp(request: pytest.FixtureRequest, library: str, tmp_path: Path) -> Iterator[Cpp]:
    """Run the client against a guarded broker. Returns the lines that it printed itself."""
    conf = tmp_path / "conf"
    conf.mkdir()
    shop = account("webshop", topics=("orders=PUB|SUB",), groups=("GID-cpp=SUB",))
    (conf / "plain_acl.yml").write_text(accounts(account("operator", admin=True), shop))
    (conf / "tools.yml").write_text(f"accessKey: operator\nsecretKey: {SECRET}\n")
    guarded = {
        "aclEnable": "true",
        "aclConfigDir": conf,
        "aclStrict": "true" if request.param == "strict" else "false",
    }
    with name_server(tmp_path) as (_, namesrv), broker(tmp_path, namesrvAddr=namesrv, **guarded):

        def call(*arguments: str) -> list[str]:
            ended = subprocess.run(
                [sys.executable, str(CLIENT), library, namesrv, *arguments],
                capture_output=True, text=True, check=True, timeout=SECONDS * 3,
                env={**os.environ, "HOME": str(tmp_path)},
            )  # fmt: skip
            return [line for line in ended.stdout.splitlines() if line.startswith(("SENT", "FAILED", "GOT"))]

        yield call


def test_it_sends_and_consumes_what_its_account_allows(cpp: Cpp) -> None:
    assert cpp("send", "orders", "12", "webshop", SECRET) == ["SENT"] * 12
    got = cpp("consume", "orders", "12", str(SECONDS), "webshop", SECRET)
    assert sorted(set(got)) == sorted(f"GOT body {number}" for number in range(12))


def test_everything_else_is_refused_and_its_log_says_why(cpp: Cpp, tmp_path: Path) -> None:
    assert cpp("send", "orders", "1", "webshop", SECRET) == ["SENT"]
    for call, why in (
        (("orders", "1", "webshop", "wrong-secret"), "the signature is not that of account webshop"),
        (("orders", "1", "stranger", SECRET), "stranger"),
        (("orders", "1"), "not signed"),
        (("prices", "1", "webshop", SECRET), "needs prices=PUB"),
    ):
        assert [line.split()[0] for line in cpp("send", *call)] == ["FAILED"]
        log = _newest(tmp_path / "logs" / "rocketmq-cpp")
        assert why in log.read_text(errors="replace"), why
    assert cpp("consume", "orders", "1", "5", "webshop", "wrong-secret") == []


def _newest(folder: Path) -> Path:
    return max(folder.iterdir(), key=lambda file: file.stat().st_mtime_ns)
