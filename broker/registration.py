"""The broker at its name servers: registered with all of them, in parallel, at start, on every change, and regularly.

Each round sends the complete topic table in one snapshot with its version, over connections that are kept. A round that
nothing forces (`forceRegister=false`) first asks each name server whether it knows this version (322) and registers
with all if one does not. A change that comes while a round is under way makes another one behind it, so the last state
always arrives; many changes at once make one round. A name server that is away is told the next time; the log says when
it goes and when it comes back, not at every try.

The answers carry two things back: which topics are ordered, and for a slave where its master is.

Java: broker/BrokerController.java (registerBrokerAll), broker/out/BrokerOuterAPI.java
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import trio

from broker.config import Settings
from broker.identity import Identity
from broker.topic_table import TopicTable
from common.topic import PERM_INHERIT
from remoting.command import Command, request
from remoting.connection_pool import ConnectionPool
from remoting.errors import BodyError, RemotingError
from remoting.protocol.header import from_ext
from remoting.protocol.kv import KVTable
from remoting.protocol.registration import (
    QueryDataVersionAnswerHeader,
    QueryDataVersionHeader,
    RegisterBrokerAnswerHeader,
    RegisterBrokerBody,
    RegisterBrokerHeader,
    UnregisterBrokerHeader,
    body_crc32,
)
from remoting.request_codes import RequestCode
from remoting.response_codes import ResponseCode, response_name

log = logging.getLogger("broker.registration")

QUERY_SECONDS = 3.0
UNREGISTER_SECONDS = 3.0
# A change is registered at once, but a storm of them at most this often.
LEAST_PAUSE = 0.05
# The first answer of a topic that a send created waits for the name servers so long; one that is away must not stop it.
MOST_WAIT = 1.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one name server in one round; `error` is empty when it has us."""

    address: str
    error: str = ""


class Registration:
    """Tells name servers what this broker serves. Without name servers it does nothing."""

    def __init__(self, identity: Identity, settings: Settings, topics: TopicTable, pool: ConnectionPool) -> None:
        self._identity = identity
        self._settings = settings
        self._topics = topics
        self._pool = pool
        self._changed = trio.Event()
        self._round = trio.Lock()
        self._wanted = 0  # changes so far, and how many of them a round has told
        self._told = 0
        self._away: dict[str, str] = {}  # name servers that do not have us, and why
        self.master_address: str | None = None

    def register_soon(self) -> None:
        """Something changed; the next round begins at once."""
        self._wanted += 1
        self._changed.set()

    async def register_now(self) -> None:
        """Something changed; wait until all name servers have been told, or cannot be."""
        self.register_soon()
        await self._until_told()

    async def known(self) -> None:
        """Wait, for a moment at most, until all name servers have been told of every change so far, or cannot be."""
        with trio.move_on_after(MOST_WAIT):
            await self._until_told()

    async def _until_told(self) -> None:
        mine = self._wanted
        async with self._round:
            if self._told < mine:
                await self._register_all(forced=True)

    async def run(self) -> None:
        """Register on changes and regularly, until cancelled. Call `register_now` before."""
        while True:
            with trio.move_on_after(self._settings.now.registration_pause):
                await self._changed.wait()
            changed, self._changed = self._changed.is_set(), trio.Event()
            async with self._round:
                if not changed or self._told < self._wanted:
                    await self._register_all(forced=changed or self._settings.now.force_register)
            await trio.sleep(LEAST_PAUSE)

    async def unregister(self) -> None:
        """Tell all name servers that this broker stops, so that clients leave it at once."""
        command = request(
            RequestCode.UNREGISTER_BROKER,
            UnregisterBrokerHeader(
                self._identity.broker_id, self._identity.name, self._identity.address, self._identity.cluster
            ),
        )
        with trio.move_on_after(UNREGISTER_SECONDS):
            async with trio.open_nursery() as nursery:
                for address in self._settings.now.namesrv_addr:
                    nursery.start_soon(self._unregister_at, address, command)

    async def _unregister_at(self, address: str, command: Command) -> None:
        try:
            await self._pool.call(address, command, UNREGISTER_SECONDS)
            log.info("unregistered from name server %s", address)
        except RemotingError as error:
            log.warning("cannot unregister from name server %s: %s", address, error)

    async def _register_all(self, *, forced: bool) -> None:
        addresses = self._settings.now.namesrv_addr
        upto = self._wanted
        if not addresses:
            self._told = upto
            return
        if not forced and not await self._someone_needs_it(addresses):
            return
        command = self._registration()
        outcomes: list[Outcome] = []

        async def tell(address: str) -> None:
            outcomes.append(await self._register_at(address, command))

        async with trio.open_nursery() as nursery:
            for address in addresses:
                nursery.start_soon(tell, address)
        self._told = upto
        self._report(outcomes)

    def _registration(self) -> Command:
        """The whole topic table as it is at this moment, in one piece with its version."""
        mask = self._settings.now.broker_permission | PERM_INHERIT
        body = RegisterBrokerBody([], self._topics.to_body(mask))
        compressed = self._settings.now.compressed_register
        data = body.to_compressed() if compressed else body.to_json()
        header = RegisterBrokerHeader(
            self._identity.broker_id,
            self._identity.name,
            self._identity.address,
            self._identity.cluster,
            self._identity.ha_address,
            compressed,
            body_crc32(data),
            self._identity.loopback_address or None,
        )
        return request(RequestCode.REGISTER_BROKER, header, data)

    async def _register_at(self, address: str, command: Command) -> Outcome:
        try:
            answer = await self._pool.call(
                address, _copy(command), self._settings.now.register_broker_timeout_mills / 1000
            )
            if answer.code != ResponseCode.SUCCESS:
                return Outcome(address, f"it answered {response_name(answer.code)}: {answer.remark or 'no remark'}")
            self._take(answer)
        except (RemotingError, BodyError) as error:
            return Outcome(address, str(error))
        return Outcome(address)

    def _take(self, answer: Command) -> None:
        header = from_ext(RegisterBrokerAnswerHeader, answer.ext)
        if header.masterAddr:
            self.master_address = header.masterAddr
        if answer.body:
            self._topics.follow_order(KVTable.from_json(answer.body).table)

    async def _someone_needs_it(self, addresses: tuple[str, ...]) -> bool:
        identity = self._identity
        header = QueryDataVersionHeader(identity.broker_id, identity.name, identity.address, identity.cluster)
        command = request(RequestCode.QUERY_DATA_VERSION, header, self._topics.version.to_json())
        needed: list[str] = []

        async def ask(address: str) -> None:
            try:
                answer = await self._pool.call(address, _copy(command), QUERY_SECONDS)
                known = (
                    answer.code == ResponseCode.SUCCESS
                    and not from_ext(QueryDataVersionAnswerHeader, answer.ext).changed
                )
            except RemotingError:
                known = False  # whatever ails it, registering will show and tell
            if not known:
                needed.append(address)

        async with trio.open_nursery() as nursery:
            for address in addresses:
                nursery.start_soon(ask, address)
        return bool(needed)

    def _report(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            if outcome.error and self._away.get(outcome.address) != outcome.error:
                log.warning(
                    "not registered at name server %s: %s; tried again every %g s",
                    outcome.address,
                    outcome.error,
                    self._settings.now.registration_pause,
                )
            elif not outcome.error and self._away.get(outcome.address, "new"):
                log.info("registered at name server %s as %s", outcome.address, self._identity.address)
            self._away[outcome.address] = outcome.error


def _copy(command: Command) -> Command:
    """Connections write their own opaque into what they send."""
    return Command(command.code, ext=command.ext, body=command.body)
