from __future__ import annotations

import pytest

from rocketlet.client.consuming.selector import Sql
from rocketlet.common.message import MessageQueue
from rocketlet.spark_jobs.rocketmq.options import BadOption, Moment, read_options, write_options

AT = {"namesrv": "127.0.0.1:9876"}


def test_defaults_of_a_table_and_of_a_stream() -> None:
    table = read_options({**AT, "topics": "A, B"}, streaming=False)
    assert (table.topics, table.selection, table.start, table.end) == (
        ("A", "B"),
        "*",
        Moment("earliest"),
        Moment("latest"),
    )
    assert (table.fail_on_data_loss, table.inflate, table.commits) == (True, False, False)
    assert read_options({**AT, "path": "A"}, streaming=True).start == Moment("latest")


def test_spark_folds_the_names_of_options() -> None:
    found = read_options({**AT, "topics": "A", "maxoffsetspertrigger": "10", "FAILONDATALOSS": "False"}, streaming=True)
    assert (found.max_offsets_per_trigger, found.fail_on_data_loss) == (10, False)


def test_filters_moments_group_and_connection() -> None:
    found = read_options(
        {
            **AT, "topicsPattern": "orders-.*", "sql": "price > 3", "group": "G",
            "startingTimestamp": "1970-01-01T00:00:01", "endingOffsets": '{"A": {"b:1": 3}}',
            "accessKey": "reader", "secretKey": "12345678", "tlsCaFile": "/ca.pem",
        },
        streaming=False,
    )  # fmt: skip
    assert found.selection == Sql("price > 3")
    assert found.start == Moment("time", time=1000)
    assert found.end.offsets == {MessageQueue("A", "b", 1): 3}
    assert (found.group, found.commits) == ("G", True)
    config = found.connection.config()
    assert (config.access_key, config.secret_key, config.tls, config.tls_ca_file) == (
        "reader", "12345678", True, "/ca.pem",
    )  # fmt: skip
    assert "12345678" not in repr(found)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"topics": "A"}, "name the name servers"),
        (AT, "name what to read by one of"),
        ({**AT, "topics": "A", "topicsPattern": "B"}, "name what to read by one of"),
        ({**AT, "topicsPattern": "("}, "is no regular expression"),
        ({**AT, "topics": "A/../B"}, "option topics: "),
        ({**AT, "topics": "A", "failOnDataLos": "true"}, "did you mean failOnDataLoss?"),
        ({**AT, "topics": "A", "subscribe": "B"}, "option subscribe is not known"),
        ({**AT, "topics": "A", "tags": "x", "sql": "a = 1"}, "one of the options tags and sql"),
        ({**AT, "topics": "A", "tags": " || "}, "option tags: "),
        ({**AT, "topics": "A", "minPartitions": "0"}, "minPartitions='0': a whole number of at least 1"),
        ({**AT, "topics": "A", "minPartitions": "9" * 400}, "a whole number of at least 1"),
        ({**AT, "topics": "A", "inflate": "yes"}, "inflate='yes': it may be true or false"),
        ({**AT, "topics": "A", "startingOffsets": "first"}, "or write earliest or latest"),
        ({**AT, "topics": "A", "startingTimestamp": "noon"}, "write milliseconds since 1970"),
        ({**AT, "topics": "A", "startingTimestamp": "1", "startingOffsets": "latest"}, "give one of the options"),
        ({**AT, "topics": "A", "group": "a b"}, "option group='a b'"),
    ],
)
def test_unusable_options_are_named(given: dict[str, str], words: str) -> None:
    with pytest.raises(BadOption) as failed:
        read_options(given, streaming=False)
    assert words in str(failed.value)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(BadOption, match="a stream has no end"):
        read_options({**AT, "topics": "A", "endingOffsets": "latest"}, streaming=True)


def test_options_for_writing() -> None:
    found = write_options({**AT, "topic": "A", "checkpointLocation": "/c"})
    assert (found.topic, found.group, found.row_key) == ("A", "SPARK_WRITER", "SPARK_ROW")
    with pytest.raises(BadOption, match="batchBytes"):
        write_options({**AT, "batchBytes": "99999999"})
    with pytest.raises(BadOption, match="option topic"):
        write_options({**AT, "topic": "a b"})
