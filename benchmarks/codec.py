"""The cost of headers of each type: decoding and encoding, in Java's order of fields and in another.

    python -m benchmarks.codec [--seconds 0.3]

The send and the pull of a Java client; times are the best of many short runs, in µs, with their ratio to `json.loads`
of the same header, since only ratios are comparable between machines. Decoding is from the header's bytes to the
request for a handler, with its typed header; `frame` adds cutting it out of a receive buffer of 30 frames,
serving it by a handler that does nothing, and its share of the write. Encoding is a client's: struct to bytes.
"""

from __future__ import annotations

import argparse
import json
import timeit
from collections.abc import Callable, Mapping
from typing import Any, cast

import trio

from rocketlet.remoting.command import VERSION, Command, HeaderType, Language, request
from rocketlet.remoting.connection import Connection, Limits
from rocketlet.remoting.dispatch import Dispatch
from rocketlet.remoting.frame_codec import decode, encode, encode_answer
from rocketlet.remoting.handler import Handler, Request
from rocketlet.remoting.memory_network import MemoryNetwork
from rocketlet.remoting.protocol.header import Header, from_ext
from rocketlet.remoting.protocol.pulling import PullMessageAnswerHeader, PullMessageHeader
from rocketlet.remoting.protocol.sending import SendMessageAnswerHeader, SendMessageHeaderV2
from rocketlet.remoting.request_reader import RequestReader

SEND = {
    "a": "please_rename_unique_group_name",
    "b": "TopicTest",
    "c": "TBW102",
    "d": "4",
    "e": "3",
    "f": "0",
    "g": "1700000000000",
    "h": "0",
    "i": "KEYS\x01OrderID188\x02UNIQ_KEY\x017F000001340330946E095A4B8F2E0001\x02WAIT\x01true\x02TAGS\x01TagA",
    "j": "0",
    "k": "false",
    "m": "false",
    "n": "broker-a",
}
PULL = {
    "consumerGroup": "please_rename_unique_group_name_4",
    "topic": "TopicTest",
    "queueId": "3",
    "queueOffset": "123456",
    "maxMsgNums": "32",
    "sysFlag": "3",
    "commitOffset": "123400",
    "suspendTimeoutMillis": "15000",
    "subVersion": "1700000000000",
    "expressionType": "TAG",
    "bname": "broker-a",
}
# Java's order in JSON is that of its hash map; for letters it is alphabetical.
PULL_IN_JSON = "queueId maxMsgNums sysFlag suspendTimeoutMillis commitOffset bname topic queueOffset expressionType"
KINDS: Mapping[str, tuple[int, type[Header], dict[str, str]]] = {
    "send": (310, SendMessageHeaderV2, SEND),
    "pull": (11, PullMessageHeader, PULL),
}
FRAMES = 30  # frames that arrive in one read with 64 in flight
BODY = bytes(1024)


def java_order(kind: str, header_type: HeaderType) -> dict[str, str]:
    """The fields in a Java client's order."""
    ext = KINDS[kind][2]
    if kind == "pull" and header_type is HeaderType.JSON:
        return {name: ext[name] for name in (*PULL_IN_JSON.split(), "subVersion", "consumerGroup")}
    return ext


def another_order(kind: str, _: HeaderType) -> dict[str, str]:
    """The fields in reverse order."""
    return dict(reversed(KINDS[kind][2].items()))


def header_bytes(kind: str, header_type: HeaderType, ext: dict[str, str]) -> bytes:
    """Only the header; JSON as written by Java, keys in alphabetical order."""
    code = KINDS[kind][0]
    if header_type is HeaderType.JSON:
        fields = {"code": code, "extFields": ext, "flag": 0, "language": "JAVA", "opaque": 12345}
        more = {"serializeTypeCurrentRPC": "JSON", "version": VERSION}
        return json.dumps(fields | more, separators=(",", ":")).encode()
    return encode(Command(code, 12345, language=Language.JAVA, ext=ext, header_type=header_type))[8:]


class Meter:
    """Times functions, and prints a line each."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._unit = 1.0

    def unit(self, function: Callable[[], object]) -> float:
        """Set the reference for the following lines."""
        self._unit = self.microseconds(function)
        return self._unit

    def microseconds(self, function: Callable[[], object]) -> float:
        """The best of many runs of a millisecond: even on a busy machine some of them are undisturbed."""
        timer = timeit.Timer(function)
        number = 100
        once = min(timer.repeat(3, number)) / number
        number = max(1, int(0.001 / once))
        return min(timer.repeat(max(3, int(self._seconds * 1000)), number)) / number * 1e6

    def line(self, what: str, function: Callable[[], object], share: int = 1) -> None:
        each = self.microseconds(function) / share
        print(f"  {what:<52}{each:7.2f} µs{each / self._unit:8.2f} of json.loads")


def decoding(meter: Meter) -> None:
    reader = RequestReader({code: header for code, header, _ in KINDS.values()})
    nobody = cast(Connection, None)
    for kind, (_, header, _) in KINDS.items():
        as_json = header_bytes(kind, HeaderType.JSON, java_order(kind, HeaderType.JSON))
        took = meter.unit(lambda as_json=as_json: json.loads(as_json))  # type: ignore[misc]
        print(f"decode a {kind} of {len(as_json)} bytes: json.loads {took:.2f} µs")
        for header_type in HeaderType:
            for order in (java_order, another_order):
                raw = header_bytes(kind, header_type, order(kind, header_type))
                name = f"{header_type.name}, {order.__name__.replace('_', ' ')}"
                meter.line(name, lambda raw=raw, t=header_type: reader.read(t, raw, b"", nobody, 0.0))  # type: ignore[misc]
            meter.line(
                f"{header_type.name}, command and map, then typed",
                lambda raw=raw, t=header_type, h=header: from_ext(h, decode(t, raw, b"").ext),  # type: ignore[misc]
            )


def encoding(meter: Meter) -> None:
    answers: Mapping[str, Header] = {
        "send": SendMessageAnswerHeader("7F00000100002A9F0000000000012345", 3, 123456, None, "DefaultRegion", "true"),
        "pull": PullMessageAnswerHeader(0, 123488, 0, 200000),
    }
    for kind, (code, cls, ext) in KINDS.items():
        header = from_ext(cls, ext)
        raw = header_bytes(kind, HeaderType.JSON, ext)
        loaded = json.loads(raw)
        meter.unit(lambda raw=raw: json.loads(raw))  # type: ignore[misc]
        print(f"encode a {kind} and its answer: json.dumps {meter.microseconds(lambda: json.dumps(loaded)):.2f} µs")  # noqa: B023
        for header_type in HeaderType:

            def request_bytes(t: HeaderType = header_type, c: int = code, h: Header = header) -> bytes:
                command = request(c, h)
                command.header_type = t
                return encode(command)

            meter.line(f"{header_type.name}, the request", request_bytes)
            answer = answers[kind]
            meter.line(
                f"{header_type.name}, the answer",
                lambda t=header_type, a=answer: encode_answer(t, 12345, 0, a, b"", None),  # type: ignore[misc]
            )


async def serving(meter: Meter) -> None:
    """A whole turn of a server, without the kernel: cut, decode, dispatch, handler that does nothing, join."""
    ready = b"".join(
        encode_answer(0, 1, 0, SendMessageAnswerHeader("7F00000100002A9F0000000000012345", 3, 1), b"", None)
    )

    def handler(_: Request) -> bytes:
        return ready

    dispatch = Dispatch({code: Handler(handler, header, kind) for kind, (code, header, _) in KINDS.items()})
    network = MemoryNetwork()
    await network.listen("h", 1)
    limits = Limits(
        oneway=1, oneway_setting="", calls=1, calls_setting="", unsent_high=1, unsent_low=0, stops_reading=True
    )
    connection = Connection(await network.dial("h:1"), dispatch, limits)
    for kind, (code, _, _) in KINDS.items():
        raw = header_bytes(kind, HeaderType.JSON, java_order(kind, HeaderType.JSON))
        meter.unit(lambda raw=raw: json.loads(raw))  # type: ignore[misc]
        print(f"frame: a turn over {FRAMES} {kind}s, each")
        for header_type in HeaderType:
            ext: dict[str, Any] = java_order(kind, header_type)
            body = BODY if kind == "send" else b""
            data = encode(Command(code, 12345, ext=ext, body=body, header_type=header_type)) * FRAMES

            def turn(data: bytes = data) -> None:
                dispatch.turn(connection, data)
                b"".join(connection.out)
                connection.out.clear()

            meter.line(header_type.name, turn, FRAMES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.3, help="to spend on each line")
    meter = Meter(parser.parse_args().seconds)
    decoding(meter)
    encoding(meter)
    trio.run(serving, meter)


if __name__ == "__main__":
    main()
