"""28 GET_BROKER_RUNTIME_INFO, 315 VIEW_BROKER_STATS_DATA, 45 GET_ALL_DELAY_OFFSET: the broker in numbers.

28 is a table of text by RocketMQ's names. Values without a counterpart here (thread pool queues, the transient store
pool) say "nothing waits". 315 is one statistic over the last minute, hour and day; 1 if there is none of that name and
key. 45 is the progress of each delay level, for slaves.

Java: broker/processor/AdminBrokerProcessor.java (prepareRuntimeInfo), store/StoreStatsService.java
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial

from rocketlet.broker.at_once import at_once
from rocketlet.broker.config import Settings
from rocketlet.broker.statistics import SPANS, Carried, Rate, Statistics, number_of
from rocketlet.common.clock import monotonic_ms
from rocketlet.remoting.command import VERSION, version_name
from rocketlet.remoting.handler import Handler, HandlerTable, Refused, Reply, Request
from rocketlet.remoting.in_turns import in_turns
from rocketlet.remoting.protocol.inspection import BrokerStatsData, BrokerStatsItem, ViewBrokerStatsHeader
from rocketlet.remoting.protocol.kv import KVTable
from rocketlet.remoting.protocol.offsets import DelayOffsetTable
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.store.disk import Usage
from rocketlet.store.message_store import MessageStore

# RocketMQ shows rates over these spans, as far as the broker has run.
SECONDS = (10, 60, 600)
_UNITS = ("KiB", "MiB", "GiB", "TiB")
_POOLS = ("send", "pull", "query")
_CAPACITIES = {"send": 10_000, "pull": 100_000, "query": 20_000}


class BrokerState:
    """The broker in numbers. `delays` gives (level, place, end) of each delay queue, `usage` that of a path's disk."""

    def __init__(
        self,
        settings: Settings,
        store: MessageStore,
        statistics: Statistics,
        delays: Callable[[], Iterable[tuple[int, int, int]]],
        usage: Callable[[str], Usage],
        clock: Callable[[], int],
        group: Callable[[], dict[str, str]] = dict,
    ) -> None:
        """`group` gives the state of replicas that elect their master."""
        self._group = group
        self._settings = settings
        self._store = store
        self._statistics = statistics
        self._delays = delays
        self._usage = usage
        self._booted, self._started = clock(), monotonic_ms()

    def table(self) -> HandlerTable:
        return {
            RequestCode.GET_BROKER_RUNTIME_INFO: Handler(self.runtime_info),
            RequestCode.VIEW_BROKER_STATS_DATA: Handler(self.view_stats, ViewBrokerStatsHeader),
            RequestCode.GET_ALL_DELAY_OFFSET: Handler(self.delay_offsets),
        }

    def runtime_info(self, request: Request) -> Reply:
        at_once(self._store, partial(self._store.store_time_of, self._store.log.begin))
        return Reply(body=KVTable(self.runtime_table()).to_json())

    def runtime_table(self) -> dict[str, str]:
        """The answer to 28; metrics show the same numbers."""
        return {
            **self._of_process(),
            **self._of_traffic(),
            **self._of_store(),
            **self._of_pools(),
            **self._group(),
            **{f"scheduleMessageOffset_{level}": f"{place},{end}" for level, place, end in self._delays()},
        }

    def disk(self) -> Usage:
        """The file system that holds the log."""
        return self._usage(self._store.config.commit_log_path)

    def delay_offsets(self, request: Request) -> Reply:
        return Reply(body=DelayOffsetTable({level: place for level, place, _ in self._delays()}).to_json())

    async def view_stats(self, request: Request) -> Reply:
        header: ViewBrokerStatsHeader = request.header
        flows = self._statistics.flows_of(header.statsName, header.statsKey)
        carried = Carried(number_of(header.statsName))
        if not flows:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"The stats <{header.statsName}> <{header.statsKey}> not exist")
        await in_turns(flows, lambda flow: carried.add(flow, *SPANS))
        body = BrokerStatsData(_item(carried.rate("day")), _item(carried.rate("hour")), _item(carried.rate("minute")))
        return Reply(body=body.to_json())

    def _of_process(self) -> dict[str, str]:
        days, rest = divmod((monotonic_ms() - self._started) // 1000, 86_400)
        hours, minutes, seconds = rest // 3600, rest // 60 % 60, rest % 60
        return {
            "brokerVersionDesc": version_name(VERSION),
            "brokerVersion": str(VERSION),
            "bootTimestamp": str(self._booted),
            "runtime": f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]",
            "startAcceptSendRequestTimeStamp": str(self._settings.now.start_accept_send_request_time_stamp),
        }

    def _of_traffic(self) -> dict[str, str]:
        numbers, today = self._statistics, self._statistics.today
        put, minute = numbers.put, numbers.put_times.minute()
        return {
            "putMessageTimesTotal": str(put.calls),
            "putMessageSizeTotal": str(put.bytes),
            "putMessageAverageSize": str(put.bytes / put.messages if put.messages else 0.0),
            "putMessageEntireTimeMax": str(int(numbers.put_times.longest_ms)),
            "putMessageDistributeTime": "".join(f"[{name}]:{count} " for name, count in minute.items()),
            "putLatency99": f"{numbers.put_times.percentile(0.99):.2f}",
            "putLatency999": f"{numbers.put_times.percentile(0.999):.2f}",
            "getMessageEntireTimeMax": "0",
            "putTps": self._rates_by_span("put"),
            "getFoundTps": self._rates_by_span("found"),
            "getMissTps": self._rates_by_span("missed"),
            "getTotalTps": self._rates_by_span("fetch_calls"),
            "getTransferedTps": self._rates_by_span("fetched"),
            "msgPutTotalYesterdayMorning": str(today.put_yesterday_morning),
            "msgPutTotalTodayMorning": str(today.put_this_morning),
            "msgPutTotalTodayNow": str(put.messages),
            "msgGetTotalYesterdayMorning": str(today.get_yesterday_morning),
            "msgGetTotalTodayMorning": str(today.get_this_morning),
            "msgGetTotalTodayNow": str(numbers.fetched.messages),
        }

    def _rates_by_span(self, number: str) -> str:
        now = monotonic_ms()
        return " ".join(str(self._statistics.per_second(number, seconds, now)) for seconds in SECONDS)

    def _of_store(self) -> dict[str, str]:
        store, path = self._store.statistics(), self._store.config.commit_log_path
        disk = self.disk()
        return {
            "putMessageFailedTimes": str(store.puts_failed),
            "commitLogMinOffset": str(store.log_begin),
            "commitLogMaxOffset": str(store.log_end),
            "earliestMessageTimeStamp": str(self._store.store_time_of(store.log_begin)),
            "dispatchBehindBytes": str(store.log_end - store.dispatched),
            "remainHowManyDataToFlush": _size(store.log_end - store.flushed),
            "dispatchMaxBuffer": "0",
            "pageCacheLockTimeMills": "0",
            "remainTransientStoreBufferNumbs": str((1 << 31) - 1),
            "commitLogDiskRatio": _percent(disk.ratio),
            "consumeQueueDiskRatio": _percent(store.disk_ratio),
            f"commitLogDiskRatio_{path}": _percent(disk.ratio),
            "commitLogDirCapacity": f"Total : {_size(disk.total)}, Free : {_size(disk.free)}.",
        }

    def _of_pools(self) -> dict[str, str]:
        table = {}
        for pool in _POOLS:
            table[f"{pool}ThreadPoolQueueSize"] = "0"
            table[f"{pool}ThreadPoolQueueCapacity"] = str(_CAPACITIES[pool])
            table[f"{pool}ThreadPoolQueueHeadWaitTimeMills"] = "0"
        return {**table, "EndTransactionQueueSize": "0", "EndTransactionThreadPoolQueueCapacity": "100000"}


def _item(rate: Rate) -> BrokerStatsItem:
    return BrokerStatsItem(rate.avgpt, rate.sum, rate.tps)


def _percent(ratio: float) -> str:
    """A ratio in whole percent, rounded up, as Java prints it: 0.19, 0.2."""
    return str(math.ceil(round(ratio * 100, 9)) / 100)


def _size(count: float) -> str:
    """252.0 GiB or 17 B, as RocketMQ prints sizes."""
    if count < 1024:
        return f"{count:.0f} B"
    power = 1
    while count >= 1024 ** (power + 1) and power < len(_UNITS):
        power += 1
    return f"{count / 1024**power:.1f} {_UNITS[power - 1]}"
