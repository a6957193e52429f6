"""mqadmin: settings and the name servers' table of keys and values. getBrokerConfig updateBrokerConfig getNamesrvConfig
updateNamesrvConfig updateKvConfig deleteKvConfig.

Java: tools/command/broker/GetBrokerConfigCommand.java, UpdateBrokerConfigSubCommand.java,
tools/command/namesrv/GetNamesrvConfigCommand.java and its neighbours
"""

from __future__ import annotations

import click

from rocketlet.common import java_properties
from rocketlet.remoting.protocol.kv import KVConfigHeader, PutKVConfigHeader
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.tools.admin.calls import Admin
from rocketlet.tools.admin.command import (
    BROKER,
    CLUSTER,
    AdminError,
    Result,
    Said,
    addresses_chosen,
    command,
    one_of,
    properties_lines,
)

_KEY = click.option("-k", "--key", required=True, metavar="KEY", help="The setting.")
_VALUE = click.option("-v", "--value", required=True, metavar="VALUE", help="Its value.")
_SPACE = click.option("-s", "--namespace", "space", required=True, metavar="NAME", help="The namespace.")


async def settings_of(calls: Admin, address: str, code: RequestCode) -> dict[str, str]:
    """All settings of a server by key."""
    body = (await calls.ask(address, code)).body
    return java_properties.as_dict(java_properties.decode(bytes(body)))


@command("getBrokerConfig")
@BROKER
@CLUSTER
async def get_broker_config(calls: Admin, broker: str | None, cluster: str | None) -> Result:
    """Show the settings of brokers."""
    one_of(broker, cluster)
    addresses = await addresses_chosen(calls, broker, cluster)
    return await _settings_table(calls, addresses, RequestCode.GET_BROKER_CONFIG)


@command("getNamesrvConfig")
async def get_namesrv_config(calls: Admin) -> Result:
    """Show the settings of name servers."""
    return await _settings_table(calls, list(calls.namesrvs), RequestCode.GET_NAMESRV_CONFIG)


async def _settings_table(calls: Admin, addresses: list[str], code: RequestCode) -> Said:
    lines, rows = [], []
    for address in addresses:
        settings = await settings_of(calls, address, code)
        lines += properties_lines(f"============{address}============", settings)
        rows.append({"address": address, "settings": settings})
    return Said(lines, rows)


@command("updateBrokerConfig")
@BROKER
@CLUSTER
@_KEY
@_VALUE
async def update_broker_config(calls: Admin, broker: str | None, cluster: str | None, key: str, value: str) -> Result:
    """Change a setting of running brokers; the table of settings marks those that allow it."""
    one_of(broker, cluster)
    body = f"{java_properties.format_entry(key, value)}\n".encode()
    addresses = await addresses_chosen(calls, broker, cluster)
    for address in addresses:
        await calls.ask(address, RequestCode.UPDATE_BROKER_CONFIG, body=body)
    lines = [f"update broker config success, {address}" for address in addresses]
    return Said(lines, [{"broker": address, "key": key, "value": value} for address in addresses])


@command("updateNamesrvConfig")
@_KEY
@_VALUE
async def update_namesrv_config(calls: Admin, key: str, value: str) -> Result:
    """Change a setting of running name servers."""
    body = f"{java_properties.format_entry(key, value)}\n".encode()
    await calls.tell_all_namesrvs(RequestCode.UPDATE_NAMESRV_CONFIG, body=body)
    names = ", ".join(calls.namesrvs)
    return Said([f"update name server config success![{names}]", f"{key} : {value}"], {"key": key, "value": value})


@command("updateKvConfig")
@_SPACE
@_KEY
@_VALUE
async def update_kv_config(calls: Admin, space: str, key: str, value: str) -> Result:
    """Set a key in the name servers' KV configuration."""
    await calls.tell_all_namesrvs(RequestCode.PUT_KV_CONFIG, PutKVConfigHeader(namespace=space, key=key, value=value))
    return Said(["create or update kv config to namespace success."], {"namespace": space, "key": key, "value": value})


@command("deleteKvConfig")
@_SPACE
@_KEY
async def delete_kv_config(calls: Admin, space: str, key: str) -> Result:
    """Delete a key from the name servers' KV configuration."""
    if not await calls.some_namesrv_has(space, key):
        raise AdminError(f"no name server has key {key} in namespace {space}; updateKvConfig makes one")
    await calls.tell_all_namesrvs(RequestCode.DELETE_KV_CONFIG, KVConfigHeader(namespace=space, key=key))
    return Said(["delete kv config from namespace success."], {"namespace": space, "key": key})
