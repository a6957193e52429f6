"""Calls of etcd's v3 API, by its JSON gateway: HTTP/1.1 with h11 on our own network seam, with TLS and authentication.

Of several endpoints the one that answered last is asked first; if it refuses, breaks or is silent, the next one is
used. A request to an endpoint that broke may have been carried out, so only reads and idempotent requests are repeated
at another one (`idempotent`).

Keys and values travel as base64, 64-bit numbers as text.

Java: none
"""

from __future__ import annotations

import logging
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import h11
import msgspec
import trio

from rocketlet.common.errors import RocketletError
from rocketlet.remoting.errors import RemotingError
from rocketlet.remoting.transport import ByteStream, Network, join_address, split_address

if TYPE_CHECKING:
    import ssl

log = logging.getLogger("rocketlet.failover.etcd_client")

LARGEST_ANSWER = 4 << 20
_MAX_IDLE = 4  # idle connections
_UNAUTHENTICATED = 16  # gRPC status codes
_INVALID = 3


class EtcdAway(RocketletError):
    """No endpoint answered. Whether the call was carried out is unknown."""


class EtcdRefused(RocketletError):
    """etcd refused the call; `code` is gRPC's."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


def text64(data: bytes | str) -> str:
    """Keys and values as the gateway wants them."""
    return b64encode(data.encode() if isinstance(data, str) else data).decode()


def bytes64(text: str) -> bytes:
    """And back."""
    return b64decode(text)


class _Connection:
    """One connection to one endpoint."""

    def __init__(self, stream: ByteStream, host: str) -> None:
        self.stream = stream
        self._host = host
        self._http = h11.Connection(h11.CLIENT)

    async def send_request(self, path: str, body: bytes, token: str) -> int:
        """Send a request. Returns the status of the answer; `read_piece` returns its body."""
        headers = [("Host", self._host), ("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        if token:
            headers.append(("Authorization", token))
        http = self._http
        data = b"".join(
            http.send(event) or b""
            for event in (
                h11.Request(method="POST", target=path, headers=headers),
                h11.Data(data=body),
                h11.EndOfMessage(),
            )
        )
        await self.stream.send_all(data)
        while True:
            event = await self._next()
            if isinstance(event, h11.Response):
                return event.status_code

    async def read_piece(self) -> bytes:
        """The next bytes of the answer; b"" at its end."""
        while True:
            event = await self._next()
            if isinstance(event, h11.Data):
                return bytes(event.data)
            if isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
                return b""

    async def read_rest(self) -> bytes:
        """The rest of the answer."""
        parts: list[bytes] = []
        while part := await self.read_piece():
            parts.append(part)
            if sum(map(len, parts)) > LARGEST_ANSWER:
                raise h11.RemoteProtocolError(f"an answer of more than {LARGEST_ANSWER} bytes")
        return b"".join(parts)

    def is_ready_again(self) -> bool:
        """Whether it can be used for another call."""
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            return True
        return False

    async def _next(self) -> Any:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self.stream.receive_some(65536))
        if isinstance(event, h11.ConnectionClosed):
            raise h11.RemoteProtocolError("the connection was closed")
        return event


class EtcdClient:
    """See the module. `secure` is the TLS context for https endpoints."""

    def __init__(
        self, network: Network, endpoints: Sequence[str], user: str = "", password: str = "",
        secure: ssl.SSLContext | None = None,
    ) -> None:  # fmt: skip
        self._network = network
        self._endpoints = [_endpoint(text) for text in endpoints]
        self._user, self._password = user, password
        self._secure = secure
        self._token = ""
        self._idle: list[_Connection] = []
        self._endpoint_index = 0  # the endpoint that answered last

    async def call(self, path: str, body: object, seconds: float, *, idempotent: bool = False) -> Any:
        """The answer to one call. Raises EtcdAway, EtcdRefused. A call that is not `idempotent` is sent only once."""
        problem = "no time was left"
        with trio.move_on_after(seconds):
            for _ in range(2 * len(self._endpoints)):
                may_be_sent = False
                try:
                    with trio.fail_after(max(seconds / 2, 0.3)):
                        connection = await self._connection()
                        may_be_sent = True
                        return await self._answer(connection, path, body)
                except (RemotingError, trio.TooSlowError, trio.BrokenResourceError, trio.ClosedResourceError, OSError,
                        h11.ProtocolError, msgspec.DecodeError) as error:  # fmt: skip
                    problem = f"{self._endpoint_address()}: {error or 'no answer in time'}"
                    await self._next_endpoint()
                    if may_be_sent and not idempotent:
                        break
        raise EtcdAway(f"etcd does not answer ({problem})")

    @asynccontextmanager
    async def stream(self, path: str, body: object) -> AsyncIterator[Answers]:
        """A call with many answers, on a connection of its own. Raises EtcdAway when it breaks."""
        connection: _Connection | None = None
        try:
            connection = await self._dial()
            await connection.send_request(path, msgspec.json.encode(body), self._token)
            yield Answers(connection)
        except (RemotingError, trio.BrokenResourceError, trio.ClosedResourceError, OSError, h11.ProtocolError,
                msgspec.DecodeError) as error:  # fmt: skip
            raise EtcdAway(f"etcd at {self._endpoint_address()} does not answer ({error})") from error
        finally:
            if connection is not None:
                with trio.CancelScope(shield=True):
                    await connection.stream.aclose()

    async def aclose(self) -> None:
        """Close the idle connections."""
        while self._idle:
            await self._idle.pop().stream.aclose()

    async def _answer(self, connection: _Connection, path: str, body: object) -> Any:
        is_usable = False
        try:
            if self._user and not self._token:
                await self._authenticate(connection)
            try:
                answer = await self._exchange(connection, path, body)
            except EtcdRefused as refused:
                if not self._user or (refused.code != _UNAUTHENTICATED and "token" not in str(refused)):
                    raise
                await self._authenticate(connection)
                answer = await self._exchange(connection, path, body)
            is_usable = True
            return answer
        except EtcdRefused:
            is_usable = True
            raise
        finally:
            if is_usable and len(self._idle) < _MAX_IDLE:
                self._idle.append(connection)
            else:
                with trio.CancelScope(shield=True):
                    await connection.stream.aclose()

    async def _authenticate(self, connection: _Connection) -> None:
        self._token = ""
        account = {"name": self._user, "password": self._password}
        answer = await self._exchange(connection, "/v3/auth/authenticate", account)
        self._token = str(answer["token"])

    async def _exchange(self, connection: _Connection, path: str, body: object) -> Any:
        status = await connection.send_request(path, msgspec.json.encode(body), self._token)
        answer = msgspec.json.decode(await connection.read_rest() or b"{}")
        if not connection.is_ready_again():
            raise h11.RemoteProtocolError("the connection does not go on")
        if status != 200 or not isinstance(answer, dict):
            text = answer.get("message") or answer.get("error") if isinstance(answer, dict) else answer
            code = int(answer.get("code", 0)) if isinstance(answer, dict) else 0
            if code in (_UNAUTHENTICATED, _INVALID, 5, 7, 9, 11):  # asking another endpoint would not help
                raise EtcdRefused(f"etcd at {self._endpoint_address()} refuses {path}: {text}", code)
            raise h11.RemoteProtocolError(f"status {status}: {text}")
        return answer

    async def _connection(self) -> _Connection:
        return self._idle.pop() if self._idle else await self._dial()

    async def _dial(self) -> _Connection:
        address, name, is_secure = self._endpoints[self._endpoint_index]
        stream = await self._network.dial(address)
        if is_secure:
            from rocketlet.remoting.tls import secured

            assert self._secure is not None
            try:
                stream = await secured(stream, self._secure, server_side=False, server_name=name)
            except BaseException:
                with trio.CancelScope(shield=True):
                    await stream.aclose()
                raise
        return _Connection(stream, address)

    async def _next_endpoint(self) -> None:
        """Switch to the next endpoint."""
        self._endpoint_index = (self._endpoint_index + 1) % len(self._endpoints)
        with trio.CancelScope(shield=True):
            await self.aclose()

    def _endpoint_address(self) -> str:
        return self._endpoints[self._endpoint_index][0]


class Answers:
    """The JSON values of a stream, one a line."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection
        self._rest = b""

    async def next(self) -> Any:
        """The next one; None at the end."""
        while b"\n" not in self._rest:
            part = await self._connection.read_piece()
            if not part:
                return None
            self._rest += part
            if len(self._rest) > LARGEST_ANSWER:
                raise h11.RemoteProtocolError(f"a line of more than {LARGEST_ANSWER} bytes")
        line, _, self._rest = self._rest.partition(b"\n")
        return msgspec.json.decode(line)


def _endpoint(text: str) -> tuple[str, str, bool]:
    """(address, host, whether with TLS) of `https://host:2379`."""
    scheme, _, place = text.partition("://")
    host, port = split_address(place.strip("/"))
    return join_address(host, port), host, scheme == "https"
