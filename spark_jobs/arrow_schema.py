"""Arrow batches in exactly the schema that Spark expects of a data source.

Spark compares schemas to the letter, names of list elements and nullability among them: so it is asked itself.
"""

from __future__ import annotations

import inspect

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from rocketlet.spark_jobs.message_columns import COLUMNS, MessageBatch


def batch_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema of a Spark schema; timestamps in UTC, whatever the session's zone."""
    if "timezone" in inspect.signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)


def as_batch(batch: MessageBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of a schema. A type other than the column's own is cast to, where Arrow can."""
    arrays = [COLUMNS[field.name].make(batch) for field in schema]
    return pa.RecordBatch.from_arrays(
        [
            array if array.type.equals(field.type) else array.cast(field.type)
            for array, field in zip(arrays, schema, strict=True)
        ],
        schema=schema,
    )
