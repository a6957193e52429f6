"""Frames formatted in one go are those of the general encoder, byte for byte."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common.host import pack_host
from rocketlet.common.message_id import offset_message_id
from rocketlet.remoting.command import HeaderType
from rocketlet.remoting.frame_codec import encode_answer
from rocketlet.remoting.protocol.sending import SendMessageAnswerHeader
from rocketlet.remoting.ready_answers import SendAnswer

HOSTS = st.sampled_from([pack_host("127.0.0.1", 10911), pack_host("2001:db8::1", 65535)])
REGIONS = st.one_of(st.sampled_from(["DefaultRegion", "%d %s", "@id", '"']), st.text(max_size=20))


@given(
    HOSTS,
    REGIONS,
    st.booleans(),
    st.integers(0, 0x7FFFFFFF),
    st.integers(0, (1 << 63) - 1),
    st.integers(0, 65535),
    st.integers(0, (1 << 63) - 1),
    st.sampled_from([HeaderType.JSON, HeaderType.ROCKETMQ]),
)
def test_the_answer_to_a_send(
    host: bytes,
    region: str,
    trace: bool,
    opaque: int,
    log_offset: int,
    queue_id: int,
    queue_offset: int,
    header_type: HeaderType,
) -> None:
    def expected(ids: str) -> bytes:
        header = SendMessageAnswerHeader(
            ids, queue_id, queue_offset, MSG_REGION=region, TRACE_ON="true" if trace else "false"
        )
        return b"".join(encode_answer(header_type, opaque, 0, header, b"", None))

    ready = SendAnswer(region, trace, host)
    one = offset_message_id(host, log_offset)
    assert ready.frame(header_type, opaque, log_offset, queue_id, queue_offset) == expected(one)
    for ids in (one, f"{one},{one}"):
        assert ready.frame_of_ids(header_type, opaque, ids, queue_id, queue_offset) == expected(ids)


def test_msgpack_goes_the_general_way() -> None:
    ready = SendAnswer("R", True, pack_host("127.0.0.1", 1))
    assert ready.frame(HeaderType.MSGPACK, 1, 2, 3, 4) is None
    assert ready.frame_of_ids(HeaderType.MSGPACK, 1, "2", 3, 4) is None
