from __future__ import annotations

import pytest

from rocketlet.common.subscription import InvalidSubscription, parse_expression, parse_tags, tags_code


def test_tags_code() -> None:
    assert tags_code(b"TagA") == 2598919
    assert tags_code("订单".encode()) == 1129459
    assert tags_code(b"") == 0
    assert tags_code(b"polygenelubricants") == -0x80000000


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_all(expression: str | None) -> None:
    found = parse_tags("T", expression, 7)
    assert (found.expression, found.tags, found.codes, found.version) == ("*", set(), set(), 7)
    assert found.matches_code(12345)


def test_tags() -> None:
    found = parse_tags("T", "TagA || TagB||", 1)
    assert found.tags == {"TagA", "TagB"}
    assert found.codes == {2598919, 2598920}
    assert found.expression == "TagA || TagB||"
    assert found.matches_code(2598919)
    assert not found.matches_code(0)
    assert found.matches_code((5 << 32) | 2598919), "the broker compares the low 32 bits"


@pytest.mark.parametrize("expression", ["||", " || ", "  "])
def test_no_tag_left(expression: str) -> None:
    with pytest.raises(InvalidSubscription, match="names no tag"):
        parse_tags("T", expression, 1)


def test_other_expressions_are_kept_as_text() -> None:
    found = parse_expression("T", "a > 3", "SQL92", 1)
    assert (found.expression, found.expression_type, found.codes) == ("a > 3", "SQL92", set())
    assert parse_expression("T", "TagA", None, 1).codes == {2598919}
    with pytest.raises(InvalidSubscription, match="SQL92"):
        parse_expression("T", "", "SQL92", 1)
