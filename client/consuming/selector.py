"""What of a topic a consumer wants: a tag expression, or an SQL92 condition on the messages' properties.

Java: client/consumer/MessageSelector.java
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from rocketlet.client.errors import InvalidUse
from rocketlet.common import subscription as subscriptions
from rocketlet.common.subscription import Subscription


@dataclass(frozen=True, slots=True)
class Sql:
    """A condition that the broker evaluates on each message's properties.

    consumer.subscribe("orders", Sql("price > 100 AND region IN ('eu', 'us')"))
    """

    condition: str


Selection: TypeAlias = str | Sql


def subscription_of(topic: str, selection: Selection, version: int) -> Subscription:
    """The subscription of `*`, `TagA || TagB` or an Sql condition. Raises InvalidUse."""
    try:
        if isinstance(selection, Sql):
            return subscriptions.parse_expression(topic, selection.condition, subscriptions.SQL92, version)
        return subscriptions.parse_tags(topic, selection, version)
    except subscriptions.InvalidSubscription as error:
        raise InvalidUse(str(error), topic=topic) from None
