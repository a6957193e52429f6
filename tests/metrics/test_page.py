"""A page of metrics, and its text."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from rocketlet.metrics import exposition
from rocketlet.metrics.page import Page


def text_of(page: Page) -> str:
    return b"".join(exposition.pieces(page)).decode()


def read_back(page: Page) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text_of(page))
        for sample in family.samples
    }


label_values = st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), st.text("ab", max_size=3))


@given(st.dictionaries(label_values, st.floats(allow_nan=False), max_size=30))
def test_prometheus_reads_back_what_was_added(samples: dict[tuple[str, str], float]) -> None:
    page = Page(1000)
    family = page.gauge("some_gauge", "Help with a \\ and\na second line.", ("topic", "group"))
    for labels, value in samples.items():
        family.add(labels, value)
    found = read_back(page)
    for (topic, group), value in samples.items():
        assert found["some_gauge", (("group", group), ("topic", topic))] == value


def test_a_large_family_written_in_pieces_makes_one_text() -> None:
    page = Page(10_000)
    for number in range(1000):
        page.counter("many_total", "Many.", ("n",)).add((str(number),), number)
    assert len(list(exposition.pieces(page))) > 5
    text = text_of(page)
    assert text.count("# TYPE many_total counter") == text.count("# HELP many_total Many.") == 1
    found = read_back(page)
    assert [found["many_total", (("n", str(number)),)] for number in range(1000)] == list(range(1000))


def test_samples_above_the_limit_are_dropped_and_counted() -> None:
    page = Page(10)
    family = page.gauge("g", "", ("n",))
    for number in range(25):
        family.add((str(number),), 1)
    family.add(("3",), 1)  # known already: it takes no more space
    assert (len(page), page.left_out) == (10, 15)
    assert family.samples["", ("3",)] == 2


def test_two_sources_of_one_series_are_summed() -> None:
    page = Page(100)
    for _ in range(2):
        page.gauge("g", "", ("group",)).add(("G",), 3)
        page.histogram("h", "").add_histogram((), {1.0: 2, math.inf: 1}, 9.5)
    found = read_back(page)
    assert found["g", (("group", "G"),)] == 6
    assert found["h_bucket", (("le", "1.0"),)] == 4
    assert found["h_bucket", (("le", "+Inf"),)] == found["h_count", ()] == 6
    assert found["h_sum", ()] == 19


def test_a_name_has_one_meaning() -> None:
    page = Page(100)
    page.gauge("g", "", ("group",))
    with pytest.raises(AssertionError, match="g is two different families"):
        page.gauge("g", "", ("topic",))


def test_process_metrics() -> None:
    found = read_back(Page(1000))
    assert found["process_resident_memory_bytes", ()] > 1 << 20
    assert found["process_open_fds", ()] > 2
