"""mqadmin: pop and delayed messages. setConsumeMode inFlight delayedMessages.

The last two work only with our brokers.

Java: tools/command/consumer/SetConsumeModeSubCommand.java
"""

from __future__ import annotations

from collections.abc import Iterable

import click

from rocketlet.remoting.protocol.popping import (
    MODES,
    InFlightHeader,
    InFlightTable,
    RequestMode,
)
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.tools.admin.calls import Admin
from rocketlet.tools.admin.command import (
    BROKER,
    CLUSTER,
    GROUP,
    TOPIC,
    AdminError,
    Result,
    Said,
    Table,
    addresses_chosen,
    brokers_chosen,
    command,
    one_of,
    wire_time,
)

IN_FLIGHT = {
    "topic": "#Topic",
    "group": "#Group",
    "broker": "#Broker",
    "queue": "#QID",
    "invisible": "#Invisible",
    "due": "#Due",
    "held": "#Held",
    "next": "#Next",
    "waiting": "#Waiting",
}
DELAYED = {
    "broker": "#Broker",
    "pending": "#Pending",
    "next": "#Next",
    "delivered": "#Delivered",
    "recalled": "#Recalled",
    "skipped": "#Skipped",
    "late": "#Late",
}


@command("setConsumeMode")
@BROKER
@CLUSTER
@TOPIC
@GROUP
@click.option("-m", "--mode", type=click.Choice(MODES), required=True, help="How its members take messages.")
@click.option(
    "-q",
    "--popShareQueueNum",
    "share",
    type=int,
    default=0,
    show_default=True,
    help="With POP, how many other members' queues a member pops from besides its own; 0: all.",
)
async def set_consume_mode(
    calls: Admin, broker: str | None, cluster: str | None, topic: str, group: str, mode: str, share: int
) -> Result:
    """Have 5.x push consumers of a group pull or pop a topic, if they let the broker decide."""
    one_of(broker, cluster)
    body = RequestMode(topic, group, mode, share)
    lines = []
    brokers = await addresses_chosen(calls, broker, cluster)
    await _check_known(calls, brokers, topic, group)
    for address in brokers:
        await calls.ask(address, RequestCode.SET_MESSAGE_REQUEST_MODE, body=body.to_json())
        lines.append(f"set consume mode to {address} success.")
    lines.append(f"topic[{topic}] group[{group}] consume mode[{mode}] popShareQueueNum[{share}]")
    return Said(lines, body.builtins())


@command("inFlight")
@BROKER
@CLUSTER
@click.option("-t", "--topic", default="", metavar="TOPIC", help="Of this topic alone.")
@click.option("-g", "--groupName", "group", default="", metavar="GROUP", help="Of this group alone.")
async def in_flight(calls: Admin, broker: str | None, cluster: str | None, topic: str, group: str) -> Result:
    """Show popped messages that are not acknowledged: with a consumer (invisible), to come again (due), or held back
    for another of their message group; the offset that is popped next, and how many pops wait."""
    one_of(broker, cluster)
    rows = []
    brokers = await brokers_chosen(calls, broker, cluster)
    await _check_known(calls, brokers.values(), topic, group)
    for name, address in brokers.items():
        table = await _ask_broker(calls, address, topic, group)
        rows += [
            {
                "topic": entry.topic, "group": entry.group, "broker": name, "queue": entry.queueId,
                "invisible": entry.invisible, "due": entry.due, "held": entry.held, "next": entry.nextOffset,
                "waiting": entry.waiting,
            }
            for entry in sorted(table.queues, key=lambda entry: (entry.topic, entry.group, entry.queueId))
        ]  # fmt: skip
    return Table(IN_FLIGHT, rows)


@command("delayedMessages")
@BROKER
@CLUSTER
async def delayed_messages(calls: Admin, broker: str | None, cluster: str | None) -> Result:
    """Show how many messages wait for their moment at each broker, when the next one is due, and how late those since
    the start were, on average."""
    one_of(broker, cluster)
    rows = []
    for name, address in (await brokers_chosen(calls, broker, cluster)).items():
        timers = (await _ask_broker(calls, address, "", "")).timers
        rows.append({
            "broker": name, "pending": timers.pending,
            "next": wire_time(timers.nextDue) if timers.pending else "-",
            "delivered": timers.delivered, "recalled": timers.recalled, "skipped": timers.skipped,
            "late": f"{timers.lateMs / timers.delivered:.1f} ms" if timers.delivered else "-",
        })  # fmt: skip
    return Table(DELAYED, rows)


async def _check_known(calls: Admin, brokers: Iterable[str], topic: str, group: str) -> None:
    """Raise AdminError for a name that none of these brokers knows; an empty one is none."""
    addresses = list(brokers)
    if topic and not any([await calls.broker_knows_topic(address, topic) for address in addresses]):
        raise AdminError(f"no broker that was asked has topic {topic}; topicList lists those there are")
    if group and not any([await calls.broker_knows_group(address, group) for address in addresses]):
        raise AdminError(f"no broker that was asked knows consumer group {group}; updateSubGroup makes one")


async def _ask_broker(calls: Admin, address: str, topic: str, group: str) -> InFlightTable:
    answer = await calls.ask(address, RequestCode.SHOW_IN_FLIGHT, InFlightHeader(topic, group))
    return InFlightTable.from_json(answer.body)
