"""Long runs of a hostile peer against a broker or a name server in memory: sequences of requests, passing time with
background tasks, and a restart after each, clean or as after `kill -9`.

    python -m tests.support.hostile_runs broker 1000000 SEED        # figures on stdout, an exit code of 1 at a failure

Java: none
"""

from __future__ import annotations

import inspect
import logging
import resource
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import trio
from trio.testing import MockClock

from rocketlet.access.config import AccessConfig
from rocketlet.broker.broker import Broker
from rocketlet.broker.config import BrokerConfig
from rocketlet.common import java_properties
from rocketlet.common.clock import TrioWallClock
from rocketlet.common.config_file import ConfigFile, Loaded, load
from rocketlet.common.settings import settings_of
from rocketlet.metrics.config import MetricsConfig
from rocketlet.namesrv.config import NamesrvConfig, with_config_store_path
from rocketlet.namesrv.memory_files import MemoryFiles
from rocketlet.namesrv.namesrv import NameServer
from rocketlet.remoting.command import Command
from rocketlet.remoting.config import PoolConfig, ServerConfig
from rocketlet.remoting.connection_pool import ConnectionPool
from rocketlet.remoting.faults import Faults
from rocketlet.remoting.frame_codec import FrameDecoder
from rocketlet.remoting.handler import Handler, HandlerTable, Request
from rocketlet.remoting.memory_network import MemoryNetwork
from rocketlet.remoting.request_codes import RequestCode, request_name
from rocketlet.replication.config import ReplicationConfig
from rocketlet.store.config import StoreConfig
from rocketlet.store.memory_disk import MemoryDisk
from tests.support.holds import Holds
from tests.support.hostile_peer import HostilePeer
from tests.support.memory_broker import ROOT, SMALL_STORE, Client
from tests.support.mutations import frames_to
from tests.support.virtual_time import START_MS

VECTORS = Path(__file__).parent.parent / "vectors"
CONFIG = "broker.conf"
LONGEST_RECORDED = 2000
PAUSES = (0.0, 0.0, 0.001, 0.5, 3.0, 11.0, 61.0, 200.0)
LONGEST_LIFE = 6000.0  # s of virtual time, stopping included
# After these a broker must accept and deliver messages again, whatever its settings were.
USABLE = {
    "brokerPermission": "6", "autoCreateTopicEnable": "true", "startAcceptSendRequestTimeStamp": "0",
    "diskFreeFloor": "0", "diskSpaceWarningLevelRatio": "99", "maxMessageSize": "65536",
    "pullThreadPoolQueueCapacity": "1000", "maxTransferBytesOnMessageInMemory": "262144",
    "waitTimeMillsInSendQueue": "2000", "waitTimeMillsInPullQueue": "5000", "autoCreateSubscriptionGroup": "true",
    "flushDiskType": "ASYNC_FLUSH", "disableConsumeIfConsumerReadSlowly": "false",
}  # fmt: skip


@dataclass
class Figures:
    """The figures of a run."""

    frames: int = 0
    restarts: int = 0
    codes: Counter[int] = field(default_factory=Counter)
    answers: Counter[int] = field(default_factory=Counter)
    holds: Holds = field(default_factory=Holds)

    def lines(self) -> list[str]:
        slow = sorted(self.holds.longest.items(), key=lambda item: -item[1])[:12]
        return [
            f"{self.frames} frames to {len(self.codes)} request codes, {self.restarts} restarts;"
            f" resident at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB",
            "answers: " + ", ".join(f"{code}: {count}" for code, count in self.answers.most_common()),
            "longest hold of the loop, CPU ms: " + ", ".join(f"{kind} {seconds * 1000:.1f}" for kind, seconds in slow),
        ]


class HandlerWatch(Faults):
    """Keeps the table of handlers, and notes which of them a step of the loop is about."""

    def __init__(self, figures: Figures) -> None:
        super().__init__()
        self.table: HandlerTable = {}
        self._figures = figures

    def wrap(self, table: HandlerTable) -> HandlerTable:
        self.table = table
        return {code: self._measured(int(code), handler) for code, handler in table.items()}

    def _measured(self, code: int, handler: Handler) -> Handler:
        function, holds, name = handler.function, self._figures.holds, request_name(code)

        def measured(request: Request) -> Any:
            holds.attribute_step(name)
            return function(request)

        async def in_steps(request: Request) -> Any:
            with holds.attribute_task(name):
                return await function(request)  # type: ignore[misc]

        return replace(handler, function=in_steps if inspect.iscoroutinefunction(function) else measured)


class FailedHandlers(logging.Handler):
    """Failed handlers, from the log."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []
        self.formatter = logging.Formatter("%(message)s")

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.messages.append(self.format(record))

    def __enter__(self) -> FailedHandlers:
        logging.getLogger("rocketlet").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("rocketlet").removeHandler(self)


async def attack(
    network: MemoryNetwork, address: str, peer: HostilePeer, rng: Random, count: int, figures: Figures
) -> None:
    """Send frames on a few connections, some of which read, close or fall silent, while time passes."""
    async with trio.open_nursery() as nursery:
        streams: list[Any] = []
        for _ in range(count):
            if not streams or (len(streams) < 4 and rng.random() < 0.1):
                stream = await network.dial(address)
                streams.append(stream)
                if rng.random() < 0.9:
                    nursery.start_soon(_read, stream, figures)
            code, frame = peer.frame()
            figures.frames += 1
            figures.codes[code] += 1
            stream = rng.choice(streams)
            try:
                with trio.move_on_after(1):
                    await stream.send_all(frame)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                streams.remove(stream)
                await stream.aclose()
            if rng.random() < 0.03:
                await trio.sleep(rng.choice(PAUSES))
            if streams and rng.random() < 0.01:
                stream = streams.pop(rng.randrange(len(streams)))
                await stream.aclose()
        await trio.sleep(rng.choice(PAUSES))
        nursery.cancel_scope.cancel()
        for stream in streams:
            await stream.aclose()


async def _read(stream: Any, figures: Figures) -> None:
    """Count the answers; a request of the broker's (to a client) gets none."""
    decoder = FrameDecoder()
    try:
        while data := await stream.receive_some():
            figures.answers.update(command.code for command in decoder.feed(data) if command.is_response)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass


# -- a broker


def broker_settings(disk: MemoryDisk) -> Loaded:
    """The settings in its file, including changes by the last run. Raises SettingsError."""
    text = disk.read_file(CONFIG) or b""
    small = {
        setting.key: str(SMALL_STORE[setting.field])
        for setting in settings_of(StoreConfig)
        if setting.field in SMALL_STORE
    }
    return load(
        BrokerConfig, StoreConfig, ReplicationConfig, ServerConfig, PoolConfig, MetricsConfig, AccessConfig,
        file=ConfigFile(CONFIG, java_properties.parse(java_properties.decode(text))),
        flags={**small, "brokerName": "broker-a", "storePathRootDir": ROOT},
    )  # fmt: skip


async def broker_life(disk: MemoryDisk, now: int, rng: Random, count: int, figures: Figures) -> tuple[MemoryDisk, int]:
    """One run of a broker: it starts, serves, is attacked, serves, and stops or is killed. Returns its disk and the
    time."""
    network, watch, clock = MemoryNetwork(), HandlerWatch(figures), TrioWallClock(now)
    broker = Broker(broker_settings(disk), network, disk, clock=clock, rng=rng, faults=watch)
    with trio.fail_after(LONGEST_LIFE):
        async with trio.open_nursery() as nursery:
            await nursery.start(broker.run)
            async with ConnectionPool(network, PoolConfig()) as pool:
                client = Client(pool, broker.identity.address)
                await _check_usable(client)
                settings = [
                    setting for config in broker.settings.loaded.configs for setting in settings_of(type(config))
                ]
                peer = HostilePeer(watch.table, settings, rng, frames_to("broker", VECTORS, LONGEST_RECORDED))
                peer.log_offsets = lambda: _random_record(broker, rng)
                await attack(network, client.address, peer, rng, count, figures)
                await _check_usable(client)
            # A copy: as it is when the process is killed now.
            last_disk = disk.copy() if rng.random() < 0.5 else disk
            nursery.cancel_scope.cancel()
    return last_disk, clock()


def _random_record(broker: Broker, rng: Random) -> int:
    queues = [queue for queue in broker.store.queues if queue.end > queue.begin]
    if not queues:
        return 0
    queue = rng.choice(queues)
    entry = queue.entry(rng.randrange(queue.begin, queue.end))
    return entry[0] if entry is not None else 0


async def _check_usable(client: Client) -> None:
    """Reset settings that refuse by design; then it must accept and deliver a message."""
    text = "\n".join(f"{key}={value}" for key, value in USABLE.items())
    answer = await client.call(RequestCode.UPDATE_BROKER_CONFIG, None, text.encode())
    assert answer.code == 0, answer.remark
    promoted = await client.call(RequestCode.PROMOTE_SLAVE, {"force": "true"})
    sent = await _until_sent(client, f"promoted: {promoted.code} {promoted.remark}")
    ext: Mapping[str, str] = sent.ext or {}
    pulled = await client.pull("Alive", int(ext["queueId"]), int(ext["queueOffset"]), consumerGroup="Alive")
    assert [record.body for record in pulled.records][:1] == [b"alive"], (pulled.code, pulled.remark)


async def _until_sent(client: Client, role: str) -> Command:
    for _ in range(20):
        sent = await client.send("Alive", b"alive")
        if sent.code in (0, 10, 11, 12):
            return sent
        await trio.sleep(1)
    raise AssertionError(f"{sent.code} {sent.remark}; {role}")


def run_broker(frames: int, seed: int, *, sequence: int = 150) -> Figures:
    """Lives of a broker until so many frames were sent; each tenth one begins with a new directory."""
    rng, figures, disk, now = Random(seed), Figures(), MemoryDisk(), START_MS
    with FailedHandlers() as failed_handlers, figures.holds:
        while figures.frames < frames:
            count = min(sequence, frames - figures.frames)
            disk, now = trio.run(
                broker_life,
                disk,
                now,
                rng,
                count,
                figures,
                clock=MockClock(autojump_threshold=0),
                instruments=[figures.holds],
            )
            figures.restarts += 1
            assert not failed_handlers.messages, failed_handlers.messages[0]
            if figures.restarts % 10 == 0:
                disk, now = MemoryDisk(), START_MS
    return figures


# -- a name server


def run_namesrv(frames: int, seed: int, *, sequence: int = 300) -> Figures:
    """The same for a name server, which keeps two files."""
    rng, figures, files = Random(seed), Figures(), dict[str, bytes]()
    with FailedHandlers() as failed_handlers, figures.holds:
        while figures.frames < frames:
            count = min(sequence, frames - figures.frames)
            trio.run(
                namesrv_life,
                files,
                rng,
                count,
                figures,
                clock=MockClock(autojump_threshold=0),
                instruments=[figures.holds],
            )
            figures.restarts += 1
            assert not failed_handlers.messages, failed_handlers.messages[0]
            if figures.restarts % 10 == 0:
                files = {}
    return figures


async def namesrv_life(file_contents: dict[str, bytes], rng: Random, count: int, figures: Figures) -> None:
    network, watch = MemoryNetwork(), HandlerWatch(figures)
    text = file_contents.get(CONFIG, b"")
    loaded = load(
        NamesrvConfig, ServerConfig, MetricsConfig, AccessConfig,
        file=ConfigFile(CONFIG, java_properties.parse(java_properties.decode(text))),
        flags={"kvConfigPath": "kv.json"},
    )  # fmt: skip
    server = NameServer(with_config_store_path(loaded), network, files=MemoryFiles(file_contents), faults=watch)
    with trio.fail_after(LONGEST_LIFE):
        async with trio.open_nursery() as nursery:
            address: str = await nursery.start(server.run)
            settings = [setting for config in loaded.configs for setting in settings_of(type(config))]
            peer = HostilePeer(watch.table, settings, rng, frames_to("namesrv", VECTORS, LONGEST_RECORDED))
            await attack(network, address, peer, rng, count, figures)
            async with ConnectionPool(network, PoolConfig()) as pool:
                for code in (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, RequestCode.GET_BROKER_CLUSTER_INFO):
                    answer = await pool.call(address, Command(code), 30)
                    assert answer.code == 0, answer.remark
            nursery.cancel_scope.cancel()


def main() -> None:
    logging.disable(logging.WARNING)
    logging.getLogger().addHandler(logging.NullHandler())
    server, frames, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0
    figures = {"broker": run_broker, "namesrv": run_namesrv}[server](frames, seed)
    sys.stdout.write("\n".join(figures.lines()) + "\n")


if __name__ == "__main__":
    main()
