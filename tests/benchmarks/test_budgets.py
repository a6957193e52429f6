"""How the table reports budgets, and that the raw sender's requests are valid ones."""

from __future__ import annotations

import pytest

from benchmarks.__main__ import row, shown
from benchmarks.budgets import CHAPTERS, Figure
from benchmarks.support.frames import batch_frame, pull_frame, send_frame
from rocketlet.common.alike_batch import read_alike
from rocketlet.remoting.frame_codec import cut, decode
from rocketlet.remoting.request_codes import RequestCode


def test_a_budget_is_met_only_if_every_round_meets_it() -> None:
    rate, cost = Figure("rate", "x", at_least=0.65), Figure("cost", "x", at_most=1.45)
    assert (rate.holds(0.65), rate.holds(0.6), cost.holds(1.45), cost.holds(1.5)) == (True, False, True, False)
    assert Figure("rate", "/s").holds(1) is None
    assert row(rate, [0.7, 0.8, 0.9], None).endswith(">= 0.65  held")
    assert row(cost, [1.4, 1.5, 1.6], [1.2]).endswith("<= 1.45  MISSED in 2")
    assert "1.20 x" in row(cost, [1.4], [1.2])


@pytest.mark.parametrize(("value", "text"), [(0.654, "0.65 x"), (25.55, "25.6 x"), (12345.6, "12,346 x"), (3.0, "3 x")])
def test_numbers(value: float, text: str) -> None:
    assert shown(value, "x") == text


def test_each_figure_belongs_to_one_chapter() -> None:
    keys = [key for chapter in CHAPTERS.values() for key in chapter.figures]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize("header", ["json", "binary", "msgpack"])
def test_requests(header: str) -> None:
    frames = [
        send_frame(header, "T", 3, b"body"),
        batch_frame(header, "T", 3, [b"one"] * 12),
        pull_frame(header, "T", 3, 5, 32),
    ]
    data = b"".join(frames)
    commands = [decode(kind, data[head:body], data[body:end]) for kind, head, body, end in cut(data, 1 << 20).frames]
    assert [command.code for command in commands] == [
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.PULL_MESSAGE,
    ]
    assert (commands[0].ext or {})["e"] == "3"
    assert read_alike(bytes(commands[1].body), b"") is not None
