"""Checking open transactions with their producers: 39 CHECK_TRANSACTION_STATE.

Every `transactionCheckInterval` the half queue is scanned from the first message that is not over. A message
- that was checked `transactionCheckMax` times, or once and is older than the retention, is given up;
- younger than `transactionTimeOut` ends the round, because later ones are younger still;
- younger than its own CHECK_IMMUNITY_TIME_IN_SECONDS is put back into the half queue unchecked, so that it does not
  hold up later ones; it keeps its first offset;
- otherwise is put back with one check more, and one live producer of its group is asked about the copy. If there is
  none it counts as checked, so that transactions nobody can end do not stay forever. One whose properties have no room
  for the count cannot be put back: it is checked in place, and counted in memory.

Unlike RocketMQ, a transaction is never given up unchecked, because a producer whose clock is three days behind would
lose all its transactions; and messages put back unchecked do not count as checked, or fifteen rounds would end an
immunity of an hour.

Java: broker/transaction/queue/TransactionalMessageServiceImpl.java (check), AbstractTransactionalMessageCheckListener
"""

from __future__ import annotations

import enum
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Final

import trio

from rocketlet.broker.config import Settings
from rocketlet.broker.half_messages import Half, HalfMessages, number_of
from rocketlet.broker.identity import Identity
from rocketlet.broker.producer_groups import ProducerGroups
from rocketlet.common.clock import WallClock
from rocketlet.common.message_properties import (
    CHECK_IMMUNITY_TIME,
    TRAN_PREPARED_QUEUE_OFFSET,
    TRANSACTION_CHECK_TIMES,
    UNIQ_KEY,
)
from rocketlet.common.message_record import encode
from rocketlet.remoting.command import request
from rocketlet.remoting.errors import RemotingError
from rocketlet.remoting.protocol.transactions import CheckTransactionStateHeader
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.store.errors import MessageIllegal, StoreError

log = logging.getLogger("rocketlet.broker.transaction_check")

BATCH: Final = 32  # half messages examined before other tasks run


class Verdict(enum.Enum):
    """A round's decision about a half message."""

    GIVE_UP = enum.auto()
    TOO_YOUNG = enum.auto()
    IMMUNE = enum.auto()
    ASK = enum.auto()


class TransactionCheck:
    """The rounds of checks. `settle` dispatches what was put; `kept_hours` is the retention of messages."""

    def __init__(
        self,
        halves: HalfMessages,
        producers: ProducerGroups,
        identity: Identity,
        settings: Settings,
        kept_hours: Callable[[], int],
        clock: WallClock,
        random: Random,
        settle: Callable[[], None],
    ) -> None:
        self._halves = halves
        self._producers = producers
        self._identity = identity
        self._settings = settings
        self._kept_hours = kept_hours
        self._clock = clock
        self._random = random
        self._settle = settle
        self._absent: Counter[str] = Counter()  # transactions of this round without a producer to ask, by group
        self._counted: dict[int, int] = {}  # checks of those that cannot be put back, by offset
        self.asked = self.given_up = 0

    async def run(self) -> None:
        """Check in rounds until cancelled. REQUIRES recovered half messages."""
        while True:
            await trio.sleep(self._settings.now.transaction_check_interval / 1000)
            try:
                await self.check()
            except StoreError as error:
                log.error("the check of transactions stops until the next round: %s", error)

    async def check(self) -> None:
        """One round. Raises StoreError if the store accepts nothing now; completed work stays done."""
        start = self._clock()
        offset = self._halves.next_open()
        count = 0
        try:
            while offset < self._halves.end() and await self._look_at(offset, start):
                offset += 1
                count += 1
                if count % BATCH == 0:
                    self._settle()
                    await trio.lowlevel.checkpoint()
        finally:
            self._settle()
            self._log_absent_groups()

    def _log_absent_groups(self) -> None:
        """One line per group and round: one per transaction would drown everything else while a producer is away."""
        for group, count in self._absent.items():
            log.warning("no producer of group %s is connected to be asked about %d of its transactions", group, count)
        self._absent.clear()

    async def _look_at(self, offset: int, start: int) -> bool:
        """Process one half message; false if the round is over."""
        if self._halves.is_over(offset):
            self._counted.pop(offset, None)
            return True
        half = await self._halves.read_off_loop(offset)
        if self._halves.is_over(offset):
            return True  # meanwhile
        if half is None:
            log.error("the half message at %d cannot be read; it is skipped", offset)
            self._halves.skip(offset)
            return True
        verdict = self._judge(half, start)
        if verdict is Verdict.TOO_YOUNG:
            return False
        if verdict is Verdict.GIVE_UP:
            log.warning("transaction %s of group %s is given up", half.properties.get(UNIQ_KEY), half.group)
            self._give_up(half)
        elif verdict is Verdict.IMMUNE:
            first = half.properties.get(TRAN_PREPARED_QUEUE_OFFSET, str(offset))
            self._put_back(half, {TRAN_PREPARED_QUEUE_OFFSET: first})
        else:
            copy = self._put_back(half, {TRANSACTION_CHECK_TIMES: str(half.checks + 1)})
            if copy is None:
                self._counted[offset] = self._counted.get(offset, 0) + 1
            self._ask(copy or half)
        return True

    def _put_back(self, half: Half, properties: dict[str, str]) -> Half | None:
        """The copy that represents it from now on; None if it cannot be stored with these additional properties."""
        try:
            return self._halves.put_back(half, half.properties | properties)
        except MessageIllegal as error:
            if half.offset not in self._counted:
                log.warning("the half message at %d is asked about where it is: %s", half.offset, error)
            self._counted.setdefault(half.offset, 0)
            return None

    def _give_up(self, half: Half) -> None:
        try:
            self._halves.give_up(half)
        except MessageIllegal as error:
            log.error("the half message at %d is given up, and stays where it is: %s", half.offset, error)
            self._halves.skip(half.offset)
        self._counted.pop(half.offset, None)
        self.given_up += 1

    def _judge(self, half: Half, start: int) -> Verdict:
        config = self._settings.now
        # By the producer's clock, as in RocketMQ; one ahead of ours is checked at once.
        age = self._clock() - half.record.born_timestamp
        checks = half.checks + self._counted.get(half.offset, 0)
        too_old = checks > 0 and age > self._kept_hours() * 3_600_000
        if checks >= config.transaction_check_max or too_old:
            return Verdict.GIVE_UP
        if half.record.store_timestamp >= start:
            return Verdict.TOO_YOUNG
        immunity = number_of(half.properties.get(CHECK_IMMUNITY_TIME), -1)
        if CHECK_IMMUNITY_TIME in half.properties:
            limit = immunity * 1000 if immunity != -1 else config.transaction_time_out
            return Verdict.IMMUNE if age < limit else Verdict.ASK
        return Verdict.TOO_YOUNG if 0 <= age < config.transaction_time_out else Verdict.ASK

    def _ask(self, half: Half) -> None:
        members = self._producers.members(half.group)
        if not members:
            self._absent[half.group] += 1
            return
        unique = half.properties.get(UNIQ_KEY)
        message_id = self._identity.message_id(half.record.log_offset)
        header = CheckTransactionStateHeader(
            half.offset, half.record.log_offset, unique or message_id, unique, message_id
        )
        body = encode(replace(half.record, topic=half.topic, queue_id=half.queue_id))
        question = request(RequestCode.CHECK_TRANSACTION_STATE, header, body)
        member = self._random.choice(members)
        try:
            member.connection.send_oneway(question)
        except RemotingError as error:
            log.warning("producer %s cannot be asked about a transaction: %s", member.client_id, error)
            return
        self.asked += 1

    def __repr__(self) -> str:
        return f"<TransactionCheck: {self.asked} asked, {self.given_up} given up>"
