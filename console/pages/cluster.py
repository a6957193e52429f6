"""Brokers: versions, rates, disks; one broker in full, with its settings and its replicas.

Java: rocketmq-dashboard's controller/ClusterController.java
"""

from __future__ import annotations

from functools import cache

from starlette.responses import Response

from rocketlet.common.errors import RocketletError
from rocketlet.common.settings import settings_of
from rocketlet.console.cluster import Broker
from rocketlet.console.web import Refused, View
from rocketlet.remoting.protocol.replication import HARuntimeInfo
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.tools.admin import settings as settings_commands
from rocketlet.tools.admin.calls import MASTER, NoSuchBroker
from rocketlet.tools.admin.command import Said
from rocketlet.tools.admin.maintenance import add_write_perm, wipe_write_perm
from rocketlet.tools.admin.replicas import add_in_sync, promote_slave, remove_in_sync, switch_master

SECRET = "password", "secret", "token"
HIDDEN = "******"


async def brokers(view: View) -> Response:
    all_brokers = await view.cluster.brokers()
    return view.page("cluster.html", clusters=_by_cluster(all_brokers))


def _by_cluster(all_brokers: list[Broker]) -> dict[str, list[Broker]]:
    clusters: dict[str, list[Broker]] = {}
    for broker in all_brokers:
        clusters.setdefault(broker.cluster, []).append(broker)
    return clusters


async def broker(view: View) -> Response:
    target = await _broker(view)
    settings: dict[str, str] = {}
    problem = target.problem
    if not problem:
        try:
            settings = await settings_commands.settings_of(view.calls, target.address, RequestCode.GET_BROKER_CONFIG)
        except RocketletError as error:
            problem = str(error)
    filter_text, only_set = view.query_value("filter").lower(), view.query_value("only") == "set"
    defaults = _defaults()
    return view.page(
        "broker.html",
        broker=target,
        problem=problem,
        settings={
            key: value
            for key, value in sorted(without_secrets(settings).items())
            if filter_text in key.lower() and not (only_set and settings[key] == defaults.get(key, settings[key]))
        },
        filter=view.query_value("filter"),
        only_set=only_set,
        defaults=defaults,
        is_secret=_is_secret,
        replicas=await _replicas(view, target),
    )


def without_secrets(settings: dict[str, str]) -> dict[str, str]:
    """The settings, with secrets masked."""
    return {key: HIDDEN if value and _is_secret(key) else value for key, value in settings.items()}


def _is_secret(key: str) -> bool:
    return any(word in key.lower() for word in SECRET)


@cache
def _defaults() -> dict[str, str]:
    """The defaults of the RocketMQ settings that our brokers have."""
    from rocketlet.tools.settings_table import PROGRAMS

    served = (setting for config in PROGRAMS["mqbroker"] for setting in settings_of(config))
    return {setting.key: setting.format(setting.default) for setting in served if not setting.default_note}


async def _broker(view: View) -> Broker:
    name, number = view.part("name"), view.number(view.part("number"), "brokerId")
    for candidate in await view.cluster.brokers():
        if candidate.name == name and candidate.number == number:
            return candidate
    raise NoSuchBroker(view.t("There is no broker {name} with id {number}").format(name=name, number=number))


async def _replicas(view: View, target: Broker) -> HARuntimeInfo | None:
    """Which broker follows which; None if the broker does not know the request, like 4.9.8's."""
    if target.problem:
        return None
    try:
        answer = await view.calls.ask(target.address, RequestCode.GET_BROKER_HA_STATUS)
    except RocketletError:
        return None
    return HARuntimeInfo.from_json(answer.body)


async def promote(view: View) -> Response:
    """Make a slave the master of its name, planned or, if the master is gone, forced."""
    target = await _broker(view)
    force = view.form_value("force") == "yes"
    if target.is_master:
        raise Refused(view.t("{name} is the master already.").format(name=target.name))

    async def do() -> str:
        result = await promote_slave.run(view.calls, address=target.address, force=force)
        text = view.t("{address} is the master of {name} now").format(address=target.address, name=target.name)
        return " ".join([text, *result.lines[1:]]) if isinstance(result, Said) else text

    about = {"broker": target.name, "address": target.address, "force": force}
    return await view.change("promoteSlave", about, do, "/cluster")


async def switch(view: View) -> Response:
    """For electing replicas: have another one lead."""
    target = await _broker(view)
    replica = view.form_value("replica")

    async def do() -> str:
        result = await switch_master.run(view.calls, address=target.address, replica=replica)
        assert isinstance(result, Said)
        return view.t("{address} leads now, in epoch {epoch}").format(
            address=result.data["broker"], epoch=result.data["epoch"]
        )

    return await view.change("switchMaster", {"broker": target.name, "to": replica or "any"}, do, "/cluster")


async def in_sync(view: View) -> Response:
    """Remove a replica from the in-sync set; or make this one the only member, which may lose messages."""
    target = await _broker(view)
    removed = view.form_value("remove")
    if not removed and view.form_value("confirm") != target.name:
        raise Refused(view.t("Write the name of the broker: what this replica lacks is lost."))

    async def do() -> str:
        if removed:
            await remove_in_sync.run(view.calls, address=target.address, replica=removed)
            return view.t("{name} is not in sync any more").format(name=removed)
        await add_in_sync.run(view.calls, address=target.address, force=True)
        return view.t("{address} alone is in sync now, and will lead").format(address=target.address)

    about = {"broker": target.name, "address": target.address, "removed": removed}
    return await view.change("removeInSync" if removed else "addInSync", about, do, "/cluster")


async def set_setting(view: View) -> Response:
    """One setting of one broker."""
    target = await _broker(view)
    key, value = view.form_value("key"), view.form.get("value", "")
    if not key:
        raise Refused(view.t("Name the setting."))

    async def do() -> str:
        await settings_commands.update_broker_config.run(view.calls, broker=target.address, key=key, value=value)
        return view.t("{key} is {value} now").format(key=key, value=value)

    page = f"/cluster/{view.request.path_params['name']}/{target.number}"
    about = {"broker": target.name, "address": target.address, "key": key, "value": value}
    return await view.change("updateBrokerConfig", about, do, page)


async def writing(view: View) -> Response:
    """Remove or restore a broker's write permission at the name servers."""
    target = await _broker(view)
    allow = view.form_value("allow") == "yes"
    if target.number != MASTER:
        raise Refused(view.t("Only masters are written to."))

    async def do() -> str:
        await (add_write_perm if allow else wipe_write_perm).run(view.calls, broker=target.name)
        return view.t(
            "Clients may write to {name} again" if allow else "Clients leave {name} with their next route"
        ).format(name=target.name)

    page = f"/cluster/{view.request.path_params['name']}/{target.number}"
    return await view.change("addWritePerm" if allow else "wipeWritePerm", {"broker": target.name}, do, page)
