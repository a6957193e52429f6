from __future__ import annotations

import pytest

from rocketlet.remoting.command import Command
from rocketlet.remoting.signing import Signer

SEND = {
    "a": "PG",
    "b": "TopicTest",
    "c": "TBW102",
    "d": "4",
    "e": "1",
    "f": "0",
    "g": "1700000000000",
    "h": "0",
    "i": "UNIQ_KEY\x01ABC\x02WAIT\x01true",
    "j": "0",
    "k": "false",
    "m": "false",
}


@pytest.mark.parametrize(
    ("command", "token", "signature"),
    [
        (Command(105, ext={"topic": "TopicTest"}), "", "0jiwhsaYp5ObE5GObbZH1I8/FT4="),
        (Command(310, ext=SEND, body=b"hello"), "", "tXLaSP67i1OwmhkS2GZMC0SooGo="),
        (Command(34, body=b"{}"), "tok", "NinC1P9Nj0/DlFPhbixWO7t4sCY="),
    ],
)
def test_signatures_are_those_of_java(command: Command, token: str, signature: str) -> None:
    signer = Signer("RocketMQ", "12345678", token)
    signer.before("127.0.0.1:10911", command)
    assert command.ext is not None
    assert command.ext["Signature"] == signature
    signer.before("127.0.0.1:10911", command)
    assert command.ext["Signature"] == signature, "a second try is signed again"
