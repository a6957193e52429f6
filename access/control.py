"""Access control of one server, put together: its files, its gate, its report at a start, and its own signatures.

Java: broker/BrokerController.java (initialAcl), acl/common/AclUtils.java (getAclRPCHook)
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from rocketlet.access.account_files import Credentials, read_credentials
from rocketlet.access.account_table import LOOK_SECONDS, AccountTable
from rocketlet.access.config import AccessConfig
from rocketlet.access.explain import of_start
from rocketlet.access.folder import TOOLS_FILE, Folder
from rocketlet.access.gate import Gate
from rocketlet.common.clock import WallClock
from rocketlet.common.settings import SettingsError
from rocketlet.remoting.command import Command
from rocketlet.remoting.dispatch import Admission
from rocketlet.remoting.peers import Peers
from rocketlet.remoting.signing import Signer

log = logging.getLogger("rocketlet.access.control")


class AccessControl:
    """Without aclEnable everything is admitted, and `admission` is None, so that the check costs nothing."""

    def __init__(
        self, config: Callable[[], AccessConfig], folder: Folder, clock: WallClock, peers: Peers | None = None
    ) -> None:
        """`config` returns the current settings; the rate may change while the server runs."""
        now = config()
        self._config = config
        self._folder = folder
        self.enabled, self.strict = now.acl_enable, now.acl_strict
        self.table = AccountTable(folder, clock)
        self.peers = peers or Peers()
        self.gate = Gate(
            lambda: self.table.rules,
            strict=now.acl_strict,
            certificates=now.accounts_by_certificate,
            rate=now.requests_per_second_by_account,
            peers=self.peers,
        )
        self.own = OwnSignature()
        """Signs what this server asks others for, where tools.yml names an account."""

    @property
    def admission(self) -> Admission | None:
        """The check for `remoting.Server`."""
        return self.gate if self.enabled else None

    async def open(self) -> None:
        """Read the files. Raises FileError, OSError, SettingsError."""
        text = self._folder.read(self._folder.tools_path)
        if text is not None:
            self.own.sign_as(read_credentials(TOOLS_FILE, text))
        if not self.enabled:
            return
        await self.table.load()
        rules = self.table.rules
        if not rules.accounts and (self.strict or not rules.everywhere):
            raise SettingsError(
                f"aclEnable=true: there is no account in {self._folder.default_path}, nor below acl/ beside it; make"
                " one, or name another folder with aclConfigDir"
            )
        log.info("access control is on, %s", "strict" if self.strict else "in RocketMQ's way (aclStrict=false)")
        for line in of_start(rules, strict=self.strict):
            log.warning("%s", line)

    async def watch(self) -> None:
        """Follow the files and the settings until cancelled."""
        if self.enabled:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.table.watch)
                nursery.start_soon(self._follow_settings)

    async def _follow_settings(self) -> None:
        """The gate needs the rate at each request, and reading the setting there costs 1 µs."""
        while True:
            self.gate.rate = self._config().requests_per_second_by_account
            await trio.sleep(LOOK_SECONDS)


class OwnSignature:
    """A hook for a server's own connections that signs once it has an account."""

    def __init__(self) -> None:
        self._signer: Signer | None = None

    def sign_as(self, credentials: Credentials) -> None:
        """Sign from here on."""
        self._signer = Signer(credentials.access_key, credentials.secret_key)

    @property
    def is_signing(self) -> bool:
        """Whether it has an account: without one, requests may be sent as frames, which hooks do not see."""
        return self._signer is not None

    def before(self, address: str, command: Command) -> None:
        """See ClientHook."""
        if self._signer is not None:
            self._signer.before(address, command)

    def after(self, address: str, command: Command, answer: Command) -> None:
        """See ClientHook."""
