"""Properties text: Java's rules, both ways."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common.java_properties import (
    Entry,
    PropertiesError,
    as_dict,
    decode,
    edit,
    format_entry,
    format_plain,
    parse,
)

# Special characters are drawn more often than letters.
TRICKY = st.text(alphabet=st.one_of(st.sampled_from("\\=:#! \t\f\n\ru0"), st.characters(exclude_categories=["Cs"])))


# Each result is that of java.util.Properties of JDK 17 for the same text.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("listenPort=9876", {"listenPort": "9876"}),
        ("  listenPort  =  9876  ", {"listenPort": "9876  "}),
        (
            "listenPort:9876\rbrokerName broker-a\r\nkey\tvalue",
            {"listenPort": "9876", "brokerName": "broker-a", "key": "value"},
        ),
        ("namesrvAddr=a:9876;b:9876", {"namesrvAddr": "a:9876;b:9876"}),
        ("a==b", {"a": "=b"}),
        ("a = = b", {"a": "= b"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("=b", {"": "b"}),
        ("# c\n ! c\n\n \t\f\na=b", {"a": "b"}),
        ("a=b # not a comment", {"a": "b # not a comment"}),
        ("# no \\\na=b", {"a": "b"}),
        ("a=b\\\n   c\\\n\\\n  d", {"a": "bcd"}),
        ("a=b\\\n# c", {"a": "b# c"}),
        ("a=b\\\n\nc=d", {"a": "b", "c": "d"}),
        ("\\\n# a comment still\na=b", {"a": "b"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\\\\\\nc=d", {"a": "b\\c=d"}),
        ("a=b\\", {"a": "b"}),
        ("path=C:\\\\data\\\\store", {"path": "C:\\data\\store"}),
        ("path=C:\\data\\store", {"path": "C:datastore"}),
        ("a\\ b\\=c\\:=d", {"a b=c:": "d"}),
        ("a=\\u00e9\\t\\n\\r\\f\\q", {"a": "é\t\n\r\fq"}),
        ("a=\\ud83d\\ude00", {"a": "😀"}),
        ("a=1\na=2", {"a": "2"}),
        ("", {}),
    ],
)
def test_reads_as_java_does(text: str, expected: dict[str, str]) -> None:
    assert as_dict(text) == expected


def test_a_lone_backslash_at_the_end_is_ignored() -> None:
    assert as_dict("a=b\n\\") == {"a": "b"}


def test_entries_know_their_lines() -> None:
    assert parse("# c\na=1\\\n  2\n\nb=3\na=4") == [
        Entry("a", "12", 2, 3),
        Entry("b", "3", 5, 5),
        Entry("a", "4", 6, 6),
    ]


@pytest.mark.parametrize("text", ["x=1\na=\\u12", "x=1\na=\\uzzzz", "x=1\na=\\u"])
def test_a_malformed_unicode_escape_is_an_error_that_names_its_line(text: str) -> None:
    with pytest.raises(PropertiesError, match=r"^line 2: "):
        parse(text)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("path=/données".encode(), "path=/données"),
        ("path=/données".encode("latin-1"), "path=/données"),
        (b"\xef\xbb\xbfa=b", "a=b"),
    ],
)
def test_bytes_are_utf_8_or_else_latin_1(data: bytes, text: str) -> None:
    assert decode(data) == text


@given(TRICKY, TRICKY)
def test_every_pair_survives_a_round_trip(key: str, value: str) -> None:
    line = format_entry(key, value)
    assert line.isascii()
    assert "\n" not in line
    assert as_dict(line) == {key: value}


@given(st.dictionaries(TRICKY, TRICKY), st.dictionaries(TRICKY, TRICKY))
def test_an_edit_changes_only_its_keys(before: dict[str, str], updates: dict[str, str]) -> None:
    text = "# a comment\n" + "".join(f"{format_entry(key, value)}\n" for key, value in before.items())
    edited = edit(text, updates)
    assert as_dict(edited) == before | updates
    assert edited.startswith("# a comment\n")


def test_an_edit_leaves_comments_order_and_other_lines_alone() -> None:
    text = "# ports\r\nlistenPort = 1\r\nbrokerName=a\\\n  b\n! end\nlistenPort=2\n"
    assert edit(text, {"listenPort": "3", "brokerName": "c", "brokerId": "0"}) == (
        "# ports\nlistenPort = 1\nbrokerName=c\n! end\nlistenPort=3\nbrokerId=0\n"
    )


@given(st.text(alphabet="\\=:#! \t\f\n\rabu0"))
def test_only_a_malformed_escape_is_refused(text: str) -> None:
    try:
        entries = parse(text)
    except PropertiesError:
        assert "\\u" in text
    else:
        assert all(1 <= entry.line <= entry.end for entry in entries)


def test_reads_what_rocketmq_wrote(vectors: Path) -> None:
    written = (vectors / "config/namesrv/namesrv-written-by-318.properties").read_bytes()
    settings = as_dict(decode(written))
    assert settings["listenPort"] == "19876"
    assert settings["configBlackList"] == "configBlackList;configStorePath;kvConfigPath"
    assert as_dict(format_plain(settings)) == settings
