"""A page of metrics as read by a scraper, and rocketmq-exporter's names for a broker."""

from __future__ import annotations

import re

from prometheus_client.parser import text_string_to_metric_families

# All of rocketmq-exporter's names, except those that only consumers know.
EXPORTER = [
    "rocketmq_broker_commitlog_diff",
    "rocketmq_broker_qps",
    "rocketmq_broker_tps",
    "rocketmq_brokeruntime_commitlog_disk_ratio",
    "rocketmq_brokeruntime_commitlog_maxoffset",
    "rocketmq_brokeruntime_commitlog_minoffset",
    "rocketmq_brokeruntime_commitlogdir_capacity_free",
    "rocketmq_brokeruntime_commitlogdir_capacity_total",
    "rocketmq_brokeruntime_consumequeue_disk_ratio",
    "rocketmq_brokeruntime_dispatch_behind_bytes",
    "rocketmq_brokeruntime_dispatch_maxbuffer",
    "rocketmq_brokeruntime_earliest_message_timestamp",
    "rocketmq_brokeruntime_getfound_tps10",
    "rocketmq_brokeruntime_getfound_tps60",
    "rocketmq_brokeruntime_getfound_tps600",
    "rocketmq_brokeruntime_getmessage_entire_time_max",
    "rocketmq_brokeruntime_getmiss_tps10",
    "rocketmq_brokeruntime_getmiss_tps60",
    "rocketmq_brokeruntime_getmiss_tps600",
    "rocketmq_brokeruntime_gettotal_tps10",
    "rocketmq_brokeruntime_gettotal_tps60",
    "rocketmq_brokeruntime_gettotal_tps600",
    "rocketmq_brokeruntime_gettransfered_tps10",
    "rocketmq_brokeruntime_gettransfered_tps60",
    "rocketmq_brokeruntime_gettransfered_tps600",
    "rocketmq_brokeruntime_msg_gettotal_today_now",
    "rocketmq_brokeruntime_msg_gettotal_todaymorning",
    "rocketmq_brokeruntime_msg_gettotal_yesterdaymorning",
    "rocketmq_brokeruntime_msg_put_total_today_now",
    "rocketmq_brokeruntime_msg_puttotal_todaymorning",
    "rocketmq_brokeruntime_msg_puttotal_yesterdaymorning",
    "rocketmq_brokeruntime_pagecache_lock_time_mills",
    "rocketmq_brokeruntime_pmdt_0ms",
    "rocketmq_brokeruntime_pmdt_0to10ms",
    "rocketmq_brokeruntime_pmdt_100to200ms",
    "rocketmq_brokeruntime_pmdt_10stomore",
    "rocketmq_brokeruntime_pmdt_10to50ms",
    "rocketmq_brokeruntime_pmdt_1to2s",
    "rocketmq_brokeruntime_pmdt_200to500ms",
    "rocketmq_brokeruntime_pmdt_2to3s",
    "rocketmq_brokeruntime_pmdt_3to4s",
    "rocketmq_brokeruntime_pmdt_4to5s",
    "rocketmq_brokeruntime_pmdt_500to1s",
    "rocketmq_brokeruntime_pmdt_50to100ms",
    "rocketmq_brokeruntime_pmdt_5to10s",
    "rocketmq_brokeruntime_pull_threadpoolqueue_capacity",
    "rocketmq_brokeruntime_pull_threadpoolqueue_headwait_timemills",
    "rocketmq_brokeruntime_pull_threadpoolqueue_size",
    "rocketmq_brokeruntime_put_latency_99",
    "rocketmq_brokeruntime_put_latency_999",
    "rocketmq_brokeruntime_put_message_average_size",
    "rocketmq_brokeruntime_put_message_size_total",
    "rocketmq_brokeruntime_put_tps10",
    "rocketmq_brokeruntime_put_tps60",
    "rocketmq_brokeruntime_put_tps600",
    "rocketmq_brokeruntime_putmessage_entire_time_max",
    "rocketmq_brokeruntime_putmessage_times_total",
    "rocketmq_brokeruntime_query_threadpool_queue_capacity",
    "rocketmq_brokeruntime_query_threadpoolqueue_headwait_timemills",
    "rocketmq_brokeruntime_query_threadpoolqueue_size",
    "rocketmq_brokeruntime_remain_howmanydata_toflush",
    "rocketmq_brokeruntime_remain_transientstore_buffer_numbs",
    "rocketmq_brokeruntime_send_threadpool_queue_size",
    "rocketmq_brokeruntime_send_threadpoolqueue_capacity",
    "rocketmq_brokeruntime_send_threadpoolqueue_headwait_timemills",
    "rocketmq_brokeruntime_start_accept_sendrequest_time",
    "rocketmq_consumer_message_size",
    "rocketmq_consumer_offset",
    "rocketmq_consumer_tps",
    "rocketmq_group_consume_total_offset",
    "rocketmq_group_consume_tps",
    "rocketmq_group_count",
    "rocketmq_group_diff",
    "rocketmq_group_dlqdiff",
    "rocketmq_group_get_latency_by_storetime",
    "rocketmq_group_retrydiff",
    "rocketmq_producer_count",
    "rocketmq_producer_message_size",
    "rocketmq_producer_offset",
    "rocketmq_producer_tps",
    "rocketmq_send_back_nums",
    "rocketmq_topic_dlq_offset",
    "rocketmq_topic_retry_offset",
]


class Page:
    """A scrape: `page.value(name, label=value…)` is the one series that has these labels, or the sum of several."""

    def __init__(self, text: str) -> None:
        families = list(text_string_to_metric_families(text))
        self.families = {family.name: family for family in families}
        # rocketmq-exporter's page has some families more than once; ours must not.
        self.samples = [sample for family in families for sample in family.samples]

    def values(self, name: str, **labels: str) -> list[float]:
        return [
            series.value for series in self.samples if series.name == name and labels.items() <= series.labels.items()
        ]

    def value(self, name: str, **labels: str) -> float:
        values = self.values(name, **labels)
        assert values, f"{name} {labels} is not told"
        return sum(values)


_UNITS = {"B": 0, "KiB": 1, "MiB": 2, "GiB": 3, "TiB": 4}
_DURATIONS = {"0ms": "<=0ms", "500to1s": "500ms~1s", "10stomore": "10s~"}


def runtime_value(name: str, table: dict[str, str]) -> float:
    """The value in a broker's runtime info for one of the exporter's rocketmq_brokeruntime_*.

    The names are the table's keys in lower case with irregular underscores; some are one of several numbers.
    """
    name = name.removeprefix("rocketmq_brokeruntime_")
    plain = {key.lower(): value for key, value in table.items()}
    plain["startacceptsendrequesttime"] = plain["startacceptsendrequesttimestamp"]
    if name.startswith("pmdt_"):
        duration = name.removeprefix("pmdt_")
        counts = dict(re.findall(r"\[(.*?)\]:(\d+)", table["putMessageDistributeTime"]))
        return float(counts[_DURATIONS.get(duration, duration.replace("to", "~"))])
    if match := re.fullmatch(r"commitlogdir_capacity_(total|free)", name):
        number, unit = re.findall(rf"{match[1]} : (\S+) (\w+)", table["commitLogDirCapacity"], re.IGNORECASE)[0]
        return float(number) * 1024.0 ** _UNITS[unit]
    if match := re.fullmatch(r"(\w+_?tps)(10|60|600)", name):
        return float(plain[match[1].replace("_", "")].split()[("10", "60", "600").index(match[2])])
    return float(plain[name.replace("_", "")].split()[0])
