"""The accounts in force: loaded from files, reloaded when a file has changed, changed by administrators.

A change of the files applies completely or not at all: if one of them is damaged the old accounts stay in force, and
the log names the wrong line. A file being written is ignored until it has not changed for a second, so that half a file
is not taken for a complete one; a change takes effect within 3 seconds.

Java: acl/plain/PlainPermissionManager.java, srvutil/AclFileWatchService.java
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import trio

from rocketlet.access.account_edits import Value, with_account, with_global_addresses, without_account
from rocketlet.access.account_files import AccountFile, FileError, joined, read_accounts
from rocketlet.access.accounts import Account, Rules
from rocketlet.access.folder import Folder, State
from rocketlet.common.clock import WallClock
from rocketlet.common.errors import RocketletError
from rocketlet.remoting.protocol.configuration import DataVersion

log = logging.getLogger("rocketlet.access.account_table")

LOOK_SECONDS = 1.0
_WARNINGS_LOGGED = 20

Result = TypeVar("Result")
Edit = Callable[[str, bytes, DataVersion], bytes]


class AccountsRefused(RocketletError):
    """A change of the accounts that cannot be made; nothing has changed."""


@dataclass(frozen=True, slots=True)
class _Loaded:
    state: State
    files: tuple[AccountFile, ...]
    rules: Rules


class AccountTable:
    """`rules` is replaced as a whole. Requires: `load` is called first."""

    def __init__(self, folder: Folder, clock: WallClock) -> None:
        self._folder = folder
        self._clock = clock
        self._editing = trio.Lock()
        self._refused: State | None = None  # of unusable files that need not be tried again
        self._loaded = _Loaded((), (), Rules())
        self.problem = ""
        """Why the files as they are now do not count; empty while they do."""
        self.reloads = 0

    def __repr__(self) -> str:
        return f"<AccountTable {len(self.rules.accounts)} accounts of {len(self._loaded.files)} files>"

    @property
    def rules(self) -> Rules:
        """The rules in force."""
        return self._loaded.rules

    async def load(self) -> None:
        """Read the files at a start. Raises FileError, OSError."""
        self._take(await self._off_loop(self._read))
        log.info("%d accounts from %s", len(self.rules.accounts), ", ".join(self.file_names()) or "no file")

    def file_names(self) -> list[str]:
        """The files that were read, in order of precedence."""
        return [file.name for file in self._loaded.files]

    def versions(self) -> dict[str, DataVersion]:
        """Of each file."""
        return {file.name: file.version for file in self._loaded.files}

    def version(self) -> DataVersion:
        """That of plain_acl.yml, as RocketMQ reports it."""
        return self.versions().get(self._folder.default_path, DataVersion(0, 0))

    async def watch(self) -> None:
        """Follow the files until cancelled."""
        last_state = self._loaded.state
        while True:
            await trio.sleep(LOOK_SECONDS)
            try:
                state = await self._off_loop(self._folder.state)
                if state == last_state and state not in (self._loaded.state, self._refused):
                    async with self._editing:
                        await self._read_again(state)
                last_state = state
            except OSError as error:
                self._keep_old(str(error))

    async def _read_again(self, state: State) -> None:
        try:
            loaded = await self._off_loop(self._read)
        except FileError as error:
            self._refused = state
            self._keep_old(str(error))
            return
        if not loaded.rules.accounts and self.rules.accounts:
            self._refused = state
            self._keep_old("there is no account left in them")
            return
        if loaded.state == state:  # otherwise it changed meanwhile: the next check sees it
            self._take(loaded)
            self.reloads += 1
            log.info("accounts read again: %d from %s", len(self.rules.accounts), ", ".join(self.file_names()))

    def _keep_old(self, problem: str) -> None:
        if problem != self.problem:
            log.error("the accounts' files are not used, and the accounts stay as they were: %s", problem)
        self.problem = problem

    def _read(self) -> _Loaded:
        """Raises FileError, OSError."""
        state = self._folder.state()
        files = []
        for path, *_ in state:
            text = self._folder.read(path)
            if text is not None:
                files.append(read_accounts(path, text))
        rules, warnings = joined(files)
        for warning in warnings[:_WARNINGS_LOGGED]:
            log.warning("%s", warning)
        if len(warnings) > _WARNINGS_LOGGED:
            log.warning("%d more findings in the accounts' files are left out", len(warnings) - _WARNINGS_LOGGED)
        return _Loaded(state, tuple(files), rules)

    def _take(self, loaded: _Loaded) -> None:
        self._loaded = loaded
        self._refused = None
        self.problem = ""

    # -- changes

    async def set_account(self, access_key: str, values: Mapping[str, Value]) -> None:
        """Create or change an account; values not in `values` are kept. Raises AccountsRefused."""
        account = self.rules.accounts.get(access_key)
        path = _file_of(account) if account is not None else self._folder.default_path
        await self._edit(path, lambda name, text, version: with_account(name, text, access_key, values, version))

    async def delete_account(self, access_key: str) -> None:
        """Raises AccountsRefused."""
        account = self.rules.accounts.get(access_key)
        if account is None:
            raise AccountsRefused(f"there is no account {access_key}")
        await self._edit(
            _file_of(account), lambda name, text, version: without_account(name, text, access_key, version)
        )

    async def set_global_addresses(self, addresses: Sequence[str], path: str = "") -> None:
        """Set those of one file; of plain_acl.yml if none is named. Raises AccountsRefused."""
        paths = [self._folder.default_path, *self.file_names()]
        if path and path not in paths:
            raise AccountsRefused("the file is not one of the account files here; leave it out")
        await self._edit(
            path or self._folder.default_path,
            lambda name, text, version: with_global_addresses(name, text, addresses, version),
        )

    async def _edit(self, path: str, edit: Edit) -> None:
        async with self._editing:
            try:
                await self._off_loop(lambda: self._write(path, edit))
                self._take(await self._off_loop(self._read))
            except (FileError, OSError) as error:
                log.error("the accounts cannot be changed: %s", error)
                raise AccountsRefused(f"the accounts cannot be changed: {error}; nothing was") from error

    def _write(self, path: str, edit: Edit) -> None:
        """Raises AccountsRefused, FileError, OSError; then nothing is written."""
        loaded = self._read()  # the files may have been edited since the last check
        old = self._folder.read(path) or b""
        version = next((file.version for file in loaded.files if file.name == path), DataVersion(0, 0))
        new = edit(path, old, DataVersion(version.counter + 1, self._clock()))
        edited = [read_accounts(path, new) if file.name == path else file for file in loaded.files]
        if path not in [file.name for file in loaded.files]:
            edited.append(read_accounts(path, new))
        new_rules, _ = joined(edited)
        if not any(account.admin for account in new_rules.accounts.values()) and any(
            account.admin for account in loaded.rules.accounts.values()
        ):
            raise AccountsRefused("no administrator would be left; make another account one first")
        self._folder.replace(path, new)

    async def _off_loop(self, function: Callable[[], Result]) -> Result:
        if self._folder.blocking:
            return await trio.to_thread.run_sync(function)
        return function()


def _file_of(account: Account) -> str:
    return account.place.rpartition(" line ")[0]
