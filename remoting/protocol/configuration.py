"""Topics and groups as configured: their bodies, their version, and the requests that change and list them (17, 21,
200, 201, 207, 215; 25 and 26, 318 and 319 whose bodies are properties text).

Defaults are those of an automatically created topic or group.

Java: common/TopicConfig.java, common/subscription/SubscriptionGroupConfig.java, common/DataVersion.java,
common/protocol/body/TopicConfigSerializeWrapper.java, SubscriptionGroupWrapper.java,
common/protocol/header/CreateTopicRequestHeader.java
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType, field

from rocketlet.remoting.protocol.body import Body
from rocketlet.remoting.protocol.header import Header, Int, Long

SINGLE_TAG = "SINGLE_TAG"
MULTI_TAG = "MULTI_TAG"
FILTER_TYPES = (SINGLE_TAG, MULTI_TAG)

# Bytes of a request to change settings (25, 318). All settings with their values are 10 KB.
LONGEST_UPDATE = 32 << 10
# Of one that is about a single group, mode or version. It is read twice more where changes are audited.
LONGEST_ENTRY = 16 << 10

# Bits of topicSysFlag.
UNIT = 1
UNIT_SUBSCRIPTION = 2


class DataVersion(Body):
    """The version of a table; versions are equal only if all fields are. `stateVersion` comes from 5.x."""

    counter: Long = 0
    timestamp: Long = 0
    stateVersion: Long | UnsetType = UNSET


class TopicConfig(Body):
    """One topic at one broker. `perm`: 4 read, 2 write, 1 inherit."""

    order: bool = False
    perm: Int = 6
    readQueueNums: Int = 8
    topicFilterType: str = SINGLE_TAG
    topicName: str = ""
    topicSysFlag: Int = 0
    writeQueueNums: Int = 8
    attributes: dict[str, str] | UnsetType = UNSET
    """Of 5.x, where a topic has any: `common/topic_attributes.py`."""


class TopicConfigTable(Body):
    """The answer to 21, and config/topics.json."""

    dataVersion: DataVersion = field(default_factory=DataVersion)
    topicConfigTable: dict[str, TopicConfig] = field(default_factory=dict)


class ExponentialRetryPolicy(Body):
    """Times in ms."""

    initial: Long = 5_000
    max: Long = 7_200_000
    multiplier: Long = 2


class CustomizedRetryPolicy(Body):
    """`next`: ms from each delivery to the next."""

    next: list[Long] = field(default_factory=list)


class GroupRetryPolicy(Body):
    """When a failed message is redelivered; EXPONENTIAL or CUSTOMIZED. Clients of 5.x follow it."""

    type: str = "CUSTOMIZED"
    exponentialRetryPolicy: ExponentialRetryPolicy | UnsetType = UNSET
    customizedRetryPolicy: CustomizedRetryPolicy | UnsetType = UNSET


class SubscriptionGroupConfig(Body):
    """One consumer group: the body of 200, and the answer to 352. What is UNSET here is of 5.x."""

    brokerId: Long = 0
    consumeBroadcastEnable: bool = True
    consumeEnable: bool = True
    consumeFromMinEnable: bool = True
    groupName: str = ""
    notifyConsumerIdsChangedEnable: bool = True
    retryMaxTimes: Int = 16
    retryQueueNums: Int = 1
    whichBrokerWhenConsumeSlowly: Long = 1
    consumeMessageOrderly: bool | UnsetType = UNSET
    groupRetryPolicy: GroupRetryPolicy | UnsetType = UNSET
    # Kept for a broker of 5.x that reads the table; they decide nothing here.
    groupSysFlag: Int | UnsetType = UNSET
    consumeTimeoutMinute: Int | UnsetType = UNSET
    subscriptionDataSet: list[dict[str, Any]] | UnsetType = UNSET
    attributes: dict[str, str] | UnsetType = UNSET

    @property
    def is_orderly(self) -> bool:
        """Whether 5.x clients consume its messages in order."""
        return self.consumeMessageOrderly is True


class SubscriptionGroupTable(Body):
    """The answer to 201, and config/subscriptionGroup.json."""

    dataVersion: DataVersion = field(default_factory=DataVersion)
    subscriptionGroupTable: dict[str, SubscriptionGroupConfig] = field(default_factory=dict)
    forbiddenTable: dict[str, Any] | UnsetType = UNSET
    """Of 5.x: by group and topic, bits of what is forbidden. Kept, as those of a group."""


class CreateTopicHeader(Header):
    """17. Go sends `defaultTopic` as the word defaultTopic; it is ignored. 4.x ignores `order`."""

    topic: str = ""
    defaultTopic: str = "TBW102"
    readQueueNums: Int = 8
    writeQueueNums: Int = 8
    perm: Int = 6
    topicFilterType: str = SINGLE_TAG
    topicSysFlag: Int = 0
    order: bool = False
    attributes: str = ""
    """What changes of the attributes, as `+message.type=FIFO`."""


class GetTopicConfigHeader(Header):
    """351, of 5.x. The answer is a TopicConfig."""

    topic: str = ""
    bname: str | None = None


class GetSubscriptionGroupConfigHeader(Header):
    """352, of 5.x. The answer is a SubscriptionGroupConfig."""

    group: str = ""
    bname: str | None = None


class DeleteTopicHeader(Header):
    """215."""

    topic: str = ""


class DeleteSubscriptionGroupHeader(Header):
    """207; 5.x uses `cleanOffset` instead of `removeOffset`."""

    groupName: str = ""
    removeOffset: bool = False
    cleanOffset: bool | None = None


class BrokerConfigAnswerHeader(Header):
    """The answer to 26: `version` is a DataVersion as JSON; the body is the properties text."""

    version: str = ""
