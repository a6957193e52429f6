"""From the text of a selector to its tree, by recursive descent.

    condition  = all ("OR" all)*
    all        = equality ("AND" equality)*
    equality   = comparison (("=" | "<>") comparison | "IS" ["NOT"] "NULL")*
    comparison = unary (("<" | "<=" | ">" | ">=") unary
                       | ["NOT"] "BETWEEN" unary "AND" unary
                       | ["NOT"] "IN" "(" string ("," string)* ")"
                       | ["NOT"] ("CONTAINS" | "STARTSWITH" | "ENDSWITH") string)*
    unary      = ("+" | "-" | "NOT") unary | primary
    primary    = string | integer | float | "TRUE" | "FALSE" | "NULL" | name | "(" condition ")"

Odd, but kept because expressions that work with RocketMQ must mean the same here: text after a complete condition is
ignored; NOT binds tighter than `=`; `a = 3 = TRUE` chains from the left; TRUE may be left of `=` only next to another
condition; `0.0` is refused as less than the smallest double. Ours are a limit on depth, since brackets are parsed
recursively, and one on length. Both are far beyond what people write.

Java: filter/parser/SelectorParser.jj
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rocketlet.broker.filter.expression_tree import (
    INT_MAX,
    LONG_MAX,
    BooleanCast,
    Comparison,
    Constant,
    Logic,
    Long,
    Membership,
    Negate,
    Node,
    Not,
    Property,
    TextTest,
    is_condition,
)
from rocketlet.broker.filter.lexer import FLOAT, INTEGER, NAME, STRING, FilterSyntaxError, Lexer, Token

MAX_DEPTH: Final = 80  # six Python calls per level here, of the thousand allowed
MAX_LENGTH: Final = 16_384  # 16 ms to compile

_LITERALS: Final = {"TRUE": True, "FALSE": False, "NULL": None}
_ORDERED: Final = frozenset({"<", "<=", ">", ">="})
_TEXT_TESTS: Final = frozenset({"CONTAINS", "STARTSWITH", "ENDSWITH"})


def parse(expression: str) -> Node:
    """The condition's tree. Raises FilterSyntaxError."""
    if len(expression) > MAX_LENGTH:
        raise FilterSyntaxError(f"the expression is longer than {MAX_LENGTH} characters", expression, MAX_LENGTH)
    return _Parser(Lexer(expression)).selector()


class _Parser:
    def __init__(self, lexer: Lexer) -> None:
        self._lexer = lexer
        self._depth = 0

    def selector(self) -> Node:
        return self._as_condition(self._any())

    def _any(self) -> Node:
        return self._chain("OR", self._all)

    def _all(self) -> Node:
        return self._chain("AND", self._equality)

    def _chain(self, keyword: str, part: Callable[[], Node]) -> Node:
        """`part keyword part ...` as one node: three-valued AND and OR are associative, including which parts they
        evaluate."""
        left = part()
        if self._lexer.peek().kind != keyword:
            return left
        terms = [self._as_condition(left)]
        at = self._lexer.peek().at
        while self._lexer.peek().kind == keyword:
            self._lexer.take()
            terms.append(self._as_condition(part()))
        return Logic(keyword, tuple(terms), at)

    def _equality(self) -> Node:
        left = self._comparison()
        while (token := self._lexer.peek()).kind in ("=", "<>", "IS"):
            self._lexer.take()
            if token.kind == "IS":
                negated = self._skip("NOT")
                self._expect("NULL")
                left = Comparison("=", left, Constant(None, token.at), token.at)
            else:
                negated = token.kind == "<>"
                left = self._equals(left, self._comparison(), token.at)
            if negated:
                left = Not(left, token.at)
        return left

    def _equals(self, left: Node, right: Node, at: int) -> Node:
        for side in (left, right):
            if isinstance(side, Constant) and side.value is None:
                raise self._lexer.error("NULL cannot be compared; write IS NULL or IS NOT NULL", side.at)
        constants = isinstance(left, Constant) and isinstance(right, Constant)
        if constants and is_condition(left) and not is_condition(right):
            raise self._lexer.error("TRUE and FALSE cannot be compared with a text or a number", left.at)
        return Comparison("=", left, right, at)

    def _comparison(self) -> Node:
        left = self._unary()
        while True:
            token = self._lexer.peek()
            negated = token.kind == "NOT"
            operator = self._lexer.peek(1) if negated else token
            if operator.kind in _ORDERED and not negated:
                self._lexer.take()
                left = self._ordered(operator.kind, left, self._unary(), operator.at)
            elif operator.kind in ("BETWEEN", "IN") or operator.kind in _TEXT_TESTS:
                if negated:
                    self._lexer.take()
                self._lexer.take()
                left = self._test(left, operator, negated)
            elif negated:
                raise self._lexer.error(f"after a value NOT wants BETWEEN, IN or a text test, not {operator}", token.at)
            else:
                return left

    def _test(self, left: Node, operator: Token, negated: bool) -> Node:
        if operator.kind == "BETWEEN":
            return self._between(left, operator.at, negated)
        if operator.kind == "IN":
            return self._in(left, operator.at, negated)
        return TextTest(operator.kind, left, self._string(), negated, operator.at)

    def _ordered(self, operator: str, left: Node, right: Node, at: int) -> Node:
        for side in (left, right):
            if is_condition(side) or (isinstance(side, Constant) and isinstance(side.value, str)):
                raise self._lexer.error("only numbers and properties have an order", side.at)
        return Comparison(operator, left, right, at)

    def _between(self, value: Node, at: int, negated: bool) -> Node:
        low = self._unary()
        self._expect("AND")
        high = self._unary()
        if negated:
            below = self._ordered("<", value, low, at)
            return Logic("OR", (below, self._ordered(">", value, high, at)), at)
        from_low = self._ordered(">=", value, low, at)
        up_to_high = self._ordered("<=", value, high, at)
        if _is_above(low, high):
            raise self._lexer.error("the lower bound of BETWEEN is above the upper", at)
        return Logic("AND", (from_low, up_to_high), at)

    def _in(self, left: Node, at: int, negated: bool) -> Node:
        self._expect("(")
        values = [self._string()]
        while self._skip(","):
            values.append(self._string())
        self._expect(")")
        if not isinstance(left, Property):
            raise self._lexer.error("the left side of IN must be a property", left.at)
        return Membership(left, frozenset(values), negated, at)

    def _unary(self) -> Node:
        token = self._lexer.peek()
        if token.kind not in ("+", "-", "NOT", "("):
            return self._primary()
        if self._depth >= MAX_DEPTH:
            raise self._lexer.error(f"more than {MAX_DEPTH} levels of brackets and signs", token.at)
        self._depth += 1
        try:
            return self._nested(self._lexer.take())
        finally:
            self._depth -= 1

    def _nested(self, token: Token) -> Node:
        if token.kind == "+":
            return self._unary()
        if token.kind == "-":
            return Negate(self._unary(), token.at)
        if token.kind == "NOT":
            return Not(self._as_condition(self._unary()), token.at)
        inner = self._any()
        self._expect(")")
        return inner

    def _primary(self) -> Node:
        token = self._lexer.peek()
        if token.kind == STRING:
            return Constant(self._string(), token.at)
        self._lexer.take()
        if token.kind == NAME:
            return Property(token.text, token.at)
        if token.kind == INTEGER:
            return Constant(self._whole_number(token), token.at)
        if token.kind == FLOAT:
            return Constant(self._float(token), token.at)
        if token.kind in _LITERALS:
            return Constant(_LITERALS[token.kind], token.at)
        raise self._lexer.error(f"a property, a value or a bracket is missing before {token}", token.at)

    def _string(self) -> str:
        token = self._expect(STRING)
        return token.text[1:-1].replace("''", "'")

    def _whole_number(self, token: Token) -> int:
        number = int(token.text.rstrip("lL"))
        if number > LONG_MAX:
            raise self._lexer.error(f"{number} is beyond the largest number, {LONG_MAX}", token.at)
        return number if number <= INT_MAX else Long(number)

    def _float(self, token: Token) -> float:
        number = float(token.text)
        if number == 0.0 or number == float("inf"):
            raise self._lexer.error(f"{token.text} is beyond the range of doubles, which goes from 4.9E-324", token.at)
        return number

    def _as_condition(self, node: Node) -> Node:
        if is_condition(node):
            return node
        if isinstance(node, Property):
            return BooleanCast(node, node.at)
        raise self._lexer.error("this is a value, where a condition is needed", node.at)

    def _skip(self, kind: str) -> bool:
        is_next = self._lexer.peek().kind == kind
        if is_next:
            self._lexer.take()
        return is_next

    def _expect(self, kind: str) -> Token:
        token = self._lexer.peek()
        if token.kind != kind:
            raise self._lexer.error(f"{kind} is missing before {token}", token.at)
        return self._lexer.take()


def _is_above(low: Node, high: Node) -> bool:
    """BETWEEN checks only plain literals: signs and properties are left to evaluation."""
    if not isinstance(low, Constant) or not isinstance(high, Constant):
        return False
    first, last = low.value, high.value
    assert isinstance(first, int | float)
    assert isinstance(last, int | float)
    if isinstance(first, float) or isinstance(last, float):
        return float(first) > float(last)
    return first > last
