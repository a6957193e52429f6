"""Which messages of a topic a consumer selects: a tag expression, or an SQL92 condition on their properties.

Java: client/consumer/MessageSelector.java
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from rocketlet.client.errors import InvalidUse
from rocketlet.client.validators import check_name, check_text
from rocketlet.common import subscription as subscriptions
from rocketlet.common.subscription import Subscription


@dataclass(frozen=True, slots=True)
class Sql:
    """A condition that the broker evaluates on each message's properties.

    consumer.subscribe("orders", Sql("price > 100 AND region IN ('eu', 'us')"))
    """

    condition: str


Selection: TypeAlias = str | Sql


def check_selection(topic: str, selection: Selection) -> None:
    """Raises InvalidUse for a topic name or a selection that no broker accepts."""
    check_name(topic)
    subscription_of(topic, selection, 0)


def check_topics(topics: Mapping[str, Selection] | None) -> dict[str, Selection]:
    """A copy of the subscriptions that a consumer was given. Raises InvalidUse."""
    if not isinstance(topics, (Mapping, type(None))):
        raise InvalidUse(f"the topics are {topics!r}", advice="give a dict of topics to selections: {'orders': '*'}")
    for topic, selection in (topics or {}).items():
        check_selection(topic, selection)
    return dict(topics or {})


def subscription_of(topic: str, selection: Selection, version: int) -> Subscription:
    """The subscription of `*`, `TagA || TagB` or an Sql condition. Raises InvalidUse."""
    if not isinstance(selection, (str, Sql)):
        raise InvalidUse(
            f"the selection {selection!r} is neither tags nor an Sql condition",
            topic=topic,
            advice="give '*', 'TagA || TagB' or Sql('a > 1')",
        )
    check_text("selection", selection.condition if isinstance(selection, Sql) else selection)
    try:
        if isinstance(selection, Sql):
            return subscriptions.parse_expression(topic, selection.condition, subscriptions.SQL92, version)
        return subscriptions.parse_tags(topic, selection, version)
    except subscriptions.InvalidSubscription as error:
        raise InvalidUse(str(error), topic=topic) from None
