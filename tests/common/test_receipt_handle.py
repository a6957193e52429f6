"""Handles: recorded ones are read, written ones are read back, and nothing else is accepted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common.receipt_handle import (
    InvalidHandle,
    RecallHandle,
    ReceiptHandle,
    parse_recall_handle,
    parse_receipt_handle,
)

long = st.integers(0, (1 << 63) - 1)
int_ = st.integers(0, (1 << 31) - 1)
name = st.from_regex(r"[A-Za-z0-9_-]{1,20}", fullmatch=True)


def test_a_handle_of_a_java_proxy() -> None:
    handle = parse_receipt_handle("0 1795041908748 30000 2 0 broker-a 0 0 6178557")
    assert handle == ReceiptHandle(0, 1795041908748, 30000, 2, 0, "broker-a", 0, 0, 6178557)
    assert handle.visible_at == 1795041938748
    assert str(handle.changed(1795041932484, 3000, 0)) == "0 1795041932484 3000 0 0 broker-a 0 0 6178557"


@given(st.builds(ReceiptHandle, long, long, long, int_, st.integers(0, 2), name, int_, long, st.none() | long))
def test_a_receipt_handle_round_trips(handle: ReceiptHandle) -> None:
    assert parse_receipt_handle(str(handle)) == handle


@given(st.builds(RecallHandle, name, name, long, name))
def test_a_recall_handle_round_trips(handle: RecallHandle) -> None:
    assert parse_recall_handle(str(handle)) == handle


@given(st.text())
def test_other_text_is_not_a_handle(text: str) -> None:
    for parse in (parse_receipt_handle, parse_recall_handle):
        with pytest.raises(InvalidHandle):
            parse(text)  # type: ignore[operator]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0 1 2 3 0 b 0",
        "0 1 2 3 0 b 0 0 0 0",
        "-1 1 2 3 0 b 0 0",
        "0 1 2 3 3 b 0 0",
        "0 1 2 3 0  0 0",
        f"{1 << 63} 1 2 3 0 b 0 0",
        "0 1 2 3 0 b ٣ 0",
        "0 1 2 3 0 " + "b" * 1024 + " 0 0",
    ],
)
def test_malformed_receipt_handles(text: str) -> None:
    with pytest.raises(InvalidHandle):
        parse_receipt_handle(text)
