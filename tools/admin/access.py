"""mqadmin: accounts. updateAclConfig deleteAclConfig clusterAclConfigVersion updateGlobalWhiteAddr getAclConfig.

Secrets are sent to brokers, which never return them. One given with `-s` is visible to others on this machine while the
command runs: leave `-s` out, and the command asks for it, or takes it from ROCKETLET_NEW_SECRET_KEY.

Java: tools/command/acl/UpdateAccessConfigSubCommand.java and its neighbours
"""

from __future__ import annotations

import json
from typing import Any

import click

from rocketlet.remoting.protocol.access import (
    AclInfoAnswerHeader,
    DeleteAclConfigHeader,
    UpdateAclConfigHeader,
    UpdateGlobalWhiteAddrsHeader,
)
from rocketlet.remoting.protocol.header import Header, from_ext
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.tools.admin.calls import Admin, AdminRefused
from rocketlet.tools.admin.command import (
    BROKER,
    CLUSTER,
    AdminError,
    Result,
    Said,
    Table,
    addresses_chosen,
    command,
    one_of,
)
from rocketlet.tools.admin.settings import settings_of

_ACCOUNT = click.option("-a", "--accessKey", "access_key", required=True, metavar="NAME", help="The account.")
_PERMISSION = "DENY, PUB, SUB or PUB|SUB"
# In the answers of a broker without access control, RocketMQ's or ours: of a NullPointerException.
_NO_ACCOUNTS = '"accessValidator" is null'


@command("updateAclConfig")
@BROKER
@CLUSTER
@_ACCOUNT
@click.option(
    "-s",
    "--secretKey",
    "secret",
    envvar="ROCKETLET_NEW_SECRET_KEY",
    default="",
    metavar="SECRET",
    help="Its secret; needed for a new account. `-` asks for it.",
)
@click.option(
    "-w", "--whiteRemoteAddress", "addresses", metavar="LIST", help="From where it may sign; empty: anywhere."
)
@click.option("-i", "--defaultTopicPerm", "topic", metavar="PERM", help=f"On topics not named: {_PERMISSION}.")
@click.option("-u", "--defaultGroupPerm", "group", metavar="PERM", help=f"On groups not named: {_PERMISSION}.")
@click.option("-t", "--topicPerms", "topics", metavar="LIST", help="Permissions: topicA=PUB,topicB=SUB.")
@click.option("-g", "--groupPerms", "groups", metavar="LIST", help="Permissions: groupA=SUB,groupB=DENY.")
@click.option("-m", "--admin", "admin", metavar="BOOL", help="Whether it is an administrator: true or false.")
async def update_acl_config(
    calls: Admin,
    broker: str | None,
    cluster: str | None,
    access_key: str,
    secret: str,
    addresses: str | None,
    topic: str | None,
    group: str | None,
    topics: str | None,
    groups: str | None,
    admin: str | None,
) -> Result:
    """Make an account, or change what is given of one."""
    one_of(broker, cluster)
    if secret == "-":
        secret = click.prompt(f"secret of {access_key}", hide_input=True, confirmation_prompt=True, err=True)
    header = UpdateAclConfigHeader(
        accessKey=access_key,
        secretKey=secret,
        whiteRemoteAddress=addresses,
        admin=None if admin is None else _flag(admin),
        defaultTopicPerm=topic,
        defaultGroupPerm=group,
        topicPerms=topics,
        groupPerms=groups,
    )
    asked_addresses = await _send_to_all(calls, broker, cluster, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, header)
    return _report("create or update plain access config to", asked_addresses, {"accessKey": access_key})


@command("deleteAclConfig")
@BROKER
@CLUSTER
@_ACCOUNT
async def delete_acl_config(calls: Admin, broker: str | None, cluster: str | None, access_key: str) -> Result:
    """Delete an account."""
    one_of(broker, cluster)
    header = DeleteAclConfigHeader(accessKey=access_key)
    addresses = await _send_to_all(calls, broker, cluster, RequestCode.DELETE_ACL_CONFIG, header)
    return _report("delete plain access config account from", addresses, {"accessKey": access_key})


@command("updateGlobalWhiteAddr")
@BROKER
@CLUSTER
@click.option(
    "-g", "--globalWhiteRemoteAddresses", "addresses", required=True, metavar="LIST", help="Addresses, as 10.1.*.*,*."
)
@click.option(
    "-p", "--aclFileFullPath", "path", metavar="FILE", help="Which of the broker's files; else plain_acl.yml."
)
async def update_global_white_addr(
    calls: Admin, broker: str | None, cluster: str | None, addresses: str, path: str | None
) -> Result:
    """Set the global white addresses. A broker with aclStrict=true keeps them and lets nobody in by them."""
    one_of(broker, cluster)
    header = UpdateGlobalWhiteAddrsHeader(globalWhiteAddrs=addresses, aclFileFullPath=path)
    asked_addresses = await _send_to_all(calls, broker, cluster, RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, header)
    return _report(
        "update global white remote addresses to", asked_addresses, {"globalWhiteRemoteAddresses": addresses}
    )


@command("clusterAclConfigVersion")
@BROKER
@CLUSTER
async def cluster_acl_config_version(calls: Admin, broker: str | None, cluster: str | None) -> Result:
    """Show the version of each file of accounts."""
    one_of(broker, cluster)
    rows: list[dict[str, Any]] = []
    for address in await addresses_chosen(calls, broker, cluster):
        settings = await settings_of(calls, address, RequestCode.GET_BROKER_CONFIG)
        if settings.get("aclEnable") == "false":  # such a broker, RocketMQ's or ours, would never answer
            raise _without_accounts(address)
        answer = await calls.ask(address, RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
        header = from_ext(AclInfoAnswerHeader, answer.ext)
        # A broker of 4.9.1 or older reports only one file.
        versions = json.loads(header.allAclFileVersion or "null") or {"": json.loads(header.version)}
        rows += [
            {
                "cluster": header.clusterName,
                "broker": header.brokerName,
                "address": header.brokerAddr,
                "file": path,
                "counter": version.get("counter", 0),
                "timestamp": version.get("timestamp", 0),
            }
            for path, version in versions.items()
        ]
    heads = {
        "cluster": "#Cluster Name",
        "broker": "#Broker Name",
        "address": "#Broker Addr",
        "file": "#AclFile",
        "counter": "#Version",
        "timestamp": "#Timestamp",
    }
    return Table(heads, rows)


@command("getAclConfig")
@BROKER
@CLUSTER
async def get_acl_config(calls: Admin, broker: str | None, cluster: str | None) -> Result:
    """Not served, here and from RocketMQ 4.9.8 on: it showed secrets."""
    raise AdminError(
        "getAclConfig is not served, as in RocketMQ 4.9.8, because it told what accounts there are, and once their"
        " secrets; look into the broker's plain_acl.yml"
    )


async def _send_to_all(
    calls: Admin, broker: str | None, cluster: str | None, code: RequestCode, header: Header
) -> list[str]:
    addresses = await addresses_chosen(calls, broker, cluster)
    for address in addresses:
        try:
            await calls.ask(address, code, header)
        except AdminRefused as refused:
            if _NO_ACCOUNTS in refused.remark:
                raise _without_accounts(address) from None
            raise
    return addresses


def _without_accounts(address: str) -> AdminError:
    return AdminError(f"{address} has no access control (aclEnable=false), so it has no accounts")


def _report(action: str, addresses: list[str], fields: dict[str, str]) -> Said:
    lines = [f"{action} {address} success." for address in addresses]
    return Said(lines, [{"broker": address, **fields} for address in addresses])


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise click.UsageError("-m must be true or false")
    return text.lower() == "true"
