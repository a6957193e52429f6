"""Settings of the port for metrics and health, with RocketMQ 5's keys, since 4.9.8 has none.

Java: common/BrokerConfig.java (metricsExporterType and its kin, since 5.1)
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from rocketlet.common.settings import setting


class ExporterType(StrEnum):
    DISABLE = "DISABLE"
    PROM = "PROM"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfig:
    """Metrics and health."""

    metrics_exporter_type: ExporterType = setting(
        ExporterType.DISABLE, "PROM serves /metrics, /healthz and /readyz over HTTP.", important=True
    )
    metrics_prom_exporter_port: int = setting(
        5557, "Port of these three pages; 0 takes a free one.", minimum=0, maximum=65535
    )
    metrics_prom_exporter_host: str = setting("", "Address that they are served on.", default_note="bindAddress")
    metrics_max_series: int = setting(
        50_000, "Series on one page, at most; what is above is left out and counted.", minimum=1000, maximum=1_000_000
    )
    metrics_lag_per_queue: bool = setting(True, "Lag is reported for each queue, not only for topic and group.")

    @property
    def is_on(self) -> bool:
        return self.metrics_exporter_type is ExporterType.PROM
