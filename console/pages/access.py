"""Access control: whether each broker asks for accounts, its version of them, and changes to accounts.

RocketMQ 4.9.8 tells nobody what its accounts are, for that told their secrets; so they are written here, not read.

Java: rocketmq-dashboard's controller/AclController.java
"""

from __future__ import annotations

from starlette.responses import Response

from rocketlet.common.errors import RocketletError
from rocketlet.console.cluster import Broker, each
from rocketlet.console.web import View
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.tools.admin import settings as settings_commands


async def access(view: View) -> Response:
    async def ask(broker: Broker) -> tuple[Broker, str, str]:
        try:
            settings = await settings_commands.settings_of(view.calls, broker.address, RequestCode.GET_BROKER_CONFIG)
        except RocketletError as error:
            return broker, "", str(error)
        return broker, settings.get("aclEnable", "false"), ""

    return view.page("access.html", rows=await each(await view.cluster.masters(), ask))
