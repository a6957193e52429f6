"""After any crash a store opens, has every flushed message and no partial one, and queues and index agree with the log.

A crash keeps any subset of the pages and names that were not flushed, and may happen at any disk call, even during a
recovery.
"""

from __future__ import annotations

from random import Random
from unittest import mock

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rocketlet.common.message_flags import COMMIT, PREPARED, ROLLBACK
from rocketlet.store.errors import FlushFailed
from rocketlet.store.memory_disk import PowerCut
from tests.support.properties import examples
from tests.support.store_model import StoreModel, message, small_config

TOPICS = st.sampled_from(["TopicA", "TopicB", "%RETRY%group"])
KEYS = st.lists(st.sampled_from([b"a", b"b", b"c", b"order-1", b"order-2"]), max_size=3, unique=True).map(tuple)
BODIES = st.one_of(
    st.binary(max_size=40), st.integers(0, 600).map(lambda size: b"x" * size), st.integers(0, 300).map(bytes)
)
TAGS = st.sampled_from([b"", b"TagA", b"refund"])
KINDS = st.sampled_from([0, 0, 0, 0, PREPARED, COMMIT, ROLLBACK])
MESSAGES = st.builds(
    lambda topic, queue_id, body, keys, tags, kind: message(topic, queue_id, body, keys, tags, sys_flag=kind),
    TOPICS, st.integers(0, 1), BODIES, KEYS, TAGS, KINDS,
)  # fmt: skip
PLAIN = st.builds(message, TOPICS, st.integers(0, 1), BODIES, KEYS, TAGS)
SEEDS = st.integers(0, 1 << 32)

# A store that is opened, ended and opened again is worth a look; a chain of lives in which nothing is written is not.
may_end = precondition(lambda machine: machine.model.written or not machine.model.empty_lives)

crashes = 0


class Crashes(RuleBasedStateMachine):
    """One store through many restarts."""

    @initialize(
        page_size=st.sampled_from([64, 128, 512]),
        log_size=st.sampled_from([1024, 2048, 8192]),
        queue_size=st.sampled_from([60, 100, 400]),
        by_columns=st.booleans(),
    )
    def begin(self, page_size: int, log_size: int, queue_size: int, by_columns: bool = False) -> None:
        # A long tail hardly survives a crash by chance. A short one does, so that each mark has to be true by itself.
        self.short = mock.patch("rocketlet.store.flush_marks._TAIL", 8)
        self.short.start()
        if by_columns:  # as logs of ordinary size are walked
            self.large = mock.patch.multiple("rocketlet.store.log_walk", _SMALL_LOG=0, _MANY=1)
            self.large.start()
        config = small_config(
            mapped_file_size_commit_log=log_size,
            mapped_file_size_consume_queue=queue_size,
            max_message_size=log_size // 3,
        )
        self.model = StoreModel(config, page_size)

    @rule(messages=st.lists(MESSAGES, min_size=1, max_size=8), settle=st.sampled_from([True, True, False]))
    def put(self, messages: list, settle: bool) -> None:
        for one in messages:
            self.model.put(one)
        if settle:
            self.model.store.settle()

    @rule(messages=st.lists(PLAIN, min_size=2, max_size=4))
    def put_batch(self, messages: list) -> None:
        self.model.put(*messages)
        self.model.store.settle()

    @rule(
        topic=TOPICS,
        places=st.lists(st.tuples(st.integers(0, 1), BODIES), min_size=1, max_size=8),
        first=st.integers(0, 9),
        tags=TAGS,
        settle=st.booleans(),
    )
    def put_alike(self, topic: str, places: list, first: int, tags: bytes, settle: bool) -> None:
        self.model.put_alike(
            [
                message(topic, queue_id, body, (b"%02d" % (first + number), b"order-1"), tags)
                for number, (queue_id, body) in enumerate(places)
            ]
        )
        if settle:
            self.model.store.settle()

    @rule(inside=st.integers(1, 2), queue_id=st.integers(0, 1))
    def put_ending_right_after_a_page(self, inside: int, queue_id: int) -> None:
        """The last page of a record without properties holds only its final zeros."""
        self.model.put_ending_at("TopicA", queue_id, inside)
        self.model.store.settle()

    @rule()
    def settle(self) -> None:
        self.model.store.settle()
        self.model.store.log.make_room_ahead()

    @rule()
    def flush(self) -> None:
        self.model.run(self.model.store._log_flush.flush_once)
        self.model.note_flushed()

    @rule(seed=SEEDS, after=st.integers(0, 12))
    def cut_the_power_while_saving(self, seed: int, after: int) -> None:
        self.model.store.settle()
        self.model.disk.power_cut_in = after
        try:
            self.model.run(self.save)
        except PowerCut:
            self.model.crash_and_open(Random(seed))
        self.model.disk.power_cut_in = None

    async def save(self) -> None:
        await self.model.store._log_flush.flush_once()
        await self.model.store._thorough.save()

    @rule()
    def flush_thoroughly(self) -> None:
        self.model.store.settle()
        self.model.run(self.save)
        self.model.note_flushed()

    @rule()
    def flush_queues(self) -> None:
        queues = self.model.store.queues.flush_of_dirty(0)
        for _ in queues.gather():
            pass
        queues.run()
        queues.done()

    @may_end
    @rule(seed=SEEDS, cuts=st.lists(st.integers(0, 40), max_size=3).map(tuple))
    def crash(self, seed: int, cuts: tuple[int, ...]) -> None:
        self.model.crash_and_open(Random(seed), cuts)

    @rule(seed=SEEDS)
    def fail_a_flush(self, seed: int) -> None:
        """The disk refuses once, and then reports success without having written: that must not be trusted."""
        self.model.store.settle()
        self.model.disk.fail_next_flush = True
        for _ in range(2):
            try:
                self.model.run(self.save)
            except FlushFailed:
                self.model.crash_and_open(Random(seed))
        self.model.disk.fail_next_flush = False

    @rule()
    def fail_a_rename(self) -> None:
        """A progress point that cannot be written shortens no log."""
        self.model.store.settle()
        self.model.disk.fail_next_rename = True
        self.model.run(self.save)
        self.model.disk.fail_next_rename = False
        self.model.note_flushed()

    @rule(seed=SEEDS, after=st.one_of(st.none(), st.integers(0, 6)))
    def retain(self, seed: int, after: int | None) -> None:
        self.model.disk.power_cut_in = after
        try:
            self.model.retain()
        except PowerCut:
            self.model.begin_seen = max(self.model.begin_seen, self.model.store.log.begin)
            self.model.crash_and_open(Random(seed))
        self.model.disk.power_cut_in = None

    @may_end
    @rule()
    def kill(self) -> None:
        self.model.kill()
        report = self.model.open()
        assert not report.cut_bytes

    @may_end
    @rule()
    def restart(self) -> None:
        self.model.close()
        report = self.model.open()
        assert report.was_clean
        assert not report.records, "a clean restart looked at the log again"
        assert not report.changed

    @invariant()
    def reads_what_was_put(self) -> None:
        """At every fourth step: to look keys up makes the store enter them, and crashes shall come before that too."""
        self.steps = getattr(self, "steps", 0) + 1
        if self.steps % 4 == 0 and not self.model.is_checked and not self.model.store._dispatch.noted:
            self.model.verify()

    def teardown(self) -> None:
        global crashes
        for name in ("short", "large"):
            if hasattr(self, name):
                getattr(self, name).stop()
        crashes += self.model.crashes if hasattr(self, "model") else 0


class TestCrashes(Crashes.TestCase):  # type: ignore[name-defined,misc]
    settings = settings(max_examples=examples(20), stateful_step_count=25)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(5))
def test_ten_thousand_crashes(part: int) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    before = crashes
    while crashes - before < 2_000:
        run_state_machine_as_test(
            Crashes,
            settings=settings(
                max_examples=40, stateful_step_count=60, deadline=None, derandomize=False, database=None,
                suppress_health_check=list(HealthCheck), phases=(Phase.generate, Phase.shrink),
            ),
        )  # fmt: skip
