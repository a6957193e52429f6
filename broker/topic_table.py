"""The topics of this broker: their queues and permissions.

Topics have four sources: the broker's own at start, an administrator (17), a first send that creates its topic from the
template TBW102, and the retry and dead-letter topics of groups. A `Topic` also holds what the send path needs, so that
one dictionary lookup is enough. Pure except for its log; changes are written (`topics.json`) and registered through
`on_change`.

Invariants: a name in the table is legal, so it may become part of a path; `version` grows with every change; a Topic is
replaced, never changed, except that `order` follows the name server.

Java: broker/topic/TopicConfigManager.java, common/TopicConfig.java
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from rocketlet.broker.config import BrokerConfig, Settings
from rocketlet.broker.statistics import Flow, Statistics
from rocketlet.common import topic as names
from rocketlet.common.errors import RocketletError
from rocketlet.common.json_pieces import object_pieces
from rocketlet.common.message_flags import MULTI_TAGS
from rocketlet.common.topic import PERM_INHERIT, PERM_READ, PERM_WRITE
from rocketlet.remoting.protocol.body import without_nulls
from rocketlet.remoting.protocol.configuration import (
    FILTER_TYPES,
    MULTI_TAG,
    SINGLE_TAG,
    UNIT,
    DataVersion,
    TopicConfig,
    TopicConfigTable,
)

log = logging.getLogger("rocketlet.broker.topic_table")

READ_WRITE = PERM_READ | PERM_WRITE
DELAY_QUEUES = 18
# Sends create topics, so a peer could create them without end; each costs files too.
MAX_TOPICS = 100_000


class TableFull(RocketletError):
    """A topic or group more than a broker may have, or one that is larger than it may be."""


class Topic:
    """One topic. `queues` is the number of legal queue ids, `plain` is false if its sends need checks.

    `saved` is false while a topic that was created on demand may not be on disk yet: until then its sends are not
    answered.
    """

    __slots__ = (
        "attributes",
        "filter_type",
        "flows",
        "message_flags",
        "name",
        "order",
        "perm",
        "plain",
        "queues",
        "read",
        "saved",
        "sys_flag",
        "write",
    )

    def __init__(
        self,
        name: str,
        read: int,
        write: int,
        perm: int = READ_WRITE,
        *,
        sys_flag: int = 0,
        order: bool = False,
        filter_type: str = SINGLE_TAG,
        attributes: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.read = read
        self.write = write
        self.perm = perm
        self.sys_flag = sys_flag
        self.order = order
        self.filter_type = filter_type
        self.attributes = dict(attributes or {})
        self.queues = max(read, write)
        self.message_flags = MULTI_TAGS if filter_type == MULTI_TAG else 0  # in the sysFlag of all its messages
        self.flows: dict[int, Flow] = {}
        self.saved = True
        self.plain = self._is_plain()

    @property
    def readable(self) -> bool:
        return bool(self.perm & PERM_READ)

    @property
    def writable(self) -> bool:
        return bool(self.perm & PERM_WRITE)

    def flow_into(self, queue_id: int, statistics: Statistics) -> Flow:
        """What is put into a queue, looked up once."""
        flow = self.flows.get(queue_id)
        if flow is None:
            flow = self.flows[queue_id] = statistics.put_flow(self.name, queue_id)
        return flow

    def set_saved(self, saved: bool) -> None:
        self.saved = saved
        self.plain = saved and self._is_plain()

    def _is_plain(self) -> bool:
        special = self.name in names.NOT_SENDABLE or self.name.startswith(names.RETRY_PREFIX)
        return not special

    def to_config(self, mask: int = -1) -> TopicConfig:
        """The form in files and registrations; a read-only broker masks the permission."""
        return TopicConfig(
            order=self.order,
            perm=self.perm & mask,
            readQueueNums=self.read,
            topicFilterType=self.filter_type,
            topicName=self.name,
            topicSysFlag=self.sys_flag,
            writeQueueNums=self.write,
            attributes=self.attributes or UNSET,
        )

    def __repr__(self) -> str:
        return f"<Topic {self.name}: {self.read} read and {self.write} write queues, perm {self.perm}>"


class TopicTable:
    """Every topic of one broker."""

    def __init__(self, settings: Settings, clock: Callable[[], int], on_change: Callable[[], None]) -> None:
        self._settings = settings
        self._clock = clock
        self._on_change = on_change
        self._topics: dict[str, Topic] = {}
        self.version = DataVersion(0, clock())
        # The send path's lookup: one bound method, no indirection.
        self.get: Callable[[str], Topic | None] = self._topics.get

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._topics.values())

    def __len__(self) -> int:
        return len(self._topics)

    def create_on_send(self, name: str, template: str, queues: int, *, unit: bool, peer: str) -> Topic | None:
        """The topic of a first send, from its template, or None if the template does not allow it."""
        model = self._topics.get(template)
        if model is None or not model.perm & PERM_INHERIT:
            return None
        if template == names.DEFAULT_TOPIC and not self._settings.now.auto_create_topic_enable:
            return None
        count = min(queues, model.write)
        if count <= 0:
            return None
        topic = Topic(name, count, count, model.perm & ~PERM_INHERIT, sys_flag=UNIT if unit else 0)
        topic.set_saved(False)
        return topic if self._create(topic, f"by a send from {peer}, after {template}") else None

    def create(self, name: str, queues: int, *, sys_flag: int = 0, reason: str) -> Topic | None:
        """The topic of that name, created if missing: for topics that the broker needs, such as retry topics.

        None if the table is full or the name is illegal.
        """
        present = self._topics.get(name)
        if present is not None:
            return present
        topic = Topic(name, queues, queues, sys_flag=sys_flag)
        topic.set_saved(False)
        return topic if self._create(topic, reason) else None

    def update(self, topic: Topic) -> None:
        """Create or replace a topic for an administrator. Requires: a checked name. Raises TableFull."""
        old = self._topics.get(topic.name)
        if old is None and len(self._topics) >= MAX_TOPICS:
            raise TableFull(f"this broker has {len(self._topics)} topics, and may have {MAX_TOPICS}: delete some first")
        if old is not None:
            topic.flows = old.flows
            topic.order = old.order
        self._topics[topic.name] = topic
        log.info("topic %s %s by an administrator: %r", topic.name, "updated" if old else "created", topic)
        self._changed()

    def delete(self, name: str) -> bool:
        """True if it existed."""
        if self._topics.pop(name, None) is None:
            return False
        log.info("topic %s deleted", name)
        self._changed()
        return True

    def follow(self, topics: Iterable[Topic], removed: Iterable[str], version: DataVersion) -> None:
        """Adopt the master's topics, and its version of the table. Requires: checked names."""
        for topic in topics:
            old = self._topics.get(topic.name)
            if old is not None:
                topic.flows = old.flows
            self._topics[topic.name] = topic
        for name in removed:
            if self._topics.pop(name, None) is not None:
                log.info("topic %s was deleted at the master", name)
        self.version = version
        self._on_change()

    def renew(self) -> None:
        """A new version of the same topics, because their registered form has changed."""
        self._changed()

    def follow_order(self, ordered: Iterable[str]) -> None:
        """Adopt the name server's list of ordered topics."""
        ordered = set(ordered)
        changed = False
        for topic in self._topics.values():
            if topic.order != (topic.name in ordered):
                topic.order = not topic.order
                changed = True
                log.info("topic %s is %s an ordered one", topic.name, "now" if topic.order else "no longer")
        if changed:
            self._changed()

    def to_body(self, mask: int = -1) -> TopicConfigTable:
        """All of it, as the answer to request 21 has it."""
        topics = self._topics.values()
        return TopicConfigTable(self.version, {topic.name: topic.to_config(mask) for topic in topics})

    def pieces(self, mask: int = -1, separator: bytes = b",") -> Iterator[bytes]:
        """The JSON of `to_body`, also of topics.json. A topic created between two pieces is in the next text, which its
        change requests."""
        yield b'{"dataVersion":%b,"topicConfigTable":' % msgspec.json.encode(self.version)
        rows = ((topic.name, topic.to_config(mask)) for topic in list(self._topics.values()))
        yield from object_pieces((row for row in rows if row[0] in self._topics), separator)
        yield b"}"

    def load(self, body: Any) -> None:
        """Load topics.json; invalid entries are logged and skipped."""
        if not isinstance(body, dict):
            return
        table = body.get("topicConfigTable")
        for name, fields in (table if isinstance(table, dict) else {}).items():
            try:
                topic = read_topic(name, fields)
            except (msgspec.ValidationError, names.InvalidName) as error:
                log.warning("topic %r of the topic table is left out: %s", name, error)
                continue
            self._topics[topic.name] = topic
        self.version = read_version(body) or self.version

    def create_own(self, broker_name: str) -> None:
        """The topics that every broker has; existing ones stay as they are."""
        for topic in own_topics(self._settings.now, broker_name):
            # The names of a broker and of a cluster may contain a dot, a topic's may not; no client can send to such a
            # topic anyway.
            if topic.name not in self._topics and names.is_legal_name(topic.name):
                self._topics[topic.name] = topic
                self._changed()

    def system_topics(self, broker_name: str) -> list[str]:
        """The answer to request 305: the reserved names, existing or not, and the broker's own."""
        cluster = self._settings.now.broker_cluster_name
        return sorted(names.SYSTEM_TOPICS | {cluster, broker_name, names.reply_topic(cluster)})

    def _create(self, topic: Topic, reason: str) -> bool:
        if not names.is_topic_name(topic.name):
            return False
        if len(self._topics) >= MAX_TOPICS:
            log.error("topic %s is not created %s: there are %d already", topic.name, reason, MAX_TOPICS)
            return False
        self._topics[topic.name] = topic
        log.info("topic %s created %s: %d queues", topic.name, reason, topic.write)
        self._changed()
        return True

    def _changed(self) -> None:
        self.version = DataVersion(self.version.counter + 1, self._clock())
        self._on_change()

    def __repr__(self) -> str:
        return f"<TopicTable: {len(self._topics)} topics, version {self.version.counter}>"


def own_topics(config: BrokerConfig, broker_name: str) -> list[Topic]:
    """What a broker creates at its start."""
    inherited = READ_WRITE | PERM_INHERIT
    topics = [
        Topic(names.SELF_TEST_TOPIC, 1, 1),
        Topic(names.BENCHMARK_TOPIC, 1024, 1024),
        Topic(config.broker_cluster_name, 16, 16, inherited if config.cluster_topic_enable else PERM_INHERIT),
        Topic(broker_name, 1, 1, inherited if config.broker_topic_enable else PERM_INHERIT),
        Topic(names.OFFSET_MOVED_EVENT, 1, 1),
        Topic(names.SCHEDULE_TOPIC, DELAY_QUEUES, DELAY_QUEUES),
        Topic(names.HALF_TOPIC, 1, 1),
        Topic(names.reply_topic(config.broker_cluster_name), 1, 1),
    ]
    if config.auto_create_topic_enable:
        queues = config.default_topic_queue_nums
        topics.append(Topic(names.DEFAULT_TOPIC, queues, queues, inherited))
    if config.trace_topic_enable:
        topics.append(Topic(config.msg_trace_topic_name, 1, 1))
    return topics


def read_topic(name: str, fields: Any) -> Topic:
    """A topic from a file. Raises ValidationError or InvalidName."""
    config = msgspec.convert(without_nulls(fields), TopicConfig, strict=False)
    config.topicName = config.topicName or name
    names.check_topic_name(config.topicName)
    if config.readQueueNums < 0 or config.writeQueueNums < 0 or config.topicFilterType not in FILTER_TYPES:
        raise msgspec.ValidationError(
            f"{config.readQueueNums} read queues, {config.writeQueueNums} write queues, filter"
            f" type {config.topicFilterType}"
        )
    return topic_of(config)


def topic_of(config: TopicConfig) -> Topic:
    """Requires: a checked name, valid numbers."""
    return Topic(
        config.topicName,
        config.readQueueNums,
        config.writeQueueNums,
        config.perm,
        sys_flag=config.topicSysFlag,
        order=config.order,
        filter_type=config.topicFilterType,
        attributes=config.attributes or None,
    )


def read_version(body: dict[str, Any]) -> DataVersion | None:
    """The version in a table's file; None if there is no valid one."""
    try:
        return msgspec.convert(body.get("dataVersion"), DataVersion, strict=False)
    except msgspec.ValidationError:
        return None
