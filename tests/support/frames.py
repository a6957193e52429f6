"""The recorded frames of a running RocketMQ 4.9.8, and which headers and bodies belong to each code."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from rocketlet.remoting.protocol import (
    access,
    configuration,
    inspection,
    kv,
    membership,
    offsets,
    pulling,
    registration,
    routing,
    sending,
    transactions,
)
from rocketlet.remoting.protocol.body import Body
from rocketlet.remoting.protocol.header import Header

_VECTORS = Path(__file__).parents[1] / "vectors" / "frames"


@dataclass(frozen=True)
class Recorded:
    """One line of a recording. `asked`: the code of this request, or of the request that this answers."""

    place: str
    data: bytes
    code: int
    asked: int | None
    is_response: bool
    binary: bool
    header: dict[str, Any]
    line: dict[str, Any]

    @property
    def ext(self) -> dict[str, str]:
        return self.header.get("extFields") or {}

    @property
    def body(self) -> bytes:
        return self.data[8 + int.from_bytes(self.data[5:8], "big") :]


@lru_cache(1)
def recorded() -> tuple[Recorded, ...]:
    """Every recorded frame: about 3,000."""
    return tuple(_read())


def _read() -> Iterator[Recorded]:
    for path in sorted(_VECTORS.rglob("*.jsonl")):
        for line in path.read_text("utf-8").splitlines():
            frame = json.loads(line)
            request = frame.get("request")
            asked = (request["code"] if request else None) if frame["response"] else frame["code"]
            yield Recorded(
                f"{path.relative_to(_VECTORS)}:{frame['seq']}",
                base64.b64decode(frame["b64"]),
                frame["code"],
                asked,
                frame["response"],
                frame["serialize"] == "ROCKETMQ",
                frame["header"],
                frame,
            )


# Fields that any request may have and that no typed header knows.
ANYWHERE = {"ReqT", "AccessKey", "Signature", "SecurityToken", "OnsChannel", "bname", "unknownField", "x"}

REQUEST_HEADERS: dict[int, type[Header]] = {
    10: sending.SendMessageHeader,
    11: pulling.PullMessageHeader,
    12: pulling.QueryMessageHeader,
    14: offsets.QueryConsumerOffsetHeader,
    15: offsets.UpdateConsumerOffsetHeader,
    17: configuration.CreateTopicHeader,
    29: offsets.SearchOffsetHeader,
    30: offsets.QueueHeader,
    31: offsets.QueueHeader,
    32: offsets.QueueHeader,
    33: pulling.ViewMessageHeader,
    35: membership.UnregisterClientHeader,
    36: sending.ConsumerSendMsgBackHeader,
    37: transactions.EndTransactionHeader,
    38: membership.GetConsumerListHeader,
    39: transactions.CheckTransactionStateHeader,
    40: membership.NotifyConsumerIdsChangedHeader,
    50: access.UpdateAclConfigHeader,
    51: access.DeleteAclConfigHeader,
    53: access.UpdateGlobalWhiteAddrsHeader,
    100: kv.PutKVConfigHeader,
    101: kv.KVConfigHeader,
    102: kv.KVConfigHeader,
    103: registration.RegisterBrokerHeader,
    104: registration.UnregisterBrokerHeader,
    105: routing.GetRouteInfoHeader,
    202: inspection.TopicHeader,
    203: inspection.ConsumerGroupHeader,
    204: inspection.ProducerGroupHeader,
    205: routing.WritePermHeader,
    207: configuration.DeleteSubscriptionGroupHeader,
    208: inspection.GetConsumeStatsHeader,
    215: configuration.DeleteTopicHeader,
    216: routing.DeleteTopicInNamesrvHeader,
    219: kv.KVNamespaceHeader,
    220: offsets.ResetOffsetHeader,
    221: offsets.ConsumerStatusHeader,
    222: offsets.ResetOffsetHeader,
    223: offsets.ConsumerStatusHeader,
    224: routing.GetTopicsByClusterHeader,
    300: inspection.TopicHeader,
    303: inspection.QueryConsumeTimeSpanHeader,
    307: inspection.GetConsumerRunningInfoHeader,
    308: offsets.QueryCorrectionOffsetHeader,
    309: inspection.ConsumeMessageDirectlyHeader,
    310: sending.SendMessageHeaderV2,
    314: offsets.CloneGroupOffsetHeader,
    315: inspection.ViewBrokerStatsHeader,
    317: inspection.GetBrokerConsumeStatsHeader,
    320: sending.SendMessageHeaderV2,
    321: inspection.QueryConsumeQueueHeader,
    322: registration.QueryDataVersionHeader,
    323: transactions.ResumeCheckHalfMessageHeader,
    324: sending.SendMessageHeader,
    325: sending.SendMessageHeaderV2,
    326: sending.PushReplyMessageHeader,
    327: routing.WritePermHeader,
}

ANSWER_HEADERS: dict[int, type[Header]] = {
    **dict.fromkeys((10, 310, 320, 324, 325), sending.SendMessageAnswerHeader),
    11: pulling.PullMessageAnswerHeader,
    12: pulling.QueryMessageAnswerHeader,
    **dict.fromkeys((14, 29, 30, 31), offsets.OffsetAnswerHeader),
    26: configuration.BrokerConfigAnswerHeader,
    32: offsets.TimestampAnswerHeader,
    52: access.AclInfoAnswerHeader,
    101: kv.KVConfigAnswerHeader,
    103: registration.RegisterBrokerAnswerHeader,
    205: routing.WipeWritePermAnswerHeader,
    322: registration.QueryDataVersionAnswerHeader,
    327: routing.AddWritePermAnswerHeader,
}

REQUEST_BODIES: dict[int, type[Body]] = {
    34: membership.HeartbeatData,
    41: membership.LockBatchBody,
    42: membership.LockBatchBody,
    46: membership.CheckClientBody,
    103: registration.RegisterBrokerBody,
    200: configuration.SubscriptionGroupConfig,
    220: offsets.ResetOffsetBody,
    322: configuration.DataVersion,
}

ANSWER_BODIES: dict[int, type[Body]] = {
    21: configuration.TopicConfigTable,
    28: kv.KVTable,
    38: membership.ConsumerListBody,
    41: membership.LockBatchAnswerBody,
    43: offsets.ConsumerOffsetTable,
    45: offsets.DelayOffsetTable,
    103: kv.KVTable,
    105: routing.TopicRouteData,
    106: routing.ClusterInfo,
    201: configuration.SubscriptionGroupTable,
    202: inspection.TopicStatsTable,
    203: inspection.ConsumerConnection,
    204: inspection.ProducerConnection,
    206: routing.TopicList,
    208: inspection.ConsumeStats,
    219: kv.KVTable,
    221: offsets.ConsumerStatusBody,
    222: offsets.ResetOffsetBody,
    223: offsets.ConsumerStatusBody,
    224: routing.TopicList,
    300: inspection.GroupList,
    303: inspection.ConsumeTimeSpanBody,
    304: routing.TopicList,
    305: routing.TopicList,
    307: inspection.ConsumerRunningInfo,
    308: offsets.CorrectionOffsetBody,
    309: inspection.ConsumeMessageDirectlyBody,
    311: routing.TopicList,
    312: routing.TopicList,
    313: routing.TopicList,
    315: inspection.BrokerStatsData,
    317: inspection.ConsumeStatsList,
    321: inspection.ConsumeQueueBody,
    322: configuration.DataVersion,
    328: inspection.ProducerTableInfo,
}
