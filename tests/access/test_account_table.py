"""Accounts in force: loaded, reloaded completely or not at all, and changed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from rocketlet.access.account_files import FileError
from rocketlet.access.account_table import AccountsRefused, AccountTable
from rocketlet.access.folder import RealFolder
from tests.support.memory_folder import HOME, MemoryFolder, account, accounts

ADMIN = account("operator", admin=True)


@pytest.fixture
async def folder() -> MemoryFolder:
    return MemoryFolder(accounts(ADMIN, account("webshop", topics=("orders=PUB",))))


@pytest.fixture
async def table(folder: MemoryFolder, autojump_clock: MockClock, nursery: trio.Nursery) -> AsyncIterator[AccountTable]:
    """A loaded table that watches its files."""
    table = AccountTable(folder, lambda: 1_700_000_000_000)
    await table.load()
    nursery.start_soon(table.watch)
    await wait_all_tasks_blocked()
    yield table
    nursery.cancel_scope.cancel()


async def test_a_change_takes_effect_within_five_seconds(
    autojump_clock: MockClock, table: AccountTable, folder: MemoryFolder
) -> None:
    folder.write(accounts(ADMIN, account("newcomer")))
    began = trio.current_time()
    while set(table.rules.accounts) != {"operator", "newcomer"}:
        await trio.sleep(0.1)
    assert trio.current_time() - began < 5
    assert table.reloads == 1


async def test_a_broken_file_leaves_the_old_rules_in_force_and_names_the_line(
    autojump_clock: MockClock, table: AccountTable, folder: MemoryFolder, caplog: pytest.LogCaptureFixture
) -> None:
    before = table.rules
    folder.write(accounts(ADMIN, account("webshop", topics=("orders",))))
    await trio.sleep(10)
    assert table.rules is before
    assert "plain_acl.yml line 18: a permission is written topic=PUB|SUB" in table.problem
    assert caplog.text.count("stay as they were") == 1, "and is told once"
    folder.write(accounts(ADMIN))
    await trio.sleep(10)
    assert set(table.rules.accounts) == {"operator"}
    assert table.problem == ""


async def test_one_broken_file_of_two_disables_both(
    autojump_clock: MockClock, table: AccountTable, folder: MemoryFolder
) -> None:
    folder.write(accounts(account("third-one")), f"{HOME}/acl/more.yml")
    folder.write("accounts: [\n")
    await trio.sleep(10)
    assert set(table.rules.accounts) == {"operator", "webshop"}
    folder.write(accounts(ADMIN))
    await trio.sleep(10)
    assert set(table.rules.accounts) == {"operator", "third-one"}


async def test_a_file_being_written_is_ignored_until_it_is_complete(
    autojump_clock: MockClock, table: AccountTable, folder: MemoryFolder
) -> None:
    whole = accounts(ADMIN, account("webshop"), account("newcomer"))
    lines = whole.splitlines(keepends=True)
    seen = set()
    for count in range(len(lines)):  # half a file can be a valid one with fewer accounts
        folder.write("".join(lines[: count + 1]))
        await trio.sleep(0.9)
        seen.add(frozenset(table.rules.accounts))
    await trio.sleep(3)
    assert seen == {frozenset({"operator", "webshop"})}
    assert set(table.rules.accounts) == {"operator", "webshop", "newcomer"}


async def test_an_emptied_or_removed_file_takes_no_accounts_away(
    autojump_clock: MockClock, table: AccountTable, folder: MemoryFolder
) -> None:
    folder.write("")
    await trio.sleep(10)
    assert set(table.rules.accounts) == {"operator", "webshop"}
    del folder.contents[folder.default_path]
    await trio.sleep(10)
    assert set(table.rules.accounts) == {"operator", "webshop"}


async def test_changes_are_written_and_take_effect_at_once(
    autojump_clock: MockClock, table: AccountTable, folder: MemoryFolder
) -> None:
    await table.set_account("newcomer", {"secretKey": "battery-staple", "topicPerms": ["orders=SUB"]})
    assert table.rules.accounts["newcomer"].permissions == {"orders": 8}
    assert table.version().counter == 1
    await table.set_account("newcomer", {"topicPerms": []})
    assert table.rules.accounts["newcomer"].permissions == {}
    await table.delete_account("newcomer")
    assert set(table.rules.accounts) == {"operator", "webshop"}
    assert table.version().counter == 3
    await table.set_global_addresses(["10.1.*.*"])
    assert table.rules.everywhere.match("10.1.2.3")


async def test_an_account_is_changed_in_the_file_that_holds_it(
    autojump_clock: MockClock, table: AccountTable, folder: MemoryFolder
) -> None:
    folder.write(accounts(account("third-one")), f"{HOME}/acl/more.yml")
    await trio.sleep(5)
    await table.set_account("third-one", {"admin": True})
    assert b"third-one" not in folder.contents[folder.default_path]
    assert b"admin: true" in folder.contents[f"{HOME}/acl/more.yml"]
    assert table.versions()[f"{HOME}/acl/more.yml"].counter == 1


async def test_the_last_administrator_stays(autojump_clock: MockClock, table: AccountTable) -> None:
    with pytest.raises(AccountsRefused, match="no administrator would be left"):
        await table.delete_account("operator")
    with pytest.raises(AccountsRefused, match="no administrator would be left"):
        await table.set_account("operator", {"admin": False})
    assert table.rules.accounts["operator"].admin


async def test_a_request_cannot_choose_a_path(
    autojump_clock: MockClock, table: AccountTable, folder: MemoryFolder
) -> None:
    with pytest.raises(AccountsRefused, match="not one of the account files"):
        await table.set_global_addresses(["*"], "/etc/passwd")
    assert "/etc/passwd" not in folder.contents


async def test_a_failed_write_changes_no_account(
    autojump_clock: MockClock, table: AccountTable, folder: MemoryFolder
) -> None:
    folder.fails = True
    with pytest.raises(AccountsRefused, match="nothing was"):
        await table.set_account("newcomer", {"secretKey": "battery-staple"})
    assert "newcomer" not in table.rules.accounts
    assert b"newcomer" not in folder.contents[folder.default_path]


async def test_a_damaged_file_is_not_overwritten(
    autojump_clock: MockClock, table: AccountTable, folder: MemoryFolder
) -> None:
    folder.write("accounts: [\n")
    with pytest.raises(AccountsRefused, match=r"plain_acl.yml line 2"):
        await table.set_account("newcomer", {"secretKey": "battery-staple"})
    assert folder.contents[folder.default_path] == b"accounts: [\n"


async def test_a_start_with_a_damaged_file_fails() -> None:
    with pytest.raises(FileError, match="line 2"):
        await AccountTable(MemoryFolder("accounts: [\n"), lambda: 0).load()


def test_a_real_folder(tmp_path: Path) -> None:
    (tmp_path / "acl" / "team").mkdir(parents=True)
    (tmp_path / "acl" / "b.yaml").write_text("b")
    (tmp_path / "acl" / "team" / "a.yml").write_text("a")
    (tmp_path / "acl" / "notes.txt").write_text("no")
    folder = RealFolder(str(tmp_path))
    folder.replace(folder.default_path, b"one")
    assert [Path(path).name for path, *_ in folder.state()] == ["b.yaml", "a.yml", "plain_acl.yml"]
    assert (tmp_path / "plain_acl.yml").stat().st_mode & 0o777 == 0o600
    before = folder.state()
    folder.replace(folder.default_path, b"two")
    assert folder.state() != before
    assert folder.read(folder.default_path) == b"two"
    (tmp_path / "plain_acl.yml").chmod(0o640)
    folder.replace(folder.default_path, b"three")
    assert (tmp_path / "plain_acl.yml").stat().st_mode & 0o777 == 0o640
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".tmp")] == []
    assert folder.read(folder.tools_path) is None
