"""The gate: signatures of all clients, mutated requests, logging, and each of RocketMQ's loopholes closed."""

from __future__ import annotations

import hashlib
import hmac
import logging
from random import Random
from typing import Any

import pytest

from rocketlet.access.accounts import Rules
from rocketlet.access.verdicts import Denied, Reason
from rocketlet.common.topic import HALF_TOPIC, SCHEDULE_TOPIC, TRACE_TOPIC
from rocketlet.remoting.access import ANY_ACCOUNT, Permission, Resource, publish, subscribe
from rocketlet.remoting.command import V4_9_3, Command, HeaderType
from rocketlet.remoting.errors import RemotingError
from rocketlet.remoting.frame_codec import decode_header, encode, ext_of
from rocketlet.remoting.handler import Handler, HandlerTable, Reply
from rocketlet.remoting.protocol.pulling import PullMessageHeader, QueryMessageHeader
from rocketlet.remoting.protocol.sending import SendMessageHeaderV2
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.signing import Signer, content_of
from tests.access.asking import Desk, FakeConnection, rules_of
from tests.support.memory_folder import account, accounts
from tests.support.properties import examples

SECRET = "correct-horse"
RULES = rules_of(
    accounts(
        account("webshop", topics=("orders=PUB",)),
        account("reader-1", topics=("orders=SUB",), groups=("readers=SUB",)),
        account("operator", admin=True),
        account("everything", topic="PUB|SUB", group="SUB"),
        account("at-home", white="10.1.2.*", topic="PUB|SUB"),
        account("bound-admin", admin=True, topics=("orders=PUB",)),
    )
)


def answer(request: Any) -> Reply:
    return Reply()


TABLE: HandlerTable = {
    RequestCode.SEND_MESSAGE_V2: Handler(answer, SendMessageHeaderV2, access=publish("topic")),
    RequestCode.SEND_BATCH_MESSAGE: Handler(answer, SendMessageHeaderV2, access=publish("topic")),
    RequestCode.PULL_MESSAGE: Handler(
        answer, PullMessageHeader, access=subscribe(topic="topic", group="consumerGroup")
    ),
    RequestCode.QUERY_MESSAGE: Handler(answer, QueryMessageHeader, access=subscribe(topic="topic")),
    RequestCode.GET_MAX_OFFSET: Handler(answer, access=ANY_ACCOUNT),
    RequestCode.UPDATE_BROKER_CONFIG: Handler(answer),
}


def send(topic: str = "orders", body: bytes = b"hello", **more: str) -> Command:
    fields = {"a": "PG", "b": topic, "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "1700000000000", "h": "0"}
    return Command(
        RequestCode.SEND_MESSAGE_V2, ext={**fields, "i": "KEYS\x01k\x02", "j": "0", "k": "false", **more}, body=body
    )


def signed(command: Command, key: str = "webshop", secret: str = SECRET) -> Command:
    Signer(key, secret).before("", command)
    return command


def desk(rules: Rules = RULES, **gate: Any) -> Desk:
    return Desk(rules, TABLE, **gate)


# -- signatures


@pytest.mark.parametrize("header_type", HeaderType)
def test_a_signed_request_is_admitted_in_each_header_type(header_type: HeaderType) -> None:
    command = signed(send())
    command.header_type = header_type
    assert desk().refusal(command) is None
    command.ext = {**(command.ext or {}), "b": "prices"}
    assert "signature" in str(desk().refusal(command))


def test_empty_values_and_numbers_are_signed_as_text() -> None:
    command = signed(send(n="", bname="broker-a"))
    command.header_type = HeaderType.ROCKETMQ
    assert desk().refusal(command) is None, "Java takes an empty value of a binary header for null"
    raw = encode(signed(send(l="0", m="false")))
    as_cpp = raw.replace(b'"e":"1"', b'"e":1  ').replace(b'"k":"false"', b'"k":false  ')
    assert as_cpp != raw
    assert desk().refusal(as_cpp) is None, "C++ clients write numbers and booleans"


def test_older_clients_do_not_sign_the_unique_key_mark() -> None:
    fields = {"topic": "orders", "key": "K", "maxNum": "32", "beginTimestamp": "0", "endTimestamp": "1"}
    for version in (V4_9_3, V4_9_3 + 2):
        old = signed(Command(RequestCode.QUERY_MESSAGE, version=version, ext=dict(fields)), "reader-1")
        assert old.ext is not None
        old.ext["_UNIQUE_KEY_QUERY"] = "true"
        assert desk().refusal(old) is None
    new = {**fields, "_UNIQUE_KEY_QUERY": "true"}
    assert desk().refusal(signed(Command(RequestCode.QUERY_MESSAGE, ext=new), "reader-1")) is None


def test_fields_a_zone_adds_after_signing_do_not_break_the_signature() -> None:
    command = signed(send())
    assert command.ext is not None
    command.ext["__ZONE_NAME"] = "east"
    assert desk().refusal(command) is None


def test_an_empty_access_key_means_no_key() -> None:
    command = send(AccessKey="", Signature="", OnsChannel="ALIYUN")  # C++ without credentials
    assert "is not signed" in str(desk().refusal(command))
    names = {"orders.example": "webshop"}
    assert desk(certificates=names).refusal(command, FakeConnection(certified=("orders.example",))) is None


def test_a_certificate_grants_its_own_account_only() -> None:
    names = {"orders.example": "webshop", "nobody.example": "gone"}
    shop, nobody, other = (FakeConnection(certified=(f"{name}.example",)) for name in ("orders", "nobody", "other"))
    gate = desk(certificates=names)
    assert gate.refusal(send(), shop) is None
    assert "may not publish to topic prices" in str(gate.refusal(send("prices"), shop))
    assert "there is no account gone" in str(gate.refusal(send(), nobody))
    assert "is not signed" in str(gate.refusal(send(), other))
    assert "signature" in str(gate.refusal(signed(send(), "webshop", "another-secret"), shop)), (
        "a signature counts first"
    )


# -- mutated requests


def variants(chance: Random, command: Command) -> Command:
    """One change of a signed request: its fields, its signature, its body."""
    ext = dict(command.ext or {})
    names = [name for name in ext if name != "Signature"]
    body, what = command.body, chance.randrange(12)
    name = chance.choice(names)
    if what == 0:
        ext[name] = ext[name] + chance.choice("0aZ \x01\u4e2d")
    elif what == 1:
        ext[name] = ext[name][:-1] if ext[name] else "x"
    elif what == 2:
        del ext[name]
    elif what == 3:
        other = chance.choice(names)
        ext[name], ext[other] = ext[other], ext[name]
    elif what == 4:
        ext[chance.choice(["z", "A", "zz", "b ", "Signatures"])] = chance.choice(["x", "1", "orders"])
    elif what == 5:
        ext["AccessKey"] = chance.choice(["operator", "reader-1", "", "WEBSHOP", "webshop ", "webshop\0"])
    elif what == 6:
        at = chance.randrange(len(ext["Signature"]))
        ext["Signature"] = ext["Signature"][:at] + chance.choice("ABab01+/=") + ext["Signature"][at + 1 :]
    elif what == 7:
        ext["Signature"] = chance.choice(
            ["", ext["Signature"][:-1], ext["Signature"] + "=", ext["Signature"].lower(), "AAAA", "é", " " * 28]
        )
    elif what == 8:
        del ext["Signature"]
    elif what == 9:
        body = body[:-1]
    elif what == 10:
        body = body + bytes([chance.randrange(256)])
    else:
        at = chance.randrange(len(body))
        body = body[:at] + bytes([body[at] ^ 1 << chance.randrange(8)]) + body[at + 1 :]
    return Command(command.code, ext=ext, body=body, header_type=command.header_type)


def signs_the_same(one: Command, other: Command) -> bool:
    """Whether both have the same signed content: names and positions of fields are not part of it."""
    first, second = one.ext or {}, other.ext or {}
    return (content_of(first) + one.body, first.get("AccessKey")) == (
        content_of(second) + other.body,
        second.get("AccessKey"),
    ) and first.get("Signature") == second.get("Signature")


def test_no_mutated_request_is_admitted(caplog: pytest.LogCaptureFixture) -> None:
    """4,000 here; the thorough profile draws 100,000."""
    caplog.set_level(logging.CRITICAL)
    chance = Random(18)
    gate = desk()
    originals = []
    for header_type in (HeaderType.JSON, HeaderType.ROCKETMQ):
        command = signed(send())
        command.header_type = header_type
        originals.append(command)
    let_in = tried = 0
    for _ in range(examples(4_000)):
        original = chance.choice(originals)
        mutated = variants(chance, original)
        tried += 1
        if signs_the_same(original, mutated):
            continue
        try:
            refusal = gate.refusal(mutated)
        except RemotingError:
            continue  # a missing field is refused before the sender is checked
        let_in += refusal is None
    assert (let_in, tried) == (0, examples(4_000))


def test_no_frame_with_a_flipped_byte_is_admitted_unless_it_means_the_same() -> None:
    chance = Random(4)
    gate = desk()
    for header_type in (HeaderType.JSON, HeaderType.ROCKETMQ, HeaderType.MSGPACK):
        command = signed(send())
        command.header_type = header_type
        frame = encode(command)
        before = content_of(command.ext or {}) + command.body
        for _ in range(examples(400)):
            at = chance.randrange(8, len(frame))
            flipped = frame[:at] + bytes([frame[at] ^ 1 << chance.randrange(8)]) + frame[at + 1 :]
            try:
                request = gate.read(flipped)
            except (RemotingError, AssertionError):
                continue  # no longer a frame, or an answer
            if request.code not in TABLE or gate.refusal(flipped) is not None:
                continue
            said = content_of(ext_of(request.header_type, request.raw_header)) + bytes(request.body)
            assert said == before, f"byte {at} of {header_type.name}"


@pytest.mark.parametrize("header_type", [HeaderType.JSON, HeaderType.ROCKETMQ])
def test_the_gate_judges_the_same_names_the_handler_uses(header_type: HeaderType) -> None:
    """The signature covers the fields as text, the handler has a typed header: both see the same topic."""
    command = signed(send())
    command.header_type = header_type
    raw = encode(command)
    if header_type is HeaderType.JSON:
        raw = raw.replace(b'"b":"orders"', b'"b":"prices","b":"orders"', 1)
    else:
        raw = raw.replace(b"\0\x01b\0\0\0\x06orders", b"\0\x01b\0\0\0\x06prices\0\x01b\0\0\0\x06orders", 1)
    grown = len(raw) - len(encode(command))
    head = int.from_bytes(raw[:4], "big") + grown, int.from_bytes(raw[4:8], "big") + grown
    frame = head[0].to_bytes(4, "big") + head[1].to_bytes(4, "big") + raw[8:]
    if header_type is HeaderType.ROCKETMQ:
        map_length = int.from_bytes(frame[25:29], "big") + grown
        frame = frame[:25] + map_length.to_bytes(4, "big") + frame[29:]
    request = desk().read(frame)
    fields = ext_of(request.header_type, request.raw_header)
    assert fields == decode_header(header_type, request.raw_header).ext
    assert request.header.topic == fields["b"] == "orders"


# -- RocketMQ's loopholes, closed


def test_loophole_only_administrators_change_accounts() -> None:
    entry = Handler(answer)
    table = dict.fromkeys(
        (
            RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
            RequestCode.DELETE_ACL_CONFIG,
            RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        ),
        entry,
    )
    for code in table:
        assert "is for administrators" in str(Desk(RULES, table).refusal(signed(Command(code, ext={}), "everything")))
        assert Desk(RULES, table).refusal(signed(Command(code, ext={}), "operator")) is None
        assert Desk(RULES, table, strict=False).refusal(signed(Command(code, ext={}), "webshop")) is None, "Java's way"


def test_loophole_batches_are_checked() -> None:
    batch = send("prices", m="true")
    batch.code = RequestCode.SEND_BATCH_MESSAGE
    assert "may not publish to topic prices" in str(desk().refusal(signed(batch)))
    assert desk(strict=False).refusal(signed(batch)) is None, "Java's way"


def test_loophole_a_white_address_does_not_replace_a_signature() -> None:
    home, away = FakeConnection("10.1.2.9"), FakeConnection("10.1.3.9")
    assert "is not signed" in str(desk().refusal(send(), home))
    unsigned = send(AccessKey="at-home", Signature="")
    assert "signature" in str(desk().refusal(unsigned, home))
    assert desk().refusal(signed(send(), "at-home"), home) is None
    assert "may not sign from 10.1.3.9" in str(desk().refusal(signed(send(), "at-home"), away))
    assert desk(strict=False).refusal(unsigned, home) is None, "Java's way"


def test_loophole_signatures_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return one == other

    monkeypatch.setattr(hmac, "compare_digest", compare)
    assert desk().refusal(signed(send())) is None
    assert len(compared) == 1


def test_loophole_defaults_do_not_open_topics_that_hold_others_messages() -> None:
    for topic in (HALF_TOPIC, SCHEDULE_TOPIC, TRACE_TOPIC, "rmq_sys_wheel_timer", "DefaultCluster_REPLY_TOPIC"):
        fields = {"queueId": "0", "queueOffset": "0", "maxMsgNums": "1", "topic": topic, "consumerGroup": "any"}
        pull = signed(Command(RequestCode.PULL_MESSAGE, ext=fields), "everything")
        assert f"may not subscribe to topic {topic}" in str(desk().refusal(pull)), topic
        assert desk(strict=False).refusal(pull) is None, "Java's way"
    dead = {"queueId": "0", "queueOffset": "0", "maxMsgNums": "1", "topic": "%DLQ%others", "consumerGroup": "readers"}
    assert desk().refusal(signed(Command(RequestCode.PULL_MESSAGE, ext=dead), "reader-1")) is not None
    own = {**dead, "topic": "%DLQ%readers"}
    assert desk().refusal(signed(Command(RequestCode.PULL_MESSAGE, ext=own), "reader-1")) is None


def test_loophole_a_retry_topic_belongs_to_its_group() -> None:
    """RocketMQ checks the group in the request instead."""
    own = send("%RETRY%others")
    assert own.ext is not None
    own.ext["a"] = "readers"
    assert "may not consume as group others" in str(desk().refusal(signed(own, "reader-1")))
    assert desk(strict=False).refusal(signed(own, "reader-1")) is None, "Java's way"


def test_any_signed_account_may_write_traces() -> None:
    assert desk().refusal(signed(send(TRACE_TOPIC))) is None


def test_an_administrators_permissions_bind_it_in_both_modes() -> None:
    for strict in (True, False):
        assert desk(strict=strict).refusal(signed(send("prices"), "bound-admin")) is not None
        config = signed(Command(RequestCode.UPDATE_BROKER_CONFIG, ext={}), "bound-admin")
        assert desk(strict=strict).refusal(config) is None


# -- logging and counting


def test_refusals_are_counted_by_reason_and_logged_without_secrets(caplog: pytest.LogCaptureFixture) -> None:
    gate = desk()
    wrong = signed(send(), "webshop", "another-secret")
    gate.refusal(wrong)
    gate.refusal(send())
    gate.refusal(signed(send("prices")))
    assert dict(gate.gate.denied) == {Reason.SIGNATURE: 1, Reason.ANONYMOUS: 1, Reason.PERMISSION: 1}
    assert wrong.ext is not None
    for hidden in (SECRET, "another-secret", wrong.ext["Signature"]):
        assert hidden not in caplog.text


def test_log_lines_about_one_address_are_rate_limited(caplog: pytest.LogCaptureFixture) -> None:
    gate = desk()
    for _ in range(50):
        gate.refusal(send())
    assert len(caplog.records) == 5
    gate.refusal(send(), FakeConnection("10.0.0.8"))
    assert len(caplog.records) == 6, "another address has its own"


def test_an_account_is_rate_limited() -> None:
    gate = desk(rate=3)
    refusals = [gate.refusal(signed(send())) for _ in range(5)]
    assert refusals[:3] == [None] * 3
    assert all("requestsPerSecondByAccount=3" in str(one) for one in refusals[3:])
    assert gate.refusal(signed(send(), "everything")) is None


# -- servers that do not speak remoting


def test_another_protocol_uses_the_same_accounts() -> None:
    gate = desk().gate
    moment = b"20260131T091502Z"
    signature = hmac.new(SECRET.encode(), moment, hashlib.sha1).hexdigest()
    found = gate.signed_by("webshop", moment, signature.upper())
    gate.may(found, Permission.PUBLISH, Resource.TOPIC, "orders", "10.0.0.7")
    with pytest.raises(Denied, match="prices"):
        gate.may(found, Permission.PUBLISH, Resource.TOPIC, "prices", "10.0.0.7")
    with pytest.raises(Denied, match="may not sign from"):
        gate.may(RULES.accounts["at-home"], Permission.PUBLISH, Resource.TOPIC, "orders", "10.0.0.7")
    for key, text in (("webshop", signature[:-1]), ("webshop", "é"), ("nobody", signature)):
        with pytest.raises(Denied):
            gate.signed_by(key, moment, text)
