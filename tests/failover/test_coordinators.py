"""The coordinator in memory and the one on etcd behave alike."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import trio

from rocketlet.failover.config import FailoverConfig
from rocketlet.failover.coordinator import Coordinator, CoordinatorAway, GroupState, Presence
from rocketlet.failover.etcd_coordinator import etcd_coordination
from rocketlet.failover.memory_coordinator import MemoryCoordination
from rocketlet.remoting.transport import TcpNetwork
from tests.support.etcd import EtcdCluster, etcd_cluster, etcd_program, needs_etcd

LEASE = 2.0
Sessions = Callable[[str], Coordinator]


@asynccontextmanager
async def closing_all() -> AsyncIterator[Callable[[Coordinator], Coordinator]]:
    made: list[Coordinator] = []

    def keep(one: Coordinator) -> Coordinator:
        made.append(one)
        return one

    try:
        yield keep
    finally:
        for one in made:
            await one.aclose()


@asynccontextmanager
async def sessions(kind: str, directory: Path, **settings: str) -> AsyncIterator[Sessions]:
    if kind == "memory":
        hub = MemoryCoordination()
        yield lambda member: hub.session(member, LEASE)
        return
    with etcd_cluster(directory) as etcd:
        config = FailoverConfig(etcd_endpoints=etcd.endpoints, **settings)
        async with closing_all() as made:
            make = etcd_coordination(config, "c", "b", TcpNetwork())
            yield lambda member: made(make(member, LEASE))


KINDS = ["memory", pytest.param("etcd", marks=[pytest.mark.process, pytest.mark.slow, needs_etcd])]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
async def test_one_candidate_is_elected_and_only_a_current_reader_replaces_the_state(kind: str, tmp_path: Path) -> None:
    async with sessions(kind, tmp_path) as session, trio.open_nursery() as nursery:
        one, two = session("1/a"), session("2/b")
        nursery.start_soon(one.run)
        nursery.start_soon(two.run)
        assert (await one.read()).revision == 0
        await one.announce(Presence("one:1", "one:2", 5))
        await two.announce(Presence("two:1", "two:2", 7))
        first = GroupState("g", 1, "1/a", ("1/a",))
        revision = await one.elect(first, 0, over=False)
        assert revision
        assert not await two.elect(GroupState("g", 1, "2/b", ("2/b",)), 0, over=False)
        assert not await two.elect(GroupState("g", 2, "2/b", ("2/b",)), revision, over=False), "the lease is taken"
        view = await two.read()
        assert (view.state, view.revision, view.leased) == (first, revision, True)
        assert view.members == {"1/a": Presence("one:1", "one:2", 5), "2/b": Presence("two:1", "two:2", 7)}
        both = msgspec.structs.replace(first, insync=("1/a", "2/b"))
        later = await one.replace(both, revision)
        assert later > revision
        assert not await one.replace(first, revision), "that state is gone"
        assert not await one.renew(later), "nobody has lost the lease"
        given = await one.replace(msgspec.structs.replace(both, resigned=True), later, release=True)
        assert given > later
        assert not (await two.read()).leased
        assert await two.elect(GroupState("g", 2, "2/b", ("2/b",)), given, over=False)
        nursery.cancel_scope.cancel()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
async def test_a_silent_holder_loses_its_lease_and_watchers_wake(kind: str, tmp_path: Path) -> None:
    async with sessions(kind, tmp_path) as session, trio.open_nursery() as nursery:
        one, two = session("1/a"), session("2/b")
        nursery.start_soon(two.run)
        await two.announce(Presence("two:1", "two:2", 7))
        revision = await one.elect(GroupState("g", 1, "1/a", ("1/a",)), 0, over=False)
        view = await two.read()
        assert view.leased
        with trio.fail_after(10 * LEASE):
            while (view := await two.read()).leased:
                await two.change(view)
        assert set(view.members) == {"2/b"}
        assert await one.renew(revision)
        assert (await two.read()).leased
        nursery.cancel_scope.cancel()


@pytest.mark.process
@pytest.mark.slow
@needs_etcd
async def test_an_unreachable_etcd_is_reported_and_recovers(tmp_path: Path) -> None:
    with etcd_cluster(tmp_path) as etcd:
        async with closing_all() as made:
            config = FailoverConfig(etcd_endpoints=etcd.endpoints)
            one = made(etcd_coordination(config, "c", "b", TcpNetwork())("1/a", LEASE))
            revision = await one.elect(GroupState("g", 1, "1/a", ("1/a",)), 0, over=False)
            etcd.stop(0)
            with pytest.raises(CoordinatorAway):
                await one.read()
            with pytest.raises(CoordinatorAway):
                await one.replace(GroupState("g", 1, "1/a", ("1/a",)), revision)
            etcd.start(0)
            etcd.wait()
            assert (await one.read()).revision == revision


@pytest.mark.process
@pytest.mark.slow
@needs_etcd
async def test_one_of_three_endpoints_may_be_down(tmp_path: Path) -> None:
    with etcd_cluster(tmp_path, 3) as etcd:
        async with closing_all() as made:
            config = FailoverConfig(etcd_endpoints=etcd.endpoints)
            one = made(etcd_coordination(config, "c", "b", TcpNetwork())("1/a", LEASE))
            assert await one.elect(GroupState("g", 1, "1/a", ("1/a",)), 0, over=False)
            for number in range(3):
                etcd.stop(number)
                with trio.fail_after(120):
                    while True:
                        try:
                            assert (await one.read()).state.epoch == 1
                            break
                        except CoordinatorAway:
                            await trio.sleep(0.1)
                etcd.start(number)
                etcd.wait()


@pytest.mark.process
@pytest.mark.slow
@needs_etcd
async def test_user_and_tls(tmp_path: Path) -> None:
    import trustme

    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    flags = ("--cert-file", str(tmp_path / "cert.pem"), "--key-file", str(tmp_path / "key.pem"))
    with etcd_cluster(tmp_path, 1, *flags, scheme="https") as etcd:
        async with closing_all() as made:
            _with_accounts(etcd, tmp_path)
            settings = {"etcd_trust_cert_path": str(tmp_path / "ca.pem")}
            right = FailoverConfig(etcd_endpoints=etcd.endpoints, etcd_user="root", etcd_password="s3cret", **settings)
            one = made(etcd_coordination(right, "c", "b", TcpNetwork())("1/a", LEASE))
            with trio.fail_after(120):
                while True:
                    try:
                        assert await one.elect(GroupState("g", 1, "1/a", ("1/a",)), 0, over=False)
                        break
                    except CoordinatorAway:
                        await trio.sleep(0.2)  # it serves before it has a leader
            assert (await one.read()).leased
            for wrong in (
                FailoverConfig(etcd_endpoints=etcd.endpoints, etcd_user="root", etcd_password="wrong", **settings),
                FailoverConfig(etcd_endpoints=etcd.endpoints, **settings),
                FailoverConfig(etcd_endpoints=etcd.endpoints, etcd_user="root", etcd_password="s3cret"),
            ):
                with pytest.raises(CoordinatorAway):
                    await made(etcd_coordination(wrong, "c", "b", TcpNetwork())("1/a", LEASE)).read()


def _with_accounts(etcd: EtcdCluster, directory: Path) -> None:
    import os
    import subprocess

    program = etcd_program()
    assert program is not None
    control = [f"{program}ctl", "--endpoints", etcd.endpoints[0], "--cacert", str(directory / "ca.pem")]
    for words in (["user", "add", "root:s3cret"], ["user", "grant-role", "root", "root"], ["auth", "enable"]):
        subprocess.run([*control, *words], check=True, capture_output=True, env={**os.environ, "ETCDCTL_API": "3"})
