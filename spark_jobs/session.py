"""One way to a Spark session: on this machine with all its cores unless told otherwise, or the cluster's own.

`PYSPARK_PYTHON` must be set before the session starts (the builder's option comes too late for local workers), and the
workers must find our packages: locally through PYTHONPATH, on a cluster through the wheel (see docs/spark.md).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from types import MappingProxyType

from pyspark.sql import SparkSession

from rocketlet.spark_jobs.java_home import use_java

# Where `import rocketlet` finds us: the repository, or the environment that has the wheel.
_OUR_ROOT = str(Path(str(sys.modules["rocketlet"].__file__)).resolve().parent.parent)

_SETTINGS = {
    # Python data sources may filter while they read only where this is on.
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    # Spark's default, INT96, is deprecated in Parquet and has no statistics to skip row groups by.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # What a task sends to its worker at once, or gets from it; the JVM has it outside of the heap.
    "spark.sql.execution.arrow.maxBytesPerBatch": "16m",
}
_JAVA_OPTIONS = f"-Dlog4j2.configurationFile=file://{Path(__file__).parent}/log4j2.properties"
# Where we start the JVM ourselves; a cluster's submit command decides these there.
_LOCAL_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "3g",
    "spark.sql.shuffle.partitions": str(max(4, 2 * (os.cpu_count() or 1))),
    "spark.driver.extraJavaOptions": _JAVA_OPTIONS,
}


def job_settings(master: str | None, user_settings: Mapping[str, str], *, passes_bytes: bool) -> dict[str, str]:
    """For a job that starts a session for itself; `user_settings` count. Its work is done in Python, and a JVM fills
    whatever heap it has in the end: so that depends on how many tasks run at once, and not on the log.

    `passes_bytes`: the JVM does nothing but sort packed pieces and pass them on. There its second compiler takes more
    time than it saves; and its heap is taken whole at the start, so that what a job needs is seen at once.
    """
    if _is_submitted():
        return dict(user_settings)
    named = re.match(r"local\[(\d+)", master or "")
    tasks = int(named[1]) if named else os.cpu_count() or 1
    heap = 512 + 256 * tasks
    settings = {"spark.driver.memory": f"{heap}m"}
    if passes_bytes:
        options = ["-XX:TieredStopAtLevel=1", "-XX:G1HeapRegionSize=4m", _JAVA_OPTIONS]
        if "spark.driver.memory" not in user_settings:
            options += [f"-Xms{heap}m", "-XX:+AlwaysPreTouch"]
        settings["spark.driver.extraJavaOptions"] = " ".join(options)
    return settings | dict(user_settings)


def spark_session(
    name: str, *, master: str | None = None, settings: Mapping[str, str] = MappingProxyType({})
) -> SparkSession:
    """The session of this process, started where there is none.

    Under `spark-submit` the master and resources are those of the command line; otherwise `master` counts, which is
    `local[*]` unless given.
    """
    from rocketlet.spark_jobs import datasource
    from rocketlet.spark_jobs.rocketmq import source

    submitted = _is_submitted()
    builder = SparkSession.builder.appName(f"rocketlet {name}")
    if not submitted:
        use_java(os.environ)
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        _add_to_path(os.environ, _OUR_ROOT)
        builder = builder.master(master or "local[*]")
    elif master:
        builder = builder.master(master)
    for key, value in (_SETTINGS | ({} if submitted else _LOCAL_SETTINGS) | dict(settings)).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    if submitted:
        # The JVM starts Python processes beside the driver, which plan sources and streams. It gives them this, and
        # nothing of the submit command's --py-files.
        _add_to_path(session.sparkContext.environment, _OUR_ROOT)
    datasource.register(session)
    source.register(session)
    return session


def _is_submitted() -> bool:
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _add_to_path(environment: MutableMapping[str, str], folder: str) -> None:
    """Workers are started by the JVM and get its environment, not our sys.path. What the user has there comes first."""
    parts = [part for part in environment.get("PYTHONPATH", "").split(os.pathsep) if part]
    if folder not in parts:
        environment["PYTHONPATH"] = os.pathsep.join([*parts, folder])
