"""From the bytes of a header to a typed request, with no generic command in between for the codes a server knows.

A table of headers gives for each code and header type one way:

- JSON: a decoder of the whole header into one typed struct, found by the first bytes, `{"code":310`; 0.7 µs a send.
- ROCKETMQ: the two hot headers by `header_rocketmq_typed` (0.9 µs), any other by its map.
- msgpack: a decoder like JSON's, found by the code at the begin of the array.

What these refuse, what begins otherwise, answers, and codes nobody serves go the general way, `frame_codec.decode`.
So the way taken never changes what a request means, only what it costs.

Java: remoting/netty/NettyDecoder.java, remoting/protocol/RemotingCommand.java (decode)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from remoting import frame_codec, header_json, header_rocketmq, header_rocketmq_typed
from remoting.command import RESPONSE, Command, HeaderType
from remoting.connection import Connection
from remoting.errors import HeaderError
from remoting.handler import Request
from remoting.protocol.header import Header, from_ext
from remoting.protocol.pulling import PullMessageHeader
from remoting.protocol.sending import SendMessageHeaderV2

