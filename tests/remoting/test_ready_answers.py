"""Ready-made frames equal the general encoder's, byte for byte."""

from __future__ import annotations

from collections.abc import Sequence

import numpy
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common.host import pack_host
from rocketlet.common.message_id import offset_message_id
from rocketlet.remoting.command import HeaderType
from rocketlet.remoting.frame_codec import FRAME_LIMIT, encode_answer
from rocketlet.remoting.handler import FEW
from rocketlet.remoting.protocol.popping import PopMessageAnswerHeader
from rocketlet.remoting.protocol.pulling import PullMessageAnswerHeader
from rocketlet.remoting.protocol.sending import SendMessageAnswerHeader
from rocketlet.remoting.ready_answers import SendAnswer, pop_answer, pull_answer, success
from tests.remoting.test_alike_sends import a_send, alike

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


OFFSETS = st.integers(0, (1 << 63) - 1)


@given(
    st.sampled_from([HeaderType.JSON, HeaderType.ROCKETMQ]),
    REGIONS,
    st.sampled_from([1, 7, 123_456]),
    st.lists(st.tuples(OFFSETS, OFFSETS | st.integers(1000, 1999)), min_size=FEW, max_size=20),
)
def test_the_answers_to_many_sends(
    header_type: HeaderType, region: str, number: int, offsets: list[tuple[int, int]]
) -> None:
    ready = SendAnswer(region, True, pack_host("127.0.0.1", 10911))
    found = alike(b"".join(a_send(number + row, header_type) for row in range(len(offsets))))
    assert found is not None
    _, sends = found
    count = sends.count
    log_offsets, queue_offsets = (numpy.array(column) for column in zip(*offsets[:count], strict=True))
    columns = sends.opaques, log_offsets, sends.queue_ids, queue_offsets
    each = zip(*(column.tolist() for column in columns), strict=True)
    assert ready.frames(header_type, sends, log_offsets, queue_offsets) == b"".join(
        ready.frame(header_type, *row) or b"" for row in each
    )


def test_msgpack_takes_the_general_path() -> None:
    ready = SendAnswer("R", True, pack_host("127.0.0.1", 1))
    assert ready.frame(HeaderType.MSGPACK, 1, 2, 3, 4) is None
    assert ready.frame_of_ids(HeaderType.MSGPACK, 1, "2", 3, 4) is None


LONG = st.integers(-(1 << 63), (1 << 63) - 1)


@given(
    st.sampled_from([HeaderType.JSON, HeaderType.ROCKETMQ]),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.sampled_from([0, 19, 20, 21]),
    st.sampled_from(["FOUND", "OFFSET_TOO_SMALL", "100 %"]),
    st.tuples(LONG, LONG, LONG, LONG),
    st.lists(st.binary(max_size=9), max_size=3),
)
def test_the_answer_to_a_pull(
    header_type: HeaderType,
    opaque: int,
    code: int,
    remark: str,
    numbers: tuple[int, int, int, int],
    slices: list[bytes],
) -> None:
    expected = encode_answer(header_type, opaque, code, PullMessageAnswerHeader(*numbers), slices, remark)
    made = pull_answer(header_type, opaque, code, remark, numbers, slices, sum(map(len, slices)))
    assert made is not None
    assert b"".join(made) == b"".join(expected)


def test_pulls_answered_by_the_general_path() -> None:
    assert pull_answer(HeaderType.MSGPACK, 1, 0, "FOUND", (0, 1, 0, 1), [], 0) is None
    assert pull_answer(HeaderType.JSON, 1, 0, "FOUND", (0, 1, 0, 1), [], FRAME_LIMIT) is None


@given(
    st.sampled_from([HeaderType.JSON, HeaderType.ROCKETMQ]),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.tuples(LONG, LONG, st.sampled_from([0, 999]), LONG),
    st.integers(0, (1 << 31) - 1),
    st.one_of(
        st.lists(LONG, min_size=1, max_size=40),
        st.builds(lambda first, count: range(first, first + count), st.integers(0, 3000) | LONG, st.integers(1, 40)),
    ),
    st.lists(st.binary(max_size=9), max_size=3),
)
def test_the_answer_to_a_pop(
    header_type: HeaderType,
    opaque: int,
    numbers: tuple[int, int, int, int],
    queue_id: int,
    offsets: Sequence[int],
    bodies: list[bytes],
) -> None:
    header = PopMessageAnswerHeader(
        *numbers, f"0 {queue_id} {offsets[0]}", f"0 {queue_id} {','.join(map(str, offsets))}"
    )
    expected = encode_answer(header_type, opaque, 0, header, bodies, "FOUND")
    made = pop_answer(header_type, opaque, numbers, queue_id, offsets, bodies, sum(map(len, bodies)))
    assert made is not None
    assert b"".join(made) == b"".join(expected)


@given(st.sampled_from([HeaderType.JSON, HeaderType.ROCKETMQ]), st.integers(-(1 << 31), (1 << 31) - 1))
def test_a_bare_success_answer(header_type: HeaderType, opaque: int) -> None:
    assert success(header_type, opaque) == b"".join(encode_answer(header_type, opaque, 0, None, b"", None))
