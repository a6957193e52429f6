from __future__ import annotations

import pytest

from rocketlet.client.namespace import unwrap, wrap


@pytest.mark.parametrize(
    ("bare", "wrapped"),
    [
        ("orders", "ns%orders"),
        ("%RETRY%group", "%RETRY%ns%group"),
        ("%DLQ%group", "%DLQ%ns%group"),
        ("TBW102", "TBW102"),
        ("CID_RMQ_SYS_x", "CID_RMQ_SYS_x"),
        ("rmq_sys_trace", "rmq_sys_trace"),
    ],
)
def test_names_are_wrapped_once_and_unwrapped(bare: str, wrapped: str) -> None:
    assert wrap("ns", bare) == wrapped
    assert wrap("ns", wrapped) == wrapped
    assert unwrap("ns", wrapped) == bare
    assert unwrap("ns", bare) == bare


def test_without_a_namespace_nothing_changes() -> None:
    assert wrap("", "orders") == "orders"
    assert unwrap("", "ns%orders") == "ns%orders"


def test_names_of_other_namespaces_are_left_alone() -> None:
    assert unwrap("ns", "other%orders") == "other%orders"
