"""Options that need their own stacks: certificates and accounts, compressed bodies, keys and sizes of written rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from rocketlet import Message, Producer
from rocketlet.tools.local_settings import LocalSettings
from rocketlet.tools.thread_stack import ThreadStack
from tests.support.programs import broker, name_server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SECRET = {"access_key": "sparkling", "secret_key": "correct-horse"}
ACCOUNTS = """\
accounts:
- accessKey: sparkling
  secretKey: correct-horse
  admin: true
- accessKey: stranger
  secretKey: battery-staple
  defaultTopicPerm: DENY
"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, Any]]]:
    """A name server and a broker with accounts that accept only TLS, and the client settings for them."""
    folder = tmp_path_factory.mktemp("guarded")
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    certificate.private_key_pem.write_to_path(str(folder / "key.pem"))
    certificate.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    (folder / "plain_acl.yml").write_text(ACCOUNTS)
    tls = {"tls.server.certPath": folder / "cert.pem", "tls.server.keyPath": folder / "key.pem"}
    access = {"aclEnable": "true", "aclConfigDir": folder, "tls.server.mode": "enforcing"}
    with (
        name_server(folder / "namesrv", **tls) as (_, namesrv),
        broker(folder / "broker", namesrvAddr=namesrv, **tls, **access),
    ):
        yield namesrv, {"tls": True, "tls_ca_file": str(folder / "ca.pem"), **SECRET}


def test_certificates_and_accounts(spark: SparkSession, guarded: tuple[str, dict[str, Any]]) -> None:
    namesrv, connection = guarded
    with Producer("p", namesrv=namesrv, **connection) as producer:
        for number in range(20):
            producer.send(Message("Guarded", b"%d" % number))
    options = {
        "namesrv": namesrv, "topics": "Guarded", "tls": "true", "tlsCaFile": connection["tls_ca_file"],
        "tlsServerName": "localhost", "retrySeconds": 0,
    }  # fmt: skip

    def read(**account: str) -> DataFrame:
        return spark.read.format("rocketmq").options(**{**options, **account}).load()

    rows = read(accessKey="sparkling", secretKey="correct-horse")
    assert sorted(int(row.body) for row in rows.select("body").collect()) == list(range(20))
    writer = rows.select("body").write.format("rocketmq").option("topic", "Copied").mode("append")
    written = {name: value for name, value in options.items() if name not in ("topics", "retrySeconds")}
    writer.options(**written, accessKey="sparkling", secretKey="correct-horse").save()
    options["topics"] = "Copied"
    assert read(accessKey="sparkling", secretKey="correct-horse").count() == 20
    with pytest.raises(Exception, match=r"SUB|permission"):
        read(accessKey="stranger", secretKey="battery-staple").count()
    with pytest.raises(Exception, match=r"signature|AclException") as failed:
        read(accessKey="sparkling", secretKey="wrong-horse").count()
    assert "wrong-horse" not in str(failed.value)
    with pytest.raises(Exception, match=r"127\.0\.0\.1"):
        read(accessKey="sparkling", secretKey="correct-horse", tlsServerName="elsewhere.example").count()


@pytest.fixture(scope="module")
def plain() -> Iterator[ThreadStack]:
    with ThreadStack(LocalSettings(namesrv_port=0, broker_port=0)) as stack:
        yield stack


def test_compressed_bodies_are_inflated_if_requested(spark: SparkSession, plain: ThreadStack) -> None:
    body = b"x" * 10_000
    with Producer("p", namesrv=plain.namesrv, compress_over=1000) as producer:
        producer.send(Message("Large", body))
    source = spark.read.format("rocketmq").option("namesrv", plain.namesrv).option("topics", "Large")
    (raw,) = source.load().collect()
    assert (raw.compression, len(raw.body) < 1000) == ("zlib", True)
    (inflated,) = source.option("inflate", True).load().collect()
    assert (inflated.compression, bytes(inflated.body)) == (None, body)


def test_rows_are_keyed_as_requested_and_batches_are_bounded(spark: SparkSession, plain: ThreadStack) -> None:
    rows = spark.range(200).selectExpr("cast(id as string) as body", "0 as delay", "'shard' as sharding_key")
    for size in (1, 4096):
        writer = rows.write.format("rocketmq").option("namesrv", plain.namesrv).option("topic", f"Sized{size}")
        writer.option("batchBytes", size).option("rowKey", "MY_ROW").option("group", "MY_WRITERS").mode("append").save()
        found = spark.read.format("rocketmq").option("namesrv", plain.namesrv).option("topics", f"Sized{size}").load()
        got = found.collect()
        assert len({row.properties["MY_ROW"] for row in got}) == 200
        assert json.loads(json.dumps(sorted(int(row.body) for row in got))) == list(range(200))
        assert len({row.queue_id for row in got}) == 1
