"""Name servers and how the console reaches them; clusters side by side; current problems.

Java: rocketmq-dashboard's controller/OpsController.java, NamesvrController.java
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from starlette.responses import Response

from rocketlet.common.errors import RocketletError
from rocketlet.console.cluster import Broker, each
from rocketlet.console.pages.cluster import without_secrets
from rocketlet.console.trouble import troubles
from rocketlet.console.web import Refused, View
from rocketlet.remoting.protocol.routing import ClusterInfo
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.transport import split_address
from rocketlet.tools.admin import settings as settings_commands

MAX_NAMESRVS = 16


@dataclass(slots=True)
class ClusterRow:
    """One cluster, all its brokers together."""

    masters: int = 0
    slaves: int = 0
    tps_in: float = 0.0
    tps_out: float = 0.0
    versions: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class NamesrvRow:
    """One name server; `problem` where it does not answer."""

    address: str
    problem: str = ""
    brokers: int = 0
    settings: dict[str, str] = field(default_factory=dict)


async def ops(view: View) -> Response:
    brokers, groups = await view.cluster.brokers(), await view.cluster.groups()

    async def ask(address: str) -> NamesrvRow:
        try:
            answer = await view.calls.ask(address, RequestCode.GET_BROKER_CLUSTER_INFO)
            settings = await settings_commands.settings_of(view.calls, address, RequestCode.GET_NAMESRV_CONFIG)
        except RocketletError as error:
            return NamesrvRow(address, str(error))
        broker_count = len(ClusterInfo.from_json(answer.body).brokerAddrTable)
        return NamesrvRow(address, "", broker_count, without_secrets(settings))

    return view.page(
        "ops.html",
        namesrvs=await each(view.calls.namesrvs, ask),
        clusters=_side_by_side(brokers),
        troubles=troubles(brokers, groups.values(), view.console.clock(), view.t),
        config=view.console.config,
    )


def _side_by_side(brokers: Sequence[Broker]) -> dict[str, ClusterRow]:
    rows: dict[str, ClusterRow] = {}
    for broker in brokers:
        row = rows.setdefault(broker.cluster, ClusterRow())
        if broker.is_master:
            row.masters += 1
            row.tps_in += broker.tps_in
        else:
            row.slaves += 1
        row.tps_out += broker.tps_out
        if broker.version:
            row.versions.add(broker.version)
    return rows


async def use_namesrvs(view: View) -> Response:
    """Use other name servers from now on, until the console is restarted."""
    parts = view.form_value("namesrvs").replace(",", ";").split(";")
    addresses = list(dict.fromkeys(address.strip() for address in parts if address.strip()))
    if not 1 <= len(addresses) <= MAX_NAMESRVS:
        raise Refused(view.t("Write one to {most} addresses, host:port;host:port.").format(most=MAX_NAMESRVS))
    for address in addresses:
        try:
            split_address(address)
        except ValueError:
            raise Refused(view.t("{text} is no address; write host:port.").format(text=address)) from None

    async def do() -> str:
        for address in addresses:
            await view.calls.ask(address, RequestCode.GET_BROKER_CLUSTER_INFO)
        view.calls.use(addresses)
        return view.t("The console asks {names} now").format(names=";".join(addresses))

    return await view.change("useNamesrvs", {"namesrvs": addresses}, do, "/ops")
