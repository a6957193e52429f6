"""A client of raw frames: frames that no proper client would send, and every answer unchanged."""

from __future__ import annotations

import trio

from rocketlet.remoting.command import Command
from rocketlet.remoting.frame_codec import FrameDecoder, encode
from rocketlet.remoting.transport import ByteStream


class RawClient:
    """Uses an already connected stream."""

    def __init__(self, stream: ByteStream) -> None:
        self.stream = stream
        self._decoder = FrameDecoder()
        self._received: list[Command] = []

    async def send(self, *frames: Command | bytes) -> None:
        """All in one write."""
        await self.stream.send_all(b"".join(frame if isinstance(frame, bytes) else encode(frame) for frame in frames))

    async def receive(self) -> Command:
        """The next frame. EOFError when the other side has closed."""
        while not self._received:
            data = await self.stream.receive_some()
            if not data:
                raise EOFError
            self._received += self._decoder.feed(data)
        return self._received.pop(0)

    async def ask(self, command: Command | bytes) -> Command:
        """Send one frame and return the next one as its answer."""
        await self.send(command)
        return await self.receive()

    async def until_closed(self) -> None:
        """Wait for the peer to close, whatever it still sends."""
        try:
            while await self.stream.receive_some():
                pass
        except trio.BrokenResourceError:
            pass  # closed in the middle of something: closed all the same
