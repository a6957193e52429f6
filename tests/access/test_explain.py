"""What a start reports: what is left open, and accounts that only worked through a loophole."""

from __future__ import annotations

from rocketlet.access.explain import of_start
from tests.access.asking import rules_of
from tests.support.memory_folder import account, accounts


def test_accounts_that_only_worked_through_a_loophole_are_named() -> None:
    rules = rules_of(
        accounts(
            account("operator", admin=True),
            account("by-address", white="10.1.2.*"),
            account("with-both", white="10.1.3.*", topics=("orders=PUB",)),
            account("nothing-at-all"),
            account("webshop", topics=("orders=PUB",)),
            everywhere=("10.9.*.*",),
        )
    )
    lines = list(of_start(rules, strict=True))
    assert len(lines) == 4
    assert "globalWhiteRemoteAddresses 10.9.*.*: clients there have to sign now" in lines[0]
    assert "account by-address (0.yml line 12)" in lines[1]
    assert "it worked only through that loophole" in lines[1]
    assert "with-both" in lines[2]
    assert "alone" not in lines[2]
    assert "nothing-at-all" in lines[3]
    assert "correct-horse" not in "".join(lines)


def test_javas_mode_lists_its_loopholes() -> None:
    (line,) = of_start(rules_of(accounts(account("operator", admin=True))), strict=False)
    assert line.startswith("aclStrict=false: RocketMQ's way. It leaves open:")
    assert "change accounts" in line


def test_a_file_without_an_administrator_is_reported() -> None:
    (line,) = of_start(rules_of(accounts(account("webshop", topics=("orders=PUB",)))), strict=True)
    assert "no account is an administrator" in line
