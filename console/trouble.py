"""Current problems, as far as brokers and name servers report them: one line each, with a link.

Java: (none; rocketmq-dashboard's monitor compares the lag of groups that were entered by hand)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from urllib.parse import quote

from rocketlet.console.cluster import Broker, Group

DISK_FULL = 0.85
LONG_LAG_MS = 300_000


@dataclass(frozen=True, slots=True)
class Trouble:
    """`grave`: messages are refused or lost; other problems need attention."""

    text: str
    link: str
    grave: bool = False


def troubles(brokers: Iterable[Broker], groups: Iterable[Group], now: int, t: Callable[[str], str]) -> list[Trouble]:
    """All problems, grave ones first."""
    result = []
    for broker in brokers:
        link = f"/cluster/{quote(broker.name, safe='')}/{broker.number}"
        if broker.problem:
            text = t("Broker {name} does not answer: {why}").format(name=broker.name, why=broker.problem)
            result.append(Trouble(text, link, grave=True))
            continue
        for key in ("coordinatorTrouble", "failoverTrouble"):
            if reason := broker.table.get(key, ""):
                result.append(Trouble(f"{broker.name} {broker.table.get('replica', '')}: {reason}", link, grave=True))
        used = broker.number_of("commitLogDiskRatio")
        if used > DISK_FULL:
            text = t("The disk of {name} is {used} full").format(name=broker.name, used=f"{used:.0%}")
            result.append(Trouble(text, link, grave=used > 0.9))
    for group in groups:
        link = f"/consumers/{quote(group.name, safe='')}"
        consumed_until = group.consumed_until()
        if consumed_until and now - consumed_until > LONG_LAG_MS and group.lag() > 0:
            text = t("Group {name} lags: {count} messages").format(name=group.name, count=f"{group.lag():,}")
            result.append(Trouble(text, link))
    return sorted(result, key=lambda trouble: not trouble.grave)
