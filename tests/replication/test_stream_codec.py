"""The streams between master and slave, compared with those of a RocketMQ 4.9.8 pair."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.replication.stream_codec import LARGEST_SLICE, SLICE, ReportReader, SliceReader, StreamBroken, report

RECORDED = Path(__file__).parents[1] / "vectors" / "ha"
SLICES = st.lists(st.tuples(st.integers(0, 1 << 60), st.binary(max_size=200)), max_size=8)


def recorded(side: str) -> list[bytes]:
    lines = (RECORDED / "replication.jsonl").read_text("utf-8").splitlines()
    return [base64.b64decode(line["b64"]) for line in map(json.loads, lines) if line["from"] == side]


def test_recorded_streams_are_decoded_as_intended() -> None:
    expected = json.loads((RECORDED / "expected.json").read_text("utf-8"))
    reports, slices = ReportReader(), SliceReader()
    assert [offset for chunk in recorded("slave") for offset in reports.feed(chunk)] == expected["slaveReports"]
    found = [(offset, len(piece)) for chunk in recorded("master") for offset, piece in slices.feed(chunk)]
    assert found == [(frame["phyOffset"], frame["bodySize"]) for frame in expected["masterFrames"]]


@given(offsets=st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=20), step=st.integers(1, 40))
def test_reports_survive_any_chunking(offsets: list[int], step: int) -> None:
    data, reader = b"".join(map(report, offsets)), ReportReader()
    found = [one for at in range(0, len(data), step) for one in reader.feed(data[at : at + step])]
    assert found == offsets


@given(slices=SLICES, step=st.integers(1, 300))
def test_slices_survive_any_chunking(slices: list[tuple[int, bytes]], step: int) -> None:
    data, reader = b"".join(SLICE.pack(at, len(body)) + body for at, body in slices), SliceReader()
    bytes_of: dict[int, bytes] = {}
    heartbeats = []
    for at in range(0, len(data), step):
        for offset, piece in reader.feed(data[at : at + step]):
            if piece:
                bytes_of |= {offset + number: bytes(piece[number : number + 1]) for number in range(len(piece))}
            else:
                heartbeats.append(offset)
    wanted = {offset + n: body[n : n + 1] for offset, body in slices for n in range(len(body))}
    assert bytes_of.keys() == wanted.keys()
    assert heartbeats == [offset for offset, body in slices if not body]


@pytest.mark.parametrize("head", [(-1, 5), (0, -1), (0, LARGEST_SLICE + 1), (-(1 << 63), 0)])
def test_an_impossible_header_breaks_the_stream(head: tuple[int, int]) -> None:
    with pytest.raises(StreamBroken):
        SliceReader().feed(SLICE.pack(*head))


@given(data=st.binary(max_size=400), step=st.integers(1, 50))
def test_garbage_is_slices_or_a_broken_stream_never_another_error(data: bytes, step: int) -> None:
    reader = SliceReader()
    try:
        for at in range(0, len(data), step):
            reader.feed(data[at : at + step])
    except StreamBroken:
        pass  # what it is for
