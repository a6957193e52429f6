"""Messages of some topics and some time as files for others: Parquet or JSON lines, a folder a day and topic.

Bodies stay bytes in Parquet (base64 in JSON lines), become text, or are read as JSON: then each row has a column `json`
of the given or inferred schema, and `json_error` says whether a body is not JSON.

Java: none
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rocketlet.spark_jobs.commit_log import DEFAULT_SPLIT, find_commit_log
from rocketlet.spark_jobs.datasource import FORMAT
from rocketlet.spark_jobs.progress import progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = (
    "topic string, queue_id int, queue_offset long, log_offset long, tags string, keys array<string>, "
    "unique_key string, store_time timestamp, born_time timestamp, properties map<string,string>, body binary"
)


@dataclass(slots=True)
class Selection:
    """Which messages. Times are ISO 8601 or what Spark's `timestamp` reads; `begin` inclusive, `end` exclusive."""

    topics: Sequence[str] = ()
    tags: Sequence[str] = ()
    begin: str | None = None
    end: str | None = None
    where: str | None = None


def select(
    session: SparkSession,
    store: str,
    selection: Selection,
    *,
    partitions: int | None = None,
    split_size: int = DEFAULT_SPLIT,
) -> DataFrame:
    """The messages, with all filters that can be pushed down pushed down; compressed bodies come plain."""
    from pyspark.sql import functions as sql

    reader = session.read.format(FORMAT).schema(COLUMNS).option("inflate", "true")
    rows = reader.option("partitions", partitions or 0).option("split_size", split_size).load(store)
    if selection.topics:
        rows = rows.where(sql.col("topic").isin(*selection.topics))
    if selection.tags:
        rows = rows.where(sql.col("tags").isin(*selection.tags))
    if selection.begin is not None:
        rows = rows.where(sql.col("store_time") >= sql.lit(selection.begin).cast("timestamp"))
    if selection.end is not None:
        rows = rows.where(sql.col("store_time") < sql.lit(selection.end).cast("timestamp"))
    return rows.where(selection.where) if selection.where else rows


def export(
    session: SparkSession,
    store: str,
    out: str,
    selection: Selection,
    *,
    file_format: str = "parquet",
    body: str = "bytes",
    json_schema: str | None = None,
    partitions: int | None = None,
    split_size: int = DEFAULT_SPLIT,
) -> int:
    """Write the files and return how many messages there are; what stands at `out` is replaced.

    Raises StoreNotFound. `body` is bytes, text or json.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as sql

    log = find_commit_log(store)
    rows = select(session, store, selection, partitions=partitions, split_size=split_size)
    if body == "json":
        rows = with_json(session, rows, json_schema)
    elif body == "text":
        rows = rows.withColumn("body", sql.col("body").cast("string"))
    elif file_format == "json":
        rows = rows.withColumn("body", sql.base64("body"))
    counted = Observation()
    rows = rows.withColumn("day", sql.date_format("store_time", "yyyy-MM-dd"))
    rows = rows.observe(counted, sql.count(sql.lit(1)).alias("messages"))
    with progress(session, "exporting", log.bytes):
        # partitionBy sorts by these columns in each task, so a task has one file open at a time.
        writer = rows.write.mode("overwrite").partitionBy("day", "topic")
        writer.parquet(out) if file_format == "parquet" else writer.json(out)
    return int(counted.get["messages"])


def with_json(session: SparkSession, rows: DataFrame, json_schema: str | None) -> DataFrame:
    """Instead of the body its JSON value, and whether it has none. A schema not given is inferred from all bodies."""
    from pyspark.sql import functions as sql

    text = sql.col("body").cast("string")
    if json_schema is None:
        inferred = session.read.json(rows.select(text.alias("value")).rdd.map(lambda row: row.value or ""))
        json_fields = [field for field in inferred.schema.fields if field.name != "_corrupt_record"]
        json_schema = (
            ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in json_fields) or "value string"
        )
    broken = "_corrupt_record"
    parsed = sql.from_json(text, f"{json_schema}, `{broken}` string", {"columnNameOfCorruptRecord": broken})
    rows = rows.withColumn("json", parsed).drop("body")
    rows = rows.withColumn("json_error", sql.col(f"json.{broken}").isNotNull() | sql.col("json").isNull())
    return rows.withColumn("json", sql.col("json").dropFields(broken))
