from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketlet.client.sending.send_frames import SendTemplate
from rocketlet.remoting.command import HeaderType
from rocketlet.remoting.frame_codec import FrameDecoder, encode
from rocketlet.remoting.protocol.header import from_ext
from rocketlet.remoting.protocol.sending import SendMessageHeaderV2


@given(
    topic=st.text(min_size=1, max_size=20),
    properties=st.text(max_size=50),
    numbers=st.tuples(*[st.integers(0, 2**31 - 1)] * 4),
    born=st.integers(0, 2**60),
    body=st.binary(max_size=50),
    oneway=st.booleans(),
    batch=st.booleans(),
)
def test_a_frame_equals_the_general_encoders(
    topic: str,
    properties: str,
    numbers: tuple[int, int, int, int],
    born: int,
    body: bytes,
    oneway: bool,
    batch: bool,
) -> None:
    opaque, queue_id, sys_flag, flag = numbers
    template = SendTemplate("g%1", topic, "TBW102", 4, batch=batch)
    parts = queue_id, sys_flag, born, flag, properties, body, oneway
    frame = template.frame(opaque, parts)
    (read,) = FrameDecoder().feed(frame)
    command = template.command(HeaderType.JSON, parts)
    command.opaque = opaque
    (general,) = FrameDecoder().feed(encode(command))
    assert read == general
    header = from_ext(SendMessageHeaderV2, read.ext)
    assert (header.topic, header.properties, header.queueId, header.batch) == (topic, properties, queue_id, batch)
    assert (read.code, bytes(read.body), read.is_oneway) == (320 if batch else 310, body, oneway)
