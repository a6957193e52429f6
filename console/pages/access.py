"""Access control: which brokers require accounts, changes to accounts, and an account's effective permissions.

Brokers do not report their accounts: RocketMQ 4.9.8 removed that request, because the answer revealed secrets. Changes
go to the brokers. The accounts are shown where the console is given the folder of the files, and without secrets.

Java: rocketmq-dashboard's controller/AclController.java
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from starlette.responses import Response

from rocketlet.access.account_table import AccountTable
from rocketlet.access.accounts import PERMISSIONS, Account
from rocketlet.access.folder import RealFolder
from rocketlet.common.errors import RocketletError
from rocketlet.common.topic import RETRY_PREFIX
from rocketlet.console.cluster import Broker, each
from rocketlet.console.web import Refused, View
from rocketlet.remoting.access import Permission, Resource
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.tools.admin import access as commands
from rocketlet.tools.admin import settings as settings_commands

KINDS: Mapping[str, Resource] = {"topics": Resource.TOPIC, "groups": Resource.GROUP}


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """One broker's access control; `strict` is empty if it does not know the setting, like Java's."""

    broker: Broker
    on: bool = False
    strict: str = ""
    versions: str = ""
    problem: str = ""


async def access(view: View) -> Response:
    async def ask(broker: Broker) -> BrokerRow:
        try:
            settings = await settings_commands.settings_of(view.calls, broker.address, RequestCode.GET_BROKER_CONFIG)
        except RocketletError as error:
            return BrokerRow(broker, problem=str(error))
        on = settings.get("aclEnable") == "true"
        return BrokerRow(broker, on, settings.get("aclStrict", ""), await _versions(view, broker) if on else "")

    accounts, problem = await _accounts(view)
    filter_text = view.query_value("filter").lower()
    return view.page(
        "access.html",
        rows=await each(await view.cluster.masters(), ask),
        pager=view.paged([account for name, account in sorted(accounts.items()) if filter_text in name.lower()]),
        filter=view.query_value("filter"),
        problem=problem,
        folder=view.console.config.accounts,
        clusters=sorted((await view.cluster.info()).clusterAddrTable),
        permission=permission_text,
        permissions=["", *PERMISSIONS],
    )


async def _versions(view: View, broker: Broker) -> str:
    try:
        result = await commands.cluster_acl_config_version.run(view.calls, broker=broker.address)
    except RocketletError as error:
        return str(error)
    rows = getattr(result, "rows", ())
    return ", ".join(f"{str(row['file']).rpartition('/')[2]} {row['counter']}" for row in rows)


async def _accounts(view: View) -> tuple[Mapping[str, Account], str]:
    """The accounts in the files, as brokers read them, and the files' errors."""
    if not view.console.config.accounts:
        return {}, ""
    table = AccountTable(RealFolder(view.console.config.accounts), view.console.clock)
    try:
        await table.load()
    except (RocketletError, OSError) as error:
        return {}, str(error)
    return table.rules.accounts, ""


def permission_text(permission: int) -> str:
    """As in account files."""
    return next((text for text, value in PERMISSIONS.items() if value == permission), str(permission))


@dataclass(frozen=True, slots=True)
class Right:
    """An account's permission on one topic or group; `named`: the account's permissions name it."""

    name: str
    publish: bool
    subscribe: bool
    named: bool


async def rights(view: View) -> Response:
    """An account's permissions on all existing topics and groups."""
    accounts, problem = await _accounts(view)
    account = accounts.get(view.part("account"))
    if account is None:
        raise Refused(problem or view.t("There is no account {name}").format(name=view.part("account")), 404)
    kind = view.query_value("of", "topics")
    resource = KINDS.get(kind, Resource.TOPIC)
    filter_text = view.query_value("filter").lower()
    names = await view.cluster.topics() if resource is Resource.TOPIC else await view.cluster.groups()
    as_java = view.query_value("java") == "yes"
    may = account.may if as_java else account.may_strictly

    def right(name: str) -> Right:
        key = RETRY_PREFIX + name if resource is Resource.GROUP else name
        return Right(
            name,
            may(Permission.PUBLISH, resource, name),
            may(Permission.SUBSCRIBE, resource, name),
            key in account.permissions,
        )

    matching = [name for name in names if filter_text in name.lower() and not name.startswith("%")]
    return view.page(
        "rights.html", account=account, pager=view.paged([right(name) for name in matching]), kind=kind,
        kinds=list(KINDS), filter=view.query_value("filter"), java=as_java, permission=permission_text,
    )  # fmt: skip


# ---- changes


async def save(view: View) -> Response:
    """Create an account, or change the given values."""
    cluster, name = view.form_value("cluster"), view.form_value("account")
    if not name:
        raise Refused(view.t("Name the account."))
    fields = {
        field: view.form_value(field)
        for field in ("addresses", "topic", "group", "topics", "groups", "admin")
        if view.form_value(field)
    }

    async def do() -> str:
        secret = view.form.get("secret", "")
        await commands.update_acl_config.run(view.calls, cluster=cluster, access_key=name, secret=secret, **fields)
        return view.t("Account {name} is there").format(name=name)

    # The secret is in no line of the audit log, only whether it was changed.
    about = {"cluster": cluster, "account": name, "secret": bool(view.form.get("secret")), **fields}
    return await view.change("updateAclConfig", about, do, "/access")


async def delete(view: View) -> Response:
    cluster, name = view.form_value("cluster"), view.form_value("account")
    if not name or view.form_value("confirm") != name:
        raise Refused(view.t("Write the name of the account twice to delete it."))

    async def do() -> str:
        await commands.delete_acl_config.run(view.calls, cluster=cluster, access_key=name)
        return view.t("Account {name} is deleted").format(name=name)

    return await view.change("deleteAclConfig", {"cluster": cluster, "account": name}, do, "/access")


async def everywhere(view: View) -> Response:
    """The addresses from which RocketMQ requires no signature."""
    cluster, addresses = view.form_value("cluster"), view.form_value("addresses")

    async def do() -> str:
        await commands.update_global_white_addr.run(view.calls, cluster=cluster, addresses=addresses)
        return view.t("The global white addresses are set")

    return await view.change("updateGlobalWhiteAddr", {"cluster": cluster, "addresses": addresses}, do, "/access")
