"""SQL92 selectors: a table of cases, RocketMQ's own parser, and a slow evaluator for comparison."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.broker.filter.java_values import NotComparable
from rocketlet.broker.filter.lexer import FilterSyntaxError
from rocketlet.broker.filter.selector import Selector, compiled
from rocketlet.common import message_properties

ABSENT: dict[str, str] = {}


def verdict(expression: str, **properties: str) -> str:
    """T, F, N or X, as in the recorded cases."""
    try:
        result = Selector(expression).evaluate(properties)
    except NotComparable:
        return "X"
    return {None: "N", True: "T", False: "F"}[result]


@pytest.mark.parametrize(
    ("expression", "properties", "expected"),
    [
        # A bare property is not a condition, only present or absent.
        ("a", {"a": "true"}, "F"),
        ("a", ABSENT, "N"),
        ("NOT a", {"a": "x"}, "T"),
        # Text after a complete condition is not read.
        ("a LIKE 'x'", {"a": "x"}, "F"),
        ("a + 1 = 3", {"a": "2"}, "F"),
        ("a > 007", {"a": "1"}, "T"),
        ("a = 3)", {"a": "3"}, "T"),
        ("a = 3 b # !", {"a": "3"}, "T"),
        ("a -- no end of line", {"a": "3"}, "F"),
        # NOT binds tighter than `=`.
        ("NOT a = 3", {"a": "4"}, "F"),
        ("NOT (a = 3)", {"a": "4"}, "T"),
        # A whole number requires one in its range, a float any number.
        ("a > 3", {"a": "4"}, "T"),
        ("a > 3", {"a": "abc"}, "X"),
        ("a > 3", {"a": "4.5"}, "X"),
        ("a > 3", {"a": "2147483648"}, "X"),
        ("a > 3.0", {"a": "4.5"}, "T"),
        ("a > 3.0", {"a": " 4.5d "}, "T"),
        ("a > 3.0", {"a": "NaN"}, "T"),
        ("a < 3.0", {"a": "NaN"}, "F"),
        ("a > 3000000000", {"a": "3000000001"}, "T"),
        ("a = 3", {"a": "3"}, "T"),
        ("a = 3", {"a": "+3"}, "T"),
        ("a = 3", {"a": "3.0"}, "X"),
        ("a = 3L", {"a": "3"}, "T"),
        ("a = -3", {"a": "-3"}, "T"),
        ("-a = 3", {"a": "-3"}, "N"),
        # Text is equal or not, without an order; two properties are compared as doubles.
        ("a = '3'", {"a": "3.0"}, "F"),
        ("a = 'it''s'", {"a": "it's"}, "T"),
        ("a > b", {"a": "10", "b": "9.5"}, "T"),
        ("a > b", {"a": "x", "b": "9"}, "X"),
        ("a > b", {"a": "0.0", "b": "-0.0"}, "T"),
        ("a = b", {"a": "1", "b": "1.0"}, "F"),
        # NULL.
        ("a = b", ABSENT, "T"),
        ("a = b", {"a": "1"}, "F"),
        ("a = b", {"b": "1"}, "N"),
        ("a > 3", ABSENT, "N"),
        ("a <> 3", ABSENT, "N"),
        ("a IN ('x')", ABSENT, "N"),
        ("a NOT IN ('x')", ABSENT, "N"),
        ("a BETWEEN 1 AND 3", ABSENT, "N"),
        ("a IS NULL", ABSENT, "T"),
        ("a IS NOT NULL", {"a": "x"}, "T"),
        ("a > 3 OR b = 'x'", {"b": "x"}, "T"),
        ("a > 3 AND b = 'x'", {"b": "y"}, "F"),
        ("a > 3 AND b = 'x'", {"b": "x"}, "N"),
        ("NOT (a > 3)", ABSENT, "N"),
        # Terms after the deciding one are not evaluated, so their errors do not occur.
        ("b = 'x' OR a > 3", {"a": "abc", "b": "x"}, "T"),
        ("a > 3 OR b = 'x'", {"a": "abc", "b": "x"}, "X"),
        ("b = 'y' AND a > 3", {"a": "abc", "b": "x"}, "F"),
        # Text tests are FALSE without text, in both forms.
        ("a CONTAINS 'bc'", {"a": "abcd"}, "T"),
        ("a NOT CONTAINS 'bc'", {"a": "abcd"}, "F"),
        ("a startswith 'ab'", {"a": "abcd"}, "T"),
        ("a ENDSWITH 'cd'", {"a": "abcd"}, "T"),
        ("a NOT CONTAINS 'x'", ABSENT, "F"),
        ("a NOT STARTSWITH ''", {"a": "x"}, "F"),
        ("(a > 3) CONTAINS ''", {"a": "x"}, "F"),
        # TRUE and FALSE.
        ("a = TRUE", {"a": "tRuE"}, "T"),
        ("a = TRUE", {"a": "1"}, "F"),
        ("TRUE = a", {"a": "true"}, "X"),
        ("TRUE", ABSENT, "T"),
        ("NULL", ABSENT, "N"),
        # Precedence, chains, comments, names.
        ("a = 1 OR a = 2 AND b = 'x'", {"a": "1"}, "T"),
        ("(a = 1 OR a = 2) AND b = 'x'", {"a": "1", "b": "y"}, "F"),
        ("a = 3 = TRUE", {"a": "3"}, "T"),
        ("a NOT BETWEEN 3 AND 1", {"a": "2"}, "T"),
        ("/* c */ a -- c\n = 3", {"a": "3"}, "T"),
        ("a -- c\r\n = 3 --", {"a": "3"}, "T"),
        ("/* -- */ a = --3", {"a": "3"}, "T"),
        ("a --\r = - --\n -3 -- c", {"a": "3"}, "T"),
        ("a = ---3", {"a": "-3"}, "T"),
        ("a = --3000000000", {"a": "3000000000"}, "T"),
        ("--a = 3", {"a": "3"}, "N"),
        ("A = 3 or $a_1 = 4", {"$a_1": "4"}, "T"),
        ("a = 3", {"A": "3"}, "N"),
        ("a in ('x', 'y')", {"a": "y"}, "T"),
        ("a BETWEEN b AND 7", {"a": "5", "b": "4.5"}, "T"),
    ],
)
def test_the_table_of_cases(expression: str, properties: dict[str, str], expected: str) -> None:
    assert verdict(expression, **properties) == expected


def test_agrees_with_the_original_parser(vectors: Path) -> None:
    for line in (vectors / "filter" / "sql92.jsonl").read_text("utf-8").splitlines():
        case = json.loads(line)
        try:
            Selector(case["expression"])
        except FilterSyntaxError:
            assert case["verdicts"] is None, case["expression"]
            continue
        assert case["verdicts"] is not None, f"compiles, but should not: {case['expression']}"
        said = "".join(verdict(case["expression"], **properties) for properties in case["properties"])
        assert said == case["verdicts"], case["expression"]


@pytest.mark.parametrize(
    ("expression", "at", "reason"),
    [
        ("a != 3", 2, "<>"),
        ('a = "x"', 4, "single quotes"),
        ("a = 'x", 4, "not closed"),
        ("a = 3 /* c", 6, "not closed"),
        ("a > '3'", 4, "order"),
        ("a > TRUE", 4, "order"),
        ("a = NULL", 4, "IS NULL"),
        ("a IN (1, 2)", 6, "string"),
        ("a IN ()", 6, "string"),
        ("3 IN ('x')", 0, "property"),
        ("NOT a IN ('x')", 0, "property"),
        ("a BETWEEN 3 AND 1", 2, "lower bound"),
        ("a BETWEEN 3.5 AND 3", 2, "lower bound"),
        ("a = 0.0", 4, "range"),
        ("a = 1e400", 4, "range"),
        ("a = 9223372036854775808", 4, "largest"),
        ("TRUE = 3", 0, "TRUE and FALSE"),
        ("a AND 'x'", 6, "condition"),
        ("3", 0, "condition"),
        ("NOT 3", 4, "condition"),
        ("-a", 0, "condition"),
        ("", 0, "missing"),
        ("a = ", 4, "missing"),
        ("(a = 3", 6, ") is missing"),
        ("a IS 3", 5, "NULL is missing"),
        ("a NOT b", 2, "NOT wants"),
        ("a BETWEEN 1 OR 2", 12, "AND is missing"),
        ("a.b = 3", 1, "unexpected character"),
        ("in = 3", 0, "missing before in"),
        ("a = 3 AND b # c", 12, "unexpected character"),
    ],
)
def test_errors_point_at_the_character(expression: str, at: int, reason: str) -> None:
    with pytest.raises(FilterSyntaxError, match=reason.replace("(", r"\(").replace(")", r"\)")) as caught:
        Selector(expression)
    assert caught.value.at == at
    text, shown, pointer = str(caught.value).split("\n")
    assert f"at character {at + 1}" in text
    assert pointer.index("^") == at
    assert shown == expression


def test_the_pointer_into_a_long_expression() -> None:
    expression = "a = 1 AND\t" * 50 + "b ! 3" + " AND c = 1" * 50
    with pytest.raises(FilterSyntaxError) as caught:
        Selector(expression)
    _, shown, pointer = str(caught.value).split("\n")
    assert len(shown) < 100
    assert shown[pointer.index("^")] == "!"
    assert shown.startswith("...")
    assert shown.endswith("...")


@pytest.mark.parametrize(
    "expression",
    ["(" * 5000 + "a" + ")" * 5000, "NOT " * 5000 + "a", "-" * 5000 + "3 = 3", "a" + " IS NULL" * 5000, "a" * 70_000],
)
def test_depth_and_length_are_bounded(expression: str) -> None:
    with pytest.raises(FilterSyntaxError):
        Selector(expression)


@pytest.mark.parametrize("part", [" = a", " <> 1", " IS NULL", " IS NOT NULL", " CONTAINS ''"])
def test_a_chain_that_is_too_deep_is_read_no_further(part: str) -> None:
    """All of it was, in 30 ms."""
    with pytest.raises(FilterSyntaxError, match="more than 120 levels") as caught:
        Selector("a" + part * (16_000 // len(part)))
    assert caught.value.at <= 122 * len(part)
    if "NOT" not in part and "<>" not in part:
        Selector("a" + part * 120)


@pytest.mark.parametrize("beginning", ["", "b = 1 OR -- c\n"])
@pytest.mark.parametrize("value", ["a", "1"])
def test_minus_signs_do_not_each_look_for_the_end_of_a_comment(beginning: str, value: str) -> None:
    """16 KiB of them took 1.1 s; several times that is too long for a test without a mark."""
    term = "-" * 70 + f"{value} = a OR "
    for blanks in range(6):
        selector = Selector(beginning + term * (16_000 // len(term)) + " " * blanks + "a")
        assert selector.evaluate({"a": "1", "b": "2"}) is (True if value == "1" else None)


def test_width_is_not_depth() -> None:
    names = [f"p{i}" for i in range(1000)]
    wide = Selector(" OR ".join(f"{name} = '1'" for name in names))
    assert wide.evaluate({"p999": "1"}) is True
    assert wide.evaluate(ABSENT) is None
    nested = Selector("(" * 60 + "a = '1'" + ")" * 60)
    assert nested.evaluate({"a": "1"}) is True


def test_reads_the_property_bytes_of_a_record() -> None:
    selector = Selector("colour = 'grün' AND size BETWEEN 3 AND 5 AND b IS NULL")
    raw = message_properties.encode({"TAGS": "t", "size": "4", "colour": "grün"}).encode()
    assert selector.names == ("colour", "size", "b")
    assert selector.matches(raw)
    assert not selector.matches(raw + b"\x02b\x01x")
    assert not selector.matches(b"colour\x01gr\xff\x02size\x014")
    assert not selector.matches(b"")
    assert not Selector("size > 3").matches(b"size\x01big")


def test_an_expression_is_compiled_once() -> None:
    assert compiled("a = 'once'") is compiled("a = 'once'")
    with pytest.raises(FilterSyntaxError):
        compiled("a =")
    assert "a = 'once'" in repr(compiled("a = 'once'"))


# --- a slow evaluator beside ours: values are tagged, numbers are fractions, everything is looked up by name ---------

NULL, TRUE, FALSE = ("null", None), ("bool", True), ("bool", False)
Tree = tuple[Any, ...]


class Fails(Exception):
    pass


def slow(tree: Tree, message: dict[str, str]) -> tuple[str, Any]:
    kind = tree[0]
    if kind == "prop":
        return ("text", message[tree[1]]) if tree[1] in message else NULL
    if kind in ("int", "float", "text", "bool", "null"):
        return (kind, tree[1])
    if kind == "not":
        value = slow(tree[1], message)
        return NULL if value == NULL else ("bool", not value[1])
    if kind in ("AND", "OR"):
        decides = ("bool", kind == "OR")
        left = slow(tree[1], message)
        if left == decides:
            return decides
        right = slow(tree[2], message)
        if right == decides:
            return decides
        return NULL if NULL in (left, right) else ("bool", kind == "AND")
    if kind == "isnull":
        return ("bool", slow(tree[1], message) == NULL)
    if kind == "in":
        value = slow(tree[1], message)
        return NULL if value == NULL else ("bool", (value[1] in tree[2]) != tree[3])
    if kind == "between":
        _, value, low, high = tree
        return slow(("AND", (">=", value, low), ("<=", value, high)), message)
    left, right = slow(tree[1], message), slow(tree[2], message)
    if kind == "=":
        if left == NULL:
            return TRUE if right == NULL else NULL
        return FALSE if right == NULL else ("bool", slow_order(left, right, equality=True) == 0)
    if NULL in (left, right):
        return NULL
    order = slow_order(left, right, equality=False)
    return ("bool", {"<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0}[kind])


def slow_order(left: tuple[str, Any], right: tuple[str, Any], equality: bool) -> int:
    kinds = (left[0], right[0])
    if kinds == ("text", "text"):
        if equality:
            return 0 if left[1] == right[1] else 1
        return slow_order(("float", slow_number(left, "float")), ("float", slow_number(right, "float")), False)
    if "bool" in kinds:
        if kinds == ("text", "bool"):
            return 0 if (left[1].lower() == "true") == right[1] else 1
        if kinds == ("bool", "text"):
            raise Fails
        return 0 if left == right else -1
    number = left[0] if left[0] != "text" else right[0]
    first, second = slow_number(left, number), slow_number(right, number)
    return (first > second) - (first < second)


def slow_number(value: tuple[str, Any], kind: str) -> Fraction:
    if value[0] != "text":
        return Fraction(value[1])
    text = value[1]
    try:
        if kind == "int":
            if not text.lstrip("+-").isdigit() or len(text) - len(text.lstrip("+-")) > 1 or abs(int(text)) >= 2**31:
                raise Fails
            return Fraction(int(text))
        number = float(text)
    except ValueError:
        raise Fails from None
    return Fraction(10) ** 400 * (1 if number > 0 else -1) if math.isinf(number) else Fraction(number)


NAMES = st.sampled_from(["a", "b", "c"])
PROPERTY = st.tuples(st.just("prop"), NAMES)
NUMBER = st.one_of(
    st.tuples(st.just("int"), st.integers(0, 12)),
    st.tuples(st.just("float"), st.sampled_from([0.5, 1.0, 3.5, 11.0, 1e9])),
)
TEXT = st.tuples(st.just("text"), st.sampled_from(["x", "3", "it's", "true", ""]))
ORDERABLE = st.one_of(PROPERTY, NUMBER)


def conditions(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    return st.one_of(
        st.tuples(st.sampled_from(["AND", "OR"]), inner, inner),
        st.tuples(st.just("not"), inner),
        st.tuples(st.just("="), inner, inner),
        st.tuples(st.just("="), PROPERTY, inner),
        st.tuples(st.just("isnull"), inner),
    )


LEAVES = st.one_of(
    st.tuples(st.sampled_from(["<", "<=", ">", ">="]), ORDERABLE, ORDERABLE),
    st.tuples(st.just("="), PROPERTY, st.one_of(PROPERTY, NUMBER, TEXT)),
    st.tuples(st.just("="), NUMBER, PROPERTY),
    st.tuples(st.just("="), TEXT, PROPERTY),
    st.tuples(st.just("isnull"), PROPERTY),
    st.tuples(st.just("in"), PROPERTY, st.frozensets(st.sampled_from(["x", "3", "it's"]), min_size=1), st.booleans()),
    st.tuples(st.just("between"), PROPERTY, PROPERTY, ORDERABLE),
)
MESSAGES = st.dictionaries(
    NAMES, st.sampled_from(["x", "3", "3.5", "-1", "12", "true", "it's", "1e3", "9999999999", "+7", "--7"])
)


def text_of(tree: Tree) -> str:
    def quoted(text: str) -> str:
        return "'" + text.replace("'", "''") + "'"

    kind = tree[0]
    if kind in ("prop", "int", "float"):
        return str(tree[1])
    if kind == "text":
        return quoted(tree[1])
    if kind == "not":
        return f"NOT ({text_of(tree[1])})"
    if kind == "isnull":
        return f"({text_of(tree[1])}) IS NULL"
    if kind == "in":
        return f"{text_of(tree[1])} {'NOT ' * tree[3]}IN ({', '.join(map(quoted, tree[2]))})"
    if kind == "between":
        return f"{text_of(tree[1])} BETWEEN {text_of(tree[2])} AND {text_of(tree[3])}"
    return f"({text_of(tree[1])}) {kind} ({text_of(tree[2])})"


@given(st.recursive(LEAVES, conditions, max_leaves=8), MESSAGES)
def test_agrees_with_the_slow_evaluator(tree: Tree, message: dict[str, str]) -> None:
    try:
        expected = {NULL: "N", TRUE: "T", FALSE: "F"}[slow(tree, message)]
    except Fails:
        expected = "X"
    selector = Selector(text_of(tree))
    assert verdict(selector.expression, **message) == expected
    assert selector.matches(message_properties.encode(message).encode()) is (expected == "T")


@given(st.text(st.sampled_from("ab3.'()=<>!-+/*, \nNOTANDIS#\x00ü"), max_size=40))
def test_any_text_compiles_or_points_at_a_character(text: str) -> None:
    at = 0
    try:
        Selector(text).matches(b"a\x013\x02b\x01x")
    except FilterSyntaxError as error:
        at = error.at
    assert 0 <= at <= len(text)
