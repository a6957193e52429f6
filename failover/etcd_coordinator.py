"""The coordinator on etcd. See `coordinator.py` for the contract and `etcd_client.py` for the calls.

    PREFIX/CLUSTER/NAME/state              the group's state, as JSON; its mod_revision is the revision
    PREFIX/CLUSTER/NAME/leader             the leader's name, with the leader's lease
    PREFIX/CLUSTER/NAME/members/MEMBER     where a replica is, as JSON, with its lease

Every change is one transaction that compares the state's revision. One lease per process carries both keys.

Java: none
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

import msgspec
import trio

from rocketlet.failover.config import FailoverConfig
from rocketlet.failover.coordinator import CoordinatorAway, GroupState, Presence, View
from rocketlet.failover.etcd_client import EtcdAway, EtcdClient, EtcdRefused, bytes64, text64
from rocketlet.remoting.transport import Network

log = logging.getLogger("rocketlet.failover.etcd_coordinator")

_RETRY_SECONDS = 0.2


def etcd_coordination(
    config: FailoverConfig, cluster: str, name: str, network: Network
) -> Callable[[str, float], EtcdCoordinator]:
    """Creates the sessions of members of that group. Raises SettingsError if certificates cannot be read."""
    secure = None
    if any(endpoint.startswith("https") for endpoint in config.etcd_endpoints):
        secure = _tls(config)
    prefix = f"{config.etcd_prefix}/{cluster}/{name}/"

    def session(member: str, lease_seconds: float) -> EtcdCoordinator:
        client = EtcdClient(network, config.etcd_endpoints, config.etcd_user, config.etcd_password, secure)
        return EtcdCoordinator(client, prefix, member, lease_seconds)

    return session


def _tls(config: FailoverConfig) -> Any:
    import ssl  # 20 ms

    from rocketlet.common.settings import SettingsError

    try:
        context = ssl.create_default_context(cafile=config.etcd_trust_cert_path or None)
        if config.etcd_cert_path:
            context.load_cert_chain(config.etcd_cert_path, config.etcd_key_path)
    except (OSError, ssl.SSLError) as error:
        paths = (config.etcd_trust_cert_path, config.etcd_cert_path, config.etcd_key_path)
        raise SettingsError(
            f"etcdTrustCertPath, etcdCertPath, etcdKeyPath ({', '.join(filter(None, paths))}): {error}"
        ) from error
    return context


class EtcdCoordinator:
    """One replica's session. See Coordinator."""

    def __init__(self, client: EtcdClient, prefix: str, member: str, lease_seconds: float) -> None:
        self._client = client
        self._state_key = text64(f"{prefix}state")
        self._leader_key = text64(f"{prefix}leader")
        self._member_key = text64(f"{prefix}members/{member}")
        self._range = {"key": text64(prefix), "range_end": text64(prefix[:-1] + "0")}  # "0" follows "/"
        self._prefix = prefix
        self._member = member
        self._lease_seconds = lease_seconds
        self._lease = ""
        self._grant_lock = trio.Lock()
        self._presence: Presence | None = None
        self._read_revision = 0  # etcd's revision of the last reading

    async def read(self) -> View:
        """See Coordinator."""
        answer = await self._call("/v3/kv/range", self._range, idempotent=True)
        self._read_revision = int(answer["header"]["revision"])
        state, revision, leased = GroupState(), 0, False
        members: dict[str, Presence] = {}
        try:
            for pair in answer.get("kvs", ()):
                key = bytes64(pair["key"]).decode()[len(self._prefix) :]
                if key == "state":
                    state = msgspec.json.decode(bytes64(pair["value"]), type=GroupState)
                    revision = int(pair["mod_revision"])
                elif key == "leader":
                    leased = True
                elif key.startswith("members/"):
                    members[key.removeprefix("members/")] = msgspec.json.decode(bytes64(pair["value"]), type=Presence)
        except (msgspec.DecodeError, ValueError, KeyError) as error:
            raise CoordinatorAway(f"what etcd has of {self._prefix} cannot be read: {error}") from error
        return View(state, revision, leased, members)

    async def change(self, seen: View) -> None:
        """See Coordinator."""
        request = {"create_request": {**self._range, "start_revision": str(self._read_revision + 1)}}
        try:
            # Not longer, since this is also how a dead etcd is noticed.
            with trio.move_on_after(self._lease_seconds / 2):
                async with self._client.stream("/v3/watch", request) as answers:
                    while (answer := await answers.next()) is not None:
                        result = answer.get("result", {})
                        if result.get("events") or result.get("canceled") or "error" in answer:
                            return
        except EtcdAway as away:
            raise CoordinatorAway(str(away)) from away

    async def announce(self, presence: Presence) -> None:
        """See Coordinator."""
        self._presence = presence
        put = {"key": self._member_key, "value": text64(msgspec.json.encode(presence))}
        await self._with_lease("/v3/kv/put", lambda lease: {**put, "lease": lease}, idempotent=True)

    async def elect(self, state: GroupState, revision: int, *, over: bool) -> int:
        """See Coordinator."""
        compare = [self._compare_revision(revision)]
        if not over:
            compare.append(self._compare_no_leader())
        return await self._transact(compare, lambda lease: [self._put_state(state), self._put_leader(lease)])

    async def replace(self, state: GroupState, revision: int, *, release: bool = False) -> int:
        """See Coordinator."""
        steps: list[object] = [self._put_state(state)]
        if release:
            steps.append({"requestDeleteRange": {"key": self._leader_key}})
        return await self._transact([self._compare_revision(revision)], lambda _: steps)

    async def renew(self, revision: int) -> bool:
        """See Coordinator."""
        compare = [self._compare_revision(revision), self._compare_no_leader()]
        return bool(await self._transact(compare, lambda lease: [self._put_leader(lease)]))

    async def run(self) -> None:
        """See Coordinator."""
        pause = self._lease_seconds / 3
        while True:
            await trio.sleep(pause)
            pause = self._lease_seconds / 3
            if not self._lease:
                continue
            try:
                answer = await self._call("/v3/lease/keepalive", {"ID": self._lease}, idempotent=True)
                if int(answer.get("result", {}).get("TTL", 0)) <= 0:
                    log.warning("the lease at etcd has ended; taking another one")
                    self._lease = ""
                    if self._presence is not None:
                        await self.announce(self._presence)
            except CoordinatorAway:
                pause = _RETRY_SECONDS  # the readers report it

    async def aclose(self) -> None:
        """See Coordinator."""
        await self._client.aclose()

    # ---- inside

    async def _get_lease(self) -> str:
        async with self._grant_lock:
            if not self._lease:
                answer = await self._call(
                    "/v3/lease/grant", {"TTL": str(math.ceil(self._lease_seconds))}, idempotent=True
                )
                self._lease = str(answer["ID"])
            return self._lease

    async def _with_lease(self, path: str, body: Callable[[str], object], *, idempotent: bool = False) -> Any:
        """A call with our lease; with a new one if it has expired."""
        try:
            return await self._call(path, body(await self._get_lease()), idempotent=idempotent)
        except CoordinatorAway as away:
            if "lease not found" not in str(away):
                raise
        self._lease = ""  # refused, so nothing was done
        return await self._call(path, body(await self._get_lease()), idempotent=idempotent)

    async def _transact(self, compare: list[object], steps: Callable[[str], list[Any]]) -> int:
        """One transaction. Returns its revision; 0 if the comparison failed."""
        answer = await self._with_lease("/v3/kv/txn", lambda lease: {"compare": compare, "success": steps(lease)})
        return int(answer["header"]["revision"]) if answer.get("succeeded") else 0

    def _compare_revision(self, revision: int) -> object:
        return {"key": self._state_key, "target": "MOD", "result": "EQUAL", "mod_revision": str(revision)}

    def _compare_no_leader(self) -> object:
        return {"key": self._leader_key, "target": "CREATE", "result": "EQUAL", "create_revision": "0"}

    def _put_state(self, state: GroupState) -> object:
        return {"requestPut": {"key": self._state_key, "value": text64(msgspec.json.encode(state))}}

    def _put_leader(self, lease: str) -> object:
        return {"requestPut": {"key": self._leader_key, "value": text64(self._member), "lease": lease}}

    async def _call(self, path: str, body: object, *, idempotent: bool = False) -> Any:
        try:
            return await self._client.call(path, body, max(self._lease_seconds / 2, 1.0), idempotent=idempotent)
        except (EtcdAway, EtcdRefused, KeyError, ValueError) as error:
            raise CoordinatorAway(str(error)) from error
