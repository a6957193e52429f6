"""Starting and stopping a broker: the order of steps, what survives, and what fails a start."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from rocketlet.broker.broker import Broker
from rocketlet.broker.config import BrokerConfig, reachable
from rocketlet.broker.own_address import host_name, own_address
from rocketlet.broker.run_time_settings import RunTimeSettings
from rocketlet.common.clock import TrioWallClock
from rocketlet.common.config_file import load
from rocketlet.common.errors import leaves
from rocketlet.common.message_record import Record
from rocketlet.remoting.errors import ListenFailed
from rocketlet.remoting.memory_network import MemoryNetwork
from rocketlet.remoting.protocol.configuration import CreateTopicHeader, SubscriptionGroupConfig
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.store.errors import FlushFailed, StoreLocked
from rocketlet.store.memory_disk import MemoryDisk
from tests.support.memory_broker import ROOT, Client, loaded_settings, memory_broker, tags
from tests.support.virtual_time import START_MS


async def bodies(client: Client, topic: str, queue_id: int = 0) -> list[bytes]:
    found: list[Record] = []
    while True:
        answer = await client.pull(topic, queue_id, len(found))
        if answer.code != 0:
            return [record.body for record in found]
        found += answer.records


async def fill(client: Client) -> None:
    await client.call(RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicHeader("T", 4, 4))  # type: ignore[arg-type]
    for n in range(40):
        await client.send("T", b"%d" % n, n % 4)
    group = SubscriptionGroupConfig(groupName="G", retryMaxTimes=2).to_json()
    await client.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, group)
    place = {"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": "7"}
    await client.call(RequestCode.UPDATE_CONSUMER_OFFSET, place)


async def check_filled(client: Client) -> None:
    for queue_id in range(4):
        assert await bodies(client, "T", queue_id) == [b"%d" % n for n in range(queue_id, 40, 4)]
    groups = await client.call(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    assert b'"groupName":"G"' in bytes(groups.body)
    more = await client.send("T", b"more")
    assert more.ext is not None
    assert more.ext["queueOffset"] == "10"


async def test_everything_survives_a_stop(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        await fill(one)
    async with memory_broker(disk=one.disk) as again:
        await check_filled(again)
        assert again.broker.tables.offsets.get("G", "T", 0) == 7


async def test_everything_survives_a_kill(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        await fill(one)
        await trio.sleep(6)
        disk = one.disk.copy()
    async with memory_broker(disk=disk) as again:
        await check_filled(again)
        assert again.broker.tables.offsets.get("G", "T", 0) == 7


async def test_a_broken_table_is_read_from_its_backup(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with memory_broker() as one:
        await fill(one)
    for name in ("topics", "subscriptionGroup", "consumerOffset", "delayOffset", "consumerFilter"):
        one.disk.write_file(f"{ROOT}/config/{name}.json", b"\0" * 100)
        one.disk.write_file(f"{ROOT}/config/{name}.json.bak", b"{broken")
    async with memory_broker(disk=one.disk) as again:
        assert "consumerOffset.json.bak" in caplog.text
        assert (await again.send("T")).code == 0


async def test_tables_deleted_while_it_runs_are_written_again(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        await fill(one)
        await trio.sleep(20)
        tables = {path for path in one.disk.files() if "/config/" in path and path.endswith(".json")}
        for path in tables:
            one.disk.remove(path)
        await trio.sleep(30)
        assert tables <= one.disk.files().keys()
        one.disk.remove(f"{ROOT}/config/topics.json")
    async with memory_broker(disk=one.disk) as again:
        await check_filled(again)


async def test_the_vip_port_serves_everything_but_pulls(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        await one.send("T")
        vip = Client(one.pool, "127.0.0.1:10909")
        assert (await vip.send("T", b"vip")).code == 0
        assert (await vip.heartbeat("c", "CG", tags("T"))).code == 0
        assert (await vip.call(RequestCode.GET_ALL_TOPIC_CONFIG)).code == 0
        for code in (11, 361):
            assert (await vip.pull("T", 0, 0)).code == 3, code
        assert await bodies(one, "T") == [b"body", b"vip"]


async def test_port_0_takes_a_free_one_and_has_no_vip_port(autojump_clock: MockClock) -> None:
    async with memory_broker(listen_port=0) as one:
        port = int(one.address.rpartition(":")[2])
        assert port > 0
        answer = await one.send("T")
        assert answer.ext is not None
        assert int(answer.ext["msgId"][8:16], 16) == port


@pytest.mark.parametrize(
    ("settings", "told", "ha"),
    [
        ({}, "127.0.0.1:10911", "127.0.0.1:10912"),
        ({"broker_ip1": "10.1.1.1"}, "10.1.1.1:10911", "10.1.1.1:10912"),
        ({"broker_ip1": "10.1.1.1", "broker_ip2": "10.2.2.2"}, "10.1.1.1:10911", "10.2.2.2:10912"),
        ({"bind_address": "10.3.3.3"}, "10.3.3.3:10911", "10.3.3.3:10912"),
        ({"broker_ip1": "2001:db8::1"}, "[2001:db8::1]:10911", "[2001:db8::1]:10912"),
    ],
)
async def test_addresses_given_to_clients(
    autojump_clock: MockClock, settings: dict[str, object], told: str, ha: str
) -> None:
    async with memory_broker(**settings) as one:
        assert (one.broker.identity.address, one.broker.identity.ha_address) == (told, ha)
        assert (await one.send("T")).code == 0


async def test_ids_and_records_hold_an_ipv6_store_host(autojump_clock: MockClock) -> None:
    async with memory_broker(broker_ip1="2001:db8::1") as one:
        await one.send("T")
        answer = await one.send("T")
        assert answer.ext is not None
        assert answer.ext["msgId"].startswith("20010DB8000000000000000000000001")
        assert len(answer.ext["msgId"]) == 56
        record = (await one.pull("T", 0, 0)).records[0]
        assert (len(record.store_host), record.sys_flag & 0x20) == (20, 0x20)


def broker_on(disk: MemoryDisk, network: MemoryNetwork | None = None, **settings: object) -> Broker:
    return Broker(loaded_settings(**settings), network or MemoryNetwork(), disk, clock=TrioWallClock(START_MS))


async def test_a_store_in_use_fails_the_start(autojump_clock: MockClock) -> None:
    async with memory_broker() as one:
        with pytest.raises(StoreLocked):
            await broker_on(one.disk).run()
        assert (await one.send("T")).code == 0


@pytest.mark.parametrize("port", [10911, 10909])
async def test_a_port_in_use_fails_the_start(autojump_clock: MockClock, port: int) -> None:
    network = MemoryNetwork()
    taken = await network.listen("127.0.0.1", port)
    disk = MemoryDisk()
    with pytest.raises(ExceptionGroup) as caught:
        await broker_on(disk, network).run()
    assert [type(error) for error in leaves(caught.value)] == [ListenFailed]
    await taken.aclose()
    async with memory_broker(disk=disk) as again:  # it has released the store
        assert (await again.send("T")).code == 0


async def test_a_flush_that_fails_ends_the_broker_loudly(autojump_clock: MockClock) -> None:
    disk = MemoryDisk()
    with pytest.raises(ExceptionGroup) as caught:
        async with memory_broker(disk=disk) as one:
            await one.send("T")
            disk.fail_next_flush = True
            await one.send("T", b"x" * 20_000)
            await trio.sleep(30)
    assert FlushFailed in [type(error) for error in leaves(caught.value)]


async def test_the_order_of_a_stop(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        async with memory_broker() as one:
            await fill(one)
    lines = [record.message for record in caplog.records if record.name == "rocketlet.broker.broker"]
    words = ["starts on", "is ready", "stops: it unregisters", "all connections are closed", "stopped"]
    places = [next(place for place, line in enumerate(lines) if word in line) for word in words]
    assert places == sorted(places)


async def test_requests_in_progress_at_a_stop_are_answered(autojump_clock: MockClock) -> None:
    codes = []
    async with memory_broker() as one:
        await one.send("T")

        async def pull() -> None:
            answer = await one.pull("T", 0, 1, sysFlag=6, suspendTimeoutMillis=15_000)
            codes.append(answer.code)

        async with trio.open_nursery() as nursery, trio.open_nursery() as outer:
            nursery.start_soon(pull)
            await trio.sleep(1)
            outer.start_soon(one.broker._withdraw)
            await trio.sleep(0.5)
        answer = await one.send("T")
        assert answer.code == 14
    assert codes == [19]


async def test_changed_settings_are_saved_and_the_files_comments_kept(autojump_clock: MockClock) -> None:
    disk = MemoryDisk()
    disk.write_file("etc/broker.conf", b"# mine\ndeleteWhen=04\n# end\n")
    loaded = loaded_settings()
    taken: list[object] = []
    settings = RunTimeSettings(replace(loaded, file_name="etc/broker.conf"), disk, TrioWallClock(0), taken.append)
    changed = await settings.update({"deleteWhen": "05", "fileReservedTime": "48"})
    assert changed == {"deleteWhen": "05", "fileReservedTime": "48"}
    assert disk.read_file("etc/broker.conf") == b"# mine\ndeleteWhen=05\n# end\nfileReservedTime=48\n"
    assert disk.read_file("etc/broker.conf.bak") == b"# mine\ndeleteWhen=04\n# end\n"
    assert len(taken) == 1
    assert await settings.update({"deleteWhen": "05"}) == {}


def test_a_broker_without_a_name_takes_its_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "my.host.example")
    assert host_name() == "my-host-example"


def test_the_broker_chooses_an_address_of_this_host() -> None:
    parts = own_address(["127.0.0.1:9876"]).split(".")
    assert len(parts) == 4
    assert own_address(["no.such.host.invalid:1"]).count(".") == 3


@pytest.mark.parametrize("steps", [*range(12), 15, 20, 30])
async def test_a_start_may_be_cancelled_at_any_moment(autojump_clock: MockClock, steps: int) -> None:
    """It ends before it listens, or in order; and the next start finds everything."""
    async with memory_broker() as one:
        await one.send("T")
        disk = one.disk.copy()
    network = MemoryNetwork()
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(nursery.start, broker_on(disk, network).run)
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
    assert network._listeners == {}
    async with memory_broker(disk=disk) as again:
        assert await bodies(again, "T") == [b"body"]


async def test_a_stopped_start_does_not_wait_for_name_servers(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    network.isolate("10.0.0.9:9876")
    began = trio.current_time()
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            broker = broker_on(
                MemoryDisk(), network, namesrv_addr="10.0.0.9:9876", register_broker_timeout_mills=30_000
            )
            nursery.start_soon(nursery.start, broker.run)
            await trio.sleep(0.5)
            nursery.cancel_scope.cancel()
    assert trio.current_time() - began < 5


@pytest.mark.parametrize("part", ["store", "tables", "long_poll", "clients", "registration"])
@pytest.mark.parametrize("after", [0.0, 5.0])
async def test_a_background_failure_ends_the_broker_and_its_start(
    autojump_clock: MockClock, part: str, after: float
) -> None:
    async def fail(**_: object) -> None:
        await trio.sleep(after)
        raise ZeroDivisionError

    disk, network = MemoryDisk(), MemoryNetwork()
    broker = broker_on(disk, network)
    name = "drop_silent" if part == "clients" else "run"
    failing = type("Failing", (), {name: staticmethod(fail)})
    owner = broker.parts if part == "long_poll" else broker
    setattr(owner, part, Overlaid(getattr(owner, part), failing))
    with pytest.raises(ExceptionGroup) as caught, trio.fail_after(60):
        await broker.run()
    assert [type(error) for error in leaves(caught.value)] == [ZeroDivisionError]
    assert network._listeners == {}
    async with memory_broker(disk=disk) as again:
        assert (await again.send("T")).code == 0


class Overlaid:
    """An object with some attributes replaced."""

    def __init__(self, below: object, above: object) -> None:
        self.__dict__.update(_below=below, _above=above)

    def __getattr__(self, name: str) -> object:
        return getattr(self._above if hasattr(self._above, name) else self._below, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._below, name, value)


@pytest.mark.parametrize(
    ("flags", "bound", "vain"),
    [
        ({}, "127.0.0.1", False),
        ({"brokerIP1": "10.0.0.5"}, "0.0.0.0", False),
        ({"brokerIP1": "127.0.0.1"}, "127.0.0.1", False),
        ({"brokerIP1": "::1"}, "::1", False),
        ({"brokerIP1": "fd00::5"}, "::", False),
        ({"brokerIP2": "10.0.0.5"}, "0.0.0.0", False),
        ({"brokerIP1": "10.0.0.5", "brokerIP2": "10.1.0.5"}, "0.0.0.0", False),
        ({"brokerIP1": "10.0.0.5", "bindAddress": "127.0.0.1"}, "127.0.0.1", True),
        ({"brokerIP1": "10.0.0.5", "bindAddress": "10.0.0.5"}, "10.0.0.5", False),
    ],
)
def test_a_registered_address_is_already_listening(flags: dict[str, str], bound: str, vain: bool) -> None:
    config = reachable(load(BrokerConfig, flags=flags))[BrokerConfig]
    assert (config.bind_address, config.advertises_unreachable_address) == (bound, vain)
