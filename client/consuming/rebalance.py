"""Which queues this consumer holds: decided every 20 s, at each notice of the broker, and at each change of routes.

For each subscribed topic: the readable queues from the route, the group's members from a broker, our share from the
allocation. Queues that are no longer ours are released first, then new ones are acquired: locked where order matters,
then their offset is read, then they are pulled. What fails is tried again, at first each second.

Two situations stop RocketMQ's consumers for long. A member list without our own id does not cost us all queues: it only
means that a broker has restarted and has not heard from us yet, so it gets a heartbeat and is asked again. And a queue
that has not been pulled for two minutes is released and acquired again.

Releasing an ordered queue may take as long as its listener does, so each queue is released in a task of its own.

Invariant: a queue is in `held` from before its first pull until after its last commit and the return of its lock, so it
cannot be acquired again in between.

Java: client/impl/consumer/RebalanceImpl.java, RebalancePushImpl.java, RebalanceService.java
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

import trio

from rocketlet.client.config import ConsumeFrom
from rocketlet.client.consuming import queue_allocation
from rocketlet.client.consuming.group_member import GroupMember
from rocketlet.client.consuming.process_queue import ProcessQueue, Totals
from rocketlet.client.errors import RAISED_BY_USERS, ClientError, TimedOut, Unreachable
from rocketlet.client.talking.side_by_side import for_each
from rocketlet.client.validators import checked_queues
from rocketlet.client.wakeup import Wakeup
from rocketlet.common.message import MessageQueue
from rocketlet.common.retry_pauses import retry_pauses
from rocketlet.common.topic import is_retry_topic

log = logging.getLogger("rocketlet.client.rebalance")

_MAX_PAUSE = 5.0  # between two tries to acquire all queues
_COMMIT_TIME = 1.0
LOCK_INTERVAL = 20.0
_HALF_AN_HOUR_MS = 30 * 60 * 1000


class Rebalance:
    """The queues of one consumer. Lives on the engine's loop."""

    def __init__(
        self,
        member: GroupMember,
        taken: Callable[[ProcessQueue], None],
        given_up: Callable[[ProcessQueue], Awaitable[None]],
        queue_type: type[ProcessQueue],
        *,
        locking: bool,
    ) -> None:
        """`taken` begins to pull a queue. `given_up` stops that and commits; the queue is dropped already."""
        self.held = member.held
        self.by_hand = False
        """The queues are assigned by the user; there is nothing to balance."""
        self.totals = Totals()
        self.topic_totals: dict[str, Totals] = {}
        self._queue_type = queue_type
        self._member = member
        self._taken = taken
        self._given_up = given_up
        self._group = member.group
        self._client_id = member.session.client_id
        self._routes = member.session.routes
        self._brokers = member.session.brokers
        self._locking = locking
        self._wakeup = Wakeup()
        self._leaving: set[MessageQueue] = set()
        self._departures = trio.lowlevel.ParkingLot()
        self._incomplete = False
        self._ended = False
        self._restarting: dict[MessageQueue, int] = {}

    def wake(self) -> None:
        """Balance now: the members of the group, the routes or the subscriptions have changed."""
        self._wakeup.set()

    async def run(self, balanced: Callable[[], object]) -> None:
        """Balance until cancelled; `balanced` is called after the first round."""
        if self._locking:
            self._member.session.start_task(self._renew_locks)
        await self.balance()
        balanced()
        interval = self._member.config.rebalance_interval
        pauses = retry_pauses(_MAX_PAUSE)
        while True:
            woken = await self._wakeup.wait(min(next(pauses), interval) if self._incomplete else interval)
            if woken or not self._incomplete:
                pauses = retry_pauses(_MAX_PAUSE)
            await self.balance()

    async def balance(self) -> None:
        """One round over all topics."""
        self._incomplete = False
        if self.by_hand or self._ended:
            return
        topics = list(self._member.subscriptions)
        await self._give_up([queue for queue in self.held if queue.topic not in topics])
        for topic in topics:
            await self._balance_topic(topic)

    def restart(self, process_queue: ProcessQueue, offset: int) -> None:
        """Drop what is pulled of this queue and continue at another offset; running listeners may finish."""
        process_queue.drop()
        self._restarting[process_queue.queue] = offset
        self.wake()

    def is_restarting(self, queue: MessageQueue) -> bool:
        """Whether the queue is released only to be acquired again, at an offset that is set already."""
        return queue in self._restarting

    # ---- one topic

    async def _balance_topic(self, topic: str) -> None:
        route = self._routes.get(topic)
        if route is None:
            return  # asked for every 30 s; a new group's retry topic appears with the first heartbeat
        assigned = await self._assigned(topic, route.readable)
        if assigned is None:
            self._incomplete = True
            return
        now = trio.current_time() * 1000
        current = [queue for queue in self.held if queue.topic == topic]
        for queue in current:
            if queue in assigned and self.held[queue].is_stalled(now) and not self.held[queue].dropped:
                log.error("nothing was pulled from %s for two minutes; it is released and acquired again", queue)
                self.held[queue].drop()
        # Those that are not ours, or have to start again.
        await self._give_up([queue for queue in current if queue not in assigned or self.held[queue].dropped])
        await self._take([queue for queue in sorted(assigned) if queue not in self.held])

    async def _assigned(self, topic: str, queues: Sequence[MessageQueue]) -> set[MessageQueue] | None:
        """Our share of a topic's queues; None while it is not known."""
        if self._member.broadcasting:
            return set(queues)
        members = await self._member.members(topic)
        if members is None:
            return None
        if self._client_id not in members:
            log.warning("a broker of %s does not list this client in %s yet; sending heartbeats", topic, self._group)
            await self._member.session.heartbeats.to_all()
            return None
        try:
            allocation = self._member.config.allocation
            allocated = queue_allocation.allocate(allocation, self._group, self._client_id, queues, members)
            return set(checked_queues(allocated))
        except RAISED_BY_USERS:
            # The allocation may be the user's code. Queues that are held stay.
            log.exception("the allocation of the queues of %s to %s raised; trying again", topic, self._group)
            return None

    # ---- acquiring and releasing

    async def _take(self, queues: list[MessageQueue]) -> None:
        locked = await self._lock(queues) if self._locking else dict.fromkeys(queues, True)
        if not all(map(locked.get, queues)):
            self._incomplete = True
        ours = _by_broker(filter(locked.get, queues))
        ours.sort(key=lambda part: not self._answers(part[0].broker_name))
        await for_each(ours, self._take_of_one_broker)

    def _answers(self, broker_name: str) -> bool:
        address = self._routes.reader(broker_name)
        return address is not None and self._member.session.heartbeats.are_answered_by(address)

    async def _take_of_one_broker(self, queues: list[MessageQueue]) -> None:
        for queue in queues:
            offset = self._restarting.pop(queue, None)
            if offset is None:
                try:
                    offset = await self.start_offset(queue)
                except ClientError as error:
                    log.warning("%s is not consumed yet, its offset is not known: %s", queue, error)
                    self._incomplete = True
                    if isinstance(error, (Unreachable, TimedOut)):
                        return  # so would be the others of this broker, each after as long
                    continue
            now = trio.current_time() * 1000
            process_queue = self.new_process_queue(queue, offset)
            if self._locking:
                process_queue.locked, process_queue.last_lock = True, now
            self.held[queue] = process_queue
            log.info("%s consumes %s from offset %d", self._group, queue, offset)
            self._taken(process_queue)

    async def start_offset(self, queue: MessageQueue) -> int:
        """Where to begin: at the group's stored offset, else as `consume_from` says.

        A retry topic is different: what is in it waits for this group, so it is consumed from its beginning (by a
        time: from its end, as RocketMQ has it). Raises ClientError where it cannot be known now.
        """
        member, config = self._member, self._member.config
        address = await member.session.reader_of(queue)
        stored = await member.offsets.read(queue)
        if stored is not None:
            return stored
        match config.consume_from, is_retry_topic(queue.topic):
            case ConsumeFrom.FIRST_OFFSET, _:
                return await self._brokers.min_offset(address, queue)
            case ConsumeFrom.LAST_OFFSET, True:
                return 0
            case ConsumeFrom.TIMESTAMP, False:
                timestamp = config.consume_timestamp or member.started_at - _HALF_AN_HOUR_MS
                return await self._brokers.offset_at(address, queue, timestamp)
            case _:
                return await self._brokers.max_offset(address, queue)

    def new_process_queue(self, queue: MessageQueue, offset: int) -> ProcessQueue:
        """A process queue that counts in the totals of its topic and of all topics."""
        of_topic = self.topic_totals.setdefault(queue.topic, Totals())
        return self._queue_type(queue, offset, trio.current_time() * 1000, (self.totals, of_topic))

    async def _give_up(self, queues: Iterable[MessageQueue]) -> None:
        """Start releasing, and wait a moment for the queues that have nothing to wait for."""
        leaving = [self.held[queue] for queue in queues if queue not in self._leaving]
        for process_queue in leaving:
            process_queue.drop()
            self._leaving.add(process_queue.queue)
            self._member.session.start_task(self._release, process_queue)
        with trio.move_on_after(_COMMIT_TIME):
            while not self._leaving.isdisjoint(process_queue.queue for process_queue in leaving):
                await self._departures.park()

    async def _release(self, process_queue: ProcessQueue) -> None:
        queue = process_queue.queue
        try:
            await self._given_up(process_queue)
            if self._locking:
                await self._unlock(queue)
        finally:  # even if cancelled with the user's block: the shutdown waits for this
            del self.held[queue]
            self._leaving.discard(queue)
            self._departures.unpark_all()
        if queue in self._restarting:
            self.wake()
        else:
            log.info("%s no longer consumes %s", self._group, queue)

    async def give_up_all(self) -> None:
        """At shutdown: drop all queues and wait until the last one is released."""
        self._ended = True
        self._restarting.clear()
        await self._give_up(list(self.held))
        while self._leaving:
            await self._departures.park()

    # ---- locks

    async def _lock(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, bool]:
        """Whether each is locked for this client now; without those whose broker does not say so."""
        answers: dict[MessageQueue, bool] = {}

        async def lock(part: list[MessageQueue]) -> None:
            address = self._routes.master(part[0].broker_name)
            if address is None:
                return
            try:
                locked = await self._brokers.lock(address, self._client_id, self._group, part)
            except ClientError as error:
                log.warning("queues of %s could not be locked: %s", self._group, error)
            else:
                answers.update((queue, queue in locked) for queue in part)

        await for_each(_by_broker(queues), lock)
        return answers

    async def _unlock(self, queue: MessageQueue) -> None:
        address = self._routes.master(queue.broker_name)
        if address is None:
            return
        try:
            await self._brokers.unlock(address, self._client_id, self._group, queue)
        except ClientError as error:
            log.info("the lock of %s was not given back and will expire: %s", queue, error)

    async def _renew_locks(self) -> None:
        while True:
            await trio.sleep(LOCK_INTERVAL)
            sent_at = trio.current_time() * 1000
            held = [queue for queue, process_queue in self.held.items() if not process_queue.dropped]
            for queue, granted in (await self._lock(held)).items():
                process_queue = self.held.get(queue)
                if process_queue is not None:
                    self._renewed(process_queue, granted, sent_at)

    def _renewed(self, process_queue: ProcessQueue, granted: bool, sent_at: float) -> None:
        # Another member may have held a lock that lapsed in between: then our offset is outdated, and what is pulled
        # may have been consumed. Only an unbroken chain of renewals keeps the queue.
        if granted and process_queue.is_locked(sent_at):
            process_queue.last_lock = sent_at
            return
        log.warning("the lock of %s was lost; the queue is acquired again", process_queue.queue)
        process_queue.locked = False
        process_queue.drop()
        self.wake()


def _by_broker(queues: Iterable[MessageQueue]) -> list[list[MessageQueue]]:
    """The queues of each broker together, in their order."""
    groups: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        groups.setdefault(queue.broker_name, []).append(queue)
    return list(groups.values())
