"""The broker at its name servers: registered with all of them, in parallel, at start, on every change, and regularly.

Each name server has its own task, so an absent or slow one delays no other. A registration is the complete topic table
with its version, over a persistent connection. Unless forced (`forceRegister=false`), it first asks whether the name
server has this version (322). A change during a registration causes another one, so the last state always arrives; many
changes at once cause one. A failing name server is retried every second at first. The log says when it is lost and when
it is back, not at every attempt.

The answers return two things: which topics are ordered and, for a slave, its master's address.

Java: broker/BrokerController.java (registerBrokerAll), broker/out/BrokerOuterAPI.java
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import trio

from rocketlet.broker.config import Settings
from rocketlet.broker.identity import Identity
from rocketlet.broker.topic_table import TopicTable
from rocketlet.common.json_pieces import in_pieces
from rocketlet.common.retry_pauses import retry_pauses
from rocketlet.common.topic import PERM_INHERIT
from rocketlet.remoting.command import Command, request
from rocketlet.remoting.connection import Connection
from rocketlet.remoting.connection_pool import ConnectionPool
from rocketlet.remoting.errors import BodyError, RemotingError
from rocketlet.remoting.events import ConnectionEvents
from rocketlet.remoting.in_turns import collect_joined
from rocketlet.remoting.protocol.header import from_ext
from rocketlet.remoting.protocol.kv import KVTable
from rocketlet.remoting.protocol.registration import (
    QueryDataVersionAnswerHeader,
    QueryDataVersionHeader,
    RegisterBrokerAnswerHeader,
    RegisterBrokerHeader,
    UnregisterBrokerHeader,
    body_crc32,
    compressed_pieces,
    json_pieces,
)
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode, response_name

log = logging.getLogger("rocketlet.broker.registration")

QUERY_SECONDS = 3.0
UNREGISTER_SECONDS = 3.0
# A change is registered at once, but a storm of them at most this often.
MIN_PAUSE = 0.05
# How long the first answer for a topic created by a send waits for the name servers; an absent one must not block it.
MAX_WAIT = 1.0


@dataclass(slots=True)
class Place:
    """One name server. `tried`: how many changes its last finished attempt covered, successful or not; `error`: why it
    failed."""

    address: str
    tried: int = -1
    error: str | None = None  # None before the first attempt, empty while it has us
    master: tuple[str, str] = ("", "")  # of our name, from its answer: ordinary address, port for slaves
    lost: bool = False  # its connection has closed since


class Registration(ConnectionEvents):
    """Registers this broker at its name servers. Without name servers it does nothing."""

    def __init__(self, identity: Identity, settings: Settings, topics: TopicTable, pool: ConnectionPool) -> None:
        self._identity = identity
        self._settings = settings
        self._topics = topics
        self._pool = pool
        self._places = [Place(address) for address in settings.now.namesrv_addr]
        self.allowed: Callable[[], bool] = lambda: True
        """Whether this broker may be registered with the name servers now."""
        self.epoch: Callable[[], int] = lambda: 0
        """Where replicas elect their master: of the leader that this broker is, or follows."""
        self._changes = 0
        self._changed = trio.lowlevel.ParkingLot()  # tasks that wait for a change
        self._tries = trio.lowlevel.ParkingLot()  # tasks that wait for attempts to end
        pool.subscribe(self)
        self.on_master: Callable[[str, str], None] = lambda address, ha_address: None
        """Told of the master of our name, its ordinary address and its port for slaves, when a name server names
        another one than it named before."""

    def register_soon(self) -> None:
        """Something has changed; register with every name server soon."""
        self._changes += 1
        self._changed.unpark_all()

    async def register_now(self) -> None:
        """Something has changed; wait until every name server has it, or could not be reached. Requires: `run` runs."""
        self.register_soon()
        await self.wait_registered()

    async def wait_registered(self) -> None:
        """Wait until every name server has all changes so far, or could not be reached."""
        change = self._changes
        while any(place.tried < change for place in self._places):
            await self._tries.park()

    @property
    def is_behind(self) -> bool:
        """Whether a name server may still lack a change."""
        return any(place.tried < self._changes for place in self._places)

    async def wait_registered_briefly(self) -> None:
        """Wait until every name server has all changes so far, or could not be reached, for a moment at most."""
        with trio.move_on_after(MAX_WAIT):
            await self.wait_registered()

    def closed(self, connection: Connection) -> None:
        """A name server whose connection has closed may have been restarted, and then it knows no broker."""
        for place in self._places:
            if place.error == "" and place.address not in self._pool.connections:
                place.lost = True
        self._changed.unpark_all()

    def places(self) -> Iterator[tuple[str, bool]]:
        """Each name server, and whether it has this broker, as far as is known."""
        return ((place.address, place.error == "") for place in self._places)

    async def run(self) -> None:
        """Register on changes and regularly, until cancelled."""
        async with trio.open_nursery() as nursery:
            for place in self._places:
                nursery.start_soon(self._keep_registered, place)

    async def _keep_registered(self, place: Place) -> None:
        pauses = retry_pauses(self._settings.now.registration_pause)
        while True:
            # A slave registers every time: the answer has its master's address.
            always = self._settings.now.force_register or self._identity.slave
            changes, forced = self._changes, self._changes > place.tried or always or place.lost
            place.lost = False
            if forced or place.error or not await self._is_known_at(place.address):
                await self._register_at(place)
            place.tried = changes
            self._tries.unpark_all()
            pause = self._settings.now.registration_pause
            if place.error:
                pause = min(next(pauses), pause)
            else:
                pauses = retry_pauses(pause)
            await trio.sleep(MIN_PAUSE)
            with trio.move_on_after(pause - MIN_PAUSE):
                while self._changes <= place.tried and not place.lost:
                    await self._changed.park()
            if place.lost:
                await trio.sleep(next(pauses))  # it may close each connection

    async def unregister(self) -> None:
        """Unregister at all name servers, so that clients leave at once."""
        identity = self._identity
        header = UnregisterBrokerHeader(identity.broker_id, identity.name, identity.address, identity.cluster)
        with trio.move_on_after(UNREGISTER_SECONDS):
            async with trio.open_nursery() as nursery:
                for place in self._places:
                    nursery.start_soon(self._unregister_at, place.address, header)

    async def _unregister_at(self, address: str, header: UnregisterBrokerHeader) -> None:
        try:
            await self._pool.call(address, request(RequestCode.UNREGISTER_BROKER, header), UNREGISTER_SECONDS)
            log.info("unregistered from name server %s", address)
        except RemotingError as error:
            log.warning("cannot unregister from name server %s: %s", address, error)

    async def _registration(self) -> Command:
        """The whole topic table with its present version.

        It is written in steps. A change meanwhile may be in it or not, and causes another registration.
        """
        identity, config = self._identity, self._settings.now
        mask = config.broker_permission | PERM_INHERIT
        if config.compressed_register:
            topics = list(self._topics)
            configs = ((topic.to_config(mask) for topic in part) for part in in_pieces(topics))
            pieces = compressed_pieces(self._topics.version, len(topics), configs)
        else:
            pieces = json_pieces(self._topics.pieces(mask))
        data = await collect_joined(pieces)
        header = RegisterBrokerHeader(
            identity.broker_id,
            identity.name,
            identity.address,
            identity.cluster,
            identity.ha_address,
            config.compressed_register,
            body_crc32(data),
            identity.loopback_address or None,
            self.epoch() or None,
        )
        return request(RequestCode.REGISTER_BROKER, header, data)

    async def _register_at(self, place: Place) -> None:
        seconds = self._settings.now.register_broker_timeout_mills / 1000
        if not self.allowed():
            self._report(place, "it is unknown whether this broker still leads its replicas")
            return
        try:
            answer = await self._pool.call(place.address, await self._registration(), seconds)
            if answer.code != ResponseCode.SUCCESS:
                self._report(place, f"it answered {response_name(answer.code)}: {answer.remark or 'no remark'}")
                return
            self._take(place, answer)
        except (RemotingError, BodyError) as error:
            self._report(place, str(error))
        else:
            self._report(place, "")

    def _take(self, place: Place, answer: Command) -> None:
        header = from_ext(RegisterBrokerAnswerHeader, answer.ext)
        master = header.masterAddr or "", header.haServerAddr or ""
        # A name server without a master, because it has just started or the master has gone, does not make us forget
        # it.
        if master != place.master and all(master) and self._identity.slave:
            place.master = master
            self.on_master(*master)
        if answer.body:
            self._topics.follow_order(KVTable.from_json(answer.body).table)

    async def _is_known_at(self, address: str) -> bool:
        identity = self._identity
        header = QueryDataVersionHeader(identity.broker_id, identity.name, identity.address, identity.cluster)
        command = request(RequestCode.QUERY_DATA_VERSION, header, self._topics.version.to_json())
        try:
            answer = await self._pool.call(address, command, QUERY_SECONDS)
            return (
                answer.code == ResponseCode.SUCCESS and not from_ext(QueryDataVersionAnswerHeader, answer.ext).changed
            )
        except RemotingError:
            return False  # whatever is wrong, registering will report and log it

    def _report(self, place: Place, error: str) -> None:
        if error and place.error != error:
            log.warning(
                "not registered at name server %s: %s; tried again every %g s",
                place.address,
                error,
                self._settings.now.registration_pause,
            )
        elif not error and place.error != "":
            log.info("registered at name server %s as %s", place.address, self._identity.address)
        place.error = error
