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
    found = await view.cluster.brokers()
    return view.page("cluster.html", clusters=_by_cluster(found))


def _by_cluster(found: list[Broker]) -> dict[str, list[Broker]]:
    clusters: dict[str, list[Broker]] = {}
    for broker in found:
        clusters.setdefault(broker.cluster, []).append(broker)
    return clusters


async def broker(view: View) -> Response:
    one = await _broker(view)
    settings: dict[str, str] = {}
    problem = one.problem
    if not problem:
        try:
            settings = await settings_commands.settings_of(view.calls, one.address, RequestCode.GET_BROKER_CONFIG)
        except RocketletError as error:
            problem = str(error)
    wanted, only_set = view.asked("filter").lower(), view.asked("only") == "set"
    defaults = _defaults()
    return view.page(
        "broker.html",
        broker=one,
        problem=problem,
        settings={
            key: value
            for key, value in sorted(without_secrets(settings).items())
            if wanted in key.lower() and not (only_set and settings[key] == defaults.get(key, settings[key]))
        },
        filter=view.asked("filter"),
        only_set=only_set,
        defaults=defaults,
        is_secret=_is_secret,
        replicas=await _replicas(view, one),
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

    served = (one for config in PROGRAMS["mqbroker"] for one in settings_of(config))
    return {one.key: one.format(one.default) for one in served if not one.default_note}


async def _broker(view: View) -> Broker:
    name, number = view.part("name"), view.number(view.part("number"), "brokerId")
    for one in await view.cluster.brokers():
        if one.name == name and one.number == number:
            return one
    raise NoSuchBroker(view.t("There is no broker {name} with id {number}").format(name=name, number=number))


async def _replicas(view: View, one: Broker) -> HARuntimeInfo | None:
    """Which broker follows which; None if the broker does not know the request, like 4.9.8's."""
    if one.problem:
        return None
    try:
        answer = await view.calls.ask(one.address, RequestCode.GET_BROKER_HA_STATUS)
    except RocketletError:
        return None
    return HARuntimeInfo.from_json(answer.body)


async def promote(view: View) -> Response:
    """Make a slave the master of its name, planned or, if the master is gone, forced."""
    one = await _broker(view)
    force = view.said("force") == "yes"
    if one.is_master:
        raise Refused(view.t("{name} is the master already.").format(name=one.name))

    async def do() -> str:
        said = await promote_slave.run(view.calls, address=one.address, force=force)
        text = view.t("{address} is the master of {name} now").format(address=one.address, name=one.name)
        return " ".join([text, *said.lines[1:]]) if isinstance(said, Said) else text

    about = {"broker": one.name, "address": one.address, "force": force}
    return await view.change("promoteSlave", about, do, "/cluster")


async def switch(view: View) -> Response:
    """For electing replicas: have another one lead."""
    one = await _broker(view)
    replica = view.said("replica")

    async def do() -> str:
        said = await switch_master.run(view.calls, address=one.address, replica=replica)
        assert isinstance(said, Said)
        return view.t("{address} leads now, in epoch {epoch}").format(
            address=said.data["broker"], epoch=said.data["epoch"]
        )

    return await view.change("switchMaster", {"broker": one.name, "to": replica or "any"}, do, "/cluster")


async def in_sync(view: View) -> Response:
    """Remove a replica from the in-sync set; or make this one the only member, which may lose messages."""
    one = await _broker(view)
    removed = view.said("remove")
    if not removed and view.said("confirm") != one.name:
        raise Refused(view.t("Write the name of the broker: what this replica lacks is lost."))

    async def do() -> str:
        if removed:
            await remove_in_sync.run(view.calls, address=one.address, replica=removed)
            return view.t("{name} is not in sync any more").format(name=removed)
        await add_in_sync.run(view.calls, address=one.address, force=True)
        return view.t("{address} alone is in sync now, and will lead").format(address=one.address)

    about = {"broker": one.name, "address": one.address, "removed": removed}
    return await view.change("removeInSync" if removed else "addInSync", about, do, "/cluster")


async def set_setting(view: View) -> Response:
    """One setting of one broker."""
    one = await _broker(view)
    key, value = view.said("key"), view.form.get("value", "")
    if not key:
        raise Refused(view.t("Name the setting."))

    async def do() -> str:
        await settings_commands.update_broker_config.run(view.calls, broker=one.address, key=key, value=value)
        return view.t("{key} is {value} now").format(key=key, value=value)

    here = f"/cluster/{view.request.path_params['name']}/{one.number}"
    about = {"broker": one.name, "address": one.address, "key": key, "value": value}
    return await view.change("updateBrokerConfig", about, do, here)


async def writing(view: View) -> Response:
    """Remove or restore a broker's write permission at the name servers."""
    one = await _broker(view)
    allow = view.said("allow") == "yes"
    if one.number != MASTER:
        raise Refused(view.t("Only masters are written to."))

    async def do() -> str:
        await (add_write_perm if allow else wipe_write_perm).run(view.calls, broker=one.name)
        return view.t(
            "Clients may write to {name} again" if allow else "Clients leave {name} with their next route"
        ).format(name=one.name)

    here = f"/cluster/{view.request.path_params['name']}/{one.number}"
    return await view.change("addWritePerm" if allow else "wipeWritePerm", {"broker": one.name}, do, here)
