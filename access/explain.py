"""The report about access control at a start: what is in force, what is left open, and accounts that only worked
through a loophole.

Java: none
"""

from __future__ import annotations

from collections.abc import Iterator

from rocketlet.access.accounts import PUB, SUB, Account, Rules

_ACCOUNTS_NAMED = 50

JAVAS_WAY = (
    "aclStrict=false: RocketMQ's way. It leaves open: whoever comes from a white address needs no signature, and with"
    " an account's own address no permission either; every account may send batches and replies, end transactions,"
    " read and reset offsets, view any message, and change accounts, its own rights too"
)


def of_start(rules: Rules, *, strict: bool) -> Iterator[str]:
    """Lines to be logged as warnings."""
    if not strict:
        yield JAVAS_WAY
    else:
        yield from _loopholes(rules)
    if not any(account.admin for account in rules.accounts.values()):
        yield "no account is an administrator (admin: true): topics, groups, settings and accounts cannot be changed"


def _loopholes(rules: Rules) -> Iterator[str]:
    if rules.everywhere:
        yield (
            f"globalWhiteRemoteAddresses {rules.everywhere.text}: clients there have to sign now, for no address"
            " replaces a signature (aclStrict=false: they need not)"
        )
    count = 0
    for account in rules.accounts.values():
        line = _of_account(account)
        if line and count < _ACCOUNTS_NAMED:
            yield line
        count += bool(line)
    if count > _ACCOUNTS_NAMED:
        yield f"the same holds for {count - _ACCOUNTS_NAMED} more accounts"


def _of_account(account: Account) -> str:
    """What RocketMQ lets this account do through a loophole, and we do not."""
    name = f"account {account.access_key} ({account.place})"
    rights = _rights(account)
    if account.addresses:
        only = "" if rights else ", and has no permission at all: it worked only through that loophole"
        return (
            f"{name} worked unsigned and without permissions from {account.addresses.text}; now it has to sign, may do"
            f" so from there only, and needs its permissions{only}"
        )
    if not rights:
        return (
            f"{name} has no permission and is no administrator: it worked only through requests that RocketMQ does not"
            " check"
        )
    return ""


def _rights(account: Account) -> bool:
    permissions = [account.default_topic, account.default_group, *account.permissions.values()]
    return account.admin or any(permission & (PUB | SUB) for permission in permissions)


def beyond_loopback(server: str, address: str) -> str:
    """For a server without access control that others can reach."""
    return (
        f"the {server} listens on {address} without access control: whoever reaches it may read, write and administer."
        " Set aclEnable=true, or let only those reach it who may"
    )
