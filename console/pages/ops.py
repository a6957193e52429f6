"""Name servers and how the console reaches them; clusters side by side; what is wrong now.

Java: rocketmq-dashboard's controller/OpsController.java, NamesvrController.java
"""

from __future__ import annotations

from starlette.responses import Response

from rocketlet.common.errors import RocketletError
from rocketlet.console.trouble import troubles
from rocketlet.console.web import View
from rocketlet.remoting.protocol.routing import ClusterInfo
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.tools.admin import settings as settings_commands


async def ops(view: View) -> Response:
    namesrvs = []
    for address in view.calls.namesrvs:
        try:
            answer = await view.calls.ask(address, RequestCode.GET_BROKER_CLUSTER_INFO)
            info = ClusterInfo.from_json(answer.body)
            settings = await settings_commands.settings_of(view.calls, address, RequestCode.GET_NAMESRV_CONFIG)
            namesrvs.append((address, "", len(info.brokerAddrTable), settings))
        except RocketletError as error:
            namesrvs.append((address, str(error), 0, {}))
    brokers = await view.cluster.brokers()
    clusters: dict[str, list[int | float | set[str]]] = {}
    for broker in brokers:
        row = clusters.setdefault(broker.cluster, [0, 0, 0.0, 0.0, set()])
        row[0 if broker.is_master else 1] += 1  # type: ignore[operator]
        row[2] += broker.tps_in if broker.is_master else 0.0  # type: ignore[operator]
        row[3] += broker.tps_out  # type: ignore[operator]
        if broker.version:
            row[4].add(broker.version)  # type: ignore[union-attr]
    groups = await view.cluster.groups()
    return view.page(
        "ops.html",
        namesrvs=namesrvs,
        clusters=clusters,
        troubles=troubles(brokers, groups.values(), view.console.clock(), view.t),
        config=view.console.config,
    )
