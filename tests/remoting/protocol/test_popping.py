"""Pop on the wire: the info fields, and the bit sets of batch acks as fastjson writes them."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.remoting.errors import BodyError
from rocketlet.remoting.protocol.popping import AssignmentsBody, BatchAck, BatchAckBody, info_text, parse_info

JAVAS = (
    b'{"acks":[{"b":"FQ==","c":"CG","it":60000,"pt":1795041908748,"q":3,"r":"0","rq":2,"so":100,"t":"T"}],'
    b'"brokerName":"broker-a"}'
)


def test_a_java_clients_batch_of_acks() -> None:
    body = BatchAckBody.from_json(JAVAS)
    assert body.brokerName == "broker-a"
    ack = body.acks[0]
    assert (ack.group, ack.topic, ack.queueId, ack.popTime) == ("CG", "T", 3, 1795041908748)
    assert ack.offsets(32) == [100, 102, 104]


@given(st.integers(0, 1 << 40), st.sets(st.integers(0, 800), max_size=32))
def test_bits_round_trip(start: int, deltas: set[int]) -> None:
    offsets = sorted(start + delta for delta in deltas)
    body = BatchAckBody("b", [BatchAck("g", "t", "0", start, 1, 0, 5, 6, BatchAck.bits_of(start, offsets))])
    assert list(BatchAckBody.from_json(body.to_json()).acks[0].offsets(32)) == offsets


@pytest.mark.parametrize("bits", ["FQ=", "-_", base64.b64encode(b"\xff" * 20).decode(), "A" * 8192])
def test_missing_or_too_many_bits(bits: str) -> None:
    with pytest.raises(BodyError):
        BatchAck(bits=bits).offsets(32)


def test_info_fields() -> None:
    text = info_text({(0, 3): "17,18,20", (1, 0): "4"})
    assert text == "0 3 17,18,20;1 0 4"
    assert parse_info(text) == {(0, 3): "17,18,20", (1, 0): "4"}
    assert parse_info(None) == {}
    for wrong in ("0 3", "0 \u00b2 5", f"0 {'9' * 5000} 5", "x 0 5"):
        with pytest.raises(BodyError):
            parse_info(wrong)


def test_a_java_brokers_assignments() -> None:
    raw = (
        b'{"messageQueueAssignments":[{"messageQueue":'
        b'{"brokerName":"broker-a","queueId":-1,"topic":"T"},"mode":"POP"}]}'
    )
    body = AssignmentsBody.from_json(raw)
    assert body.messageQueueAssignments[0].messageQueue.queueId == -1
    assert body.messageQueueAssignments[0].mode == "POP"
    assert body.to_json() == raw
