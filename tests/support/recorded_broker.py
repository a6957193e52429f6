"""Replays clients' recorded requests to a Java 4.9.8 broker to ours, connection by connection, and collects the
answers.

Each recorded request is sent byte for byte. If a client answered a request of the broker (307, say), our broker's own
request is awaited, and gets the recorded answer. `Pair` holds Java's answer and ours. Virtual time follows the
recording, so that delays, timeouts and checks happen as they did.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import trio
import trio.testing

from rocketlet.remoting import frame_codec
from rocketlet.remoting.command import Command
from rocketlet.remoting.memory_network import MemoryNetwork
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.transport import ByteStream

# A parked pull is answered within 15 s; everything else at once, or never: recordings lack some requests.
PATIENCE = {True: 20.0, False: 0.5}


@dataclass(frozen=True)
class Frame:
    """One line of a recording."""

    seq: int
    conn: int
    ms: int
    sender: str
    receiver: str
    command: Command
    data: bytes
    answers: int | None
    answered: bool

    @property
    def is_response(self) -> bool:
        return self.command.is_response


def frames_of(path: Path) -> Iterator[Frame]:
    for line in path.read_text("utf-8").splitlines():
        raw = json.loads(line)
        data = base64.b64decode(raw["b64"])
        (command,) = frame_codec.FrameDecoder().feed(data)
        request = raw.get("request")
        yield Frame(
            raw["seq"], raw["conn"], raw["ms"], raw["from"], raw["to"], command, data,
            request["seq"] if request else None, bool(raw.get("answered")),
        )  # fmt: skip


@dataclass
class Pair:
    """A recorded request, Java's answer, and ours."""

    request: Frame
    java: Command
    ours: Command


@dataclass
class Peer:
    """One of the recorded connections, to our broker."""

    stream: ByteStream
    answers: dict[int, Command] = field(default_factory=dict)
    questions: list[Command] = field(default_factory=list)
    arrived: trio.Condition = field(default_factory=trio.Condition)

    async def listen(self) -> None:
        decoder = frame_codec.FrameDecoder()
        try:
            while chunk := await self.stream.receive_some():
                for command in decoder.feed(chunk):
                    if command.is_response:
                        self.answers[command.opaque] = command
                    else:
                        self.questions.append(command)
                async with self.arrived:
                    self.arrived.notify_all()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # closed by either side; waiters run into their timeout

    async def answer_to(self, opaque: int) -> Command:
        async with self.arrived:
            while opaque not in self.answers:
                await self.arrived.wait()
        return self.answers.pop(opaque)

    async def question(self, code: int) -> Command:
        """The next request of this code that the broker sent us."""
        async with self.arrived:
            while True:
                for command in self.questions:
                    if command.code == code:
                        self.questions.remove(command)
                        return command
                await self.arrived.wait()


@dataclass
class Player:
    """Plays recordings to the broker at an address."""

    network: MemoryNetwork
    address: str
    nursery: trio.Nursery
    pairs: list[Pair] = field(default_factory=list)
    asked: list[tuple[Command, Command]] = field(default_factory=list)  # what Java's broker asked a client, and ours
    unanswered: list[str] = field(default_factory=list)
    _peers: dict[int, Peer] = field(default_factory=dict)
    _opaques: dict[int, int] = field(default_factory=dict)  # of the broker's questions, by the recording's seq

    async def play(self, frames: list[Frame]) -> None:
        start = trio.current_time()
        requests = {frame.seq: frame for frame in frames if not frame.is_response}
        self._peers, self._opaques = {}, {}
        for frame in frames:
            if "broker" not in (frame.sender, frame.receiver) or "namesrv" in (frame.sender, frame.receiver):
                continue
            await trio.sleep_until(start + frame.ms / 1000)
            if frame.receiver == "broker":
                await self._to_broker(frame, requests)
            else:
                await self._from_broker(frame, requests)
        for peer in self._peers.values():
            await peer.stream.aclose()

    async def _to_broker(self, frame: Frame, requests: dict[int, Frame]) -> None:
        peer = await self._peer(frame.conn)
        data = frame.data
        if frame.is_response:
            opaque = self._opaques.get(frame.answers or 0)
            if opaque is None:
                return
            frame.command.opaque = opaque
            data = frame_codec.encode(frame.command)
        try:
            await peer.stream.send_all(data)
        except trio.BrokenResourceError:
            self.unanswered.append(f"seq {frame.seq}: its connection was closed by the broker")
        await trio.testing.wait_all_tasks_blocked()

    async def _from_broker(self, frame: Frame, requests: dict[int, Frame]) -> None:
        peer = await self._peer(frame.conn)
        request = requests.get(frame.answers or 0)
        with trio.move_on_after(PATIENCE[request is not None and request.command.code == RequestCode.PULL_MESSAGE]):
            if frame.is_response:
                if request is not None:
                    ours = await peer.answer_to(request.command.opaque)
                    self.pairs.append(Pair(request, frame.command, ours))
            else:
                question = await peer.question(frame.command.code)
                self._opaques[frame.seq] = question.opaque
                self.asked.append((frame.command, question))
            return
        description = frame.command.code if not frame.is_response else f"the answer to {frame.answers}"
        self.unanswered.append(f"seq {frame.seq}: {description} did not come")

    async def _peer(self, conn: int) -> Peer:
        peer = self._peers.get(conn)
        if peer is None:
            peer = self._peers[conn] = Peer(await self.network.dial(self.address))
            self.nursery.start_soon(peer.listen)
        return peer


def differences(pair: Pair, ignored: frozenset[str]) -> list[str]:
    """Differences in code, header fields and remark; `ignored` fields must only be present."""
    java, ours = pair.java, pair.ours
    lines = []
    if java.code != ours.code:
        lines.append(f"code {ours.code} ({ours.remark}) instead of {java.code} ({java.remark})")
    theirs, mine = java.ext or {}, ours.ext or {}
    if theirs.keys() != mine.keys():
        lines.append(f"fields {sorted(mine)} instead of {sorted(theirs)}")
    for name, value in theirs.items():
        if name in mine and mine[name] != value and name not in ignored:
            lines.append(f"{name}={mine[name]} instead of {value}")
    if bool(java.body) != bool(ours.body):
        lines.append(f"a body of {len(ours.body)} instead of {len(java.body)} bytes")
    return [f"seq {pair.request.seq} ({pair.request.command.code}): {line}" for line in lines]
