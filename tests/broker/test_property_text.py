"""Rewritten properties are in the order of the recorded records."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.broker.property_text import rewritten
from rocketlet.common.message_properties import decode_bytes
from rocketlet.common.message_record import Record, decode

# Records whose properties a Java broker wrote itself, from its map; others keep the order of their producer.
REWRITTEN = ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "%RETRY%", "%DLQ%")


def records(case: Path) -> list[Record]:
    expected = json.loads((case / "expected.json").read_text())["records"]
    with tarfile.open(case / "store.tar.gz") as archive:
        member = archive.extractfile("store/commitlog/00000000000000000000")
        assert member is not None
        log = io.BytesIO(member.read()).getvalue()
    return [decode(log, record["phy"]) for record in expected if record["phy"] < len(log)]


@pytest.mark.parametrize("case", ["mixed", "ipv6"])
def test_properties_are_in_the_recorded_order(vectors: Path, case: str) -> None:
    seen = 0
    for record in records(vectors / "stores" / case):
        if record.topic.startswith(REWRITTEN):
            properties = decode_bytes(record.properties)
            assert rewritten(properties) == record.properties
            # Names that share a slot keep their order; the order of all others depends only on their names.
            shared = [name for name in properties if name in ("UNIQ_KEY", "CLUSTER", "WAIT", "DELAY")]
            others = [name for name in sorted(properties, reverse=True) if name not in shared]
            assert rewritten({name: properties[name] for name in others + shared}) == record.properties
            seen += 1
    assert seen >= 1


def test_a_larger_map_has_more_slots() -> None:
    few = {f"p{number}": "v" for number in range(12)}
    assert list(decode_bytes(rewritten(few))) != list(decode_bytes(rewritten(few | {"q": "v"})))[:12]


NAME = st.text(st.characters(blacklist_characters="\x01\x02", blacklist_categories=["Cs"]), min_size=1)


@given(st.dictionaries(NAME, NAME, max_size=40))
def test_nothing_is_lost(properties: dict[str, str]) -> None:
    assert decode_bytes(rewritten(properties)) == properties
