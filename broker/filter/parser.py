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
from rocketlet.broker.filter.lexer import FLOAT, INTEGER, NAME, STRING, FilterSyntaxError, Lexer

MAX_DEPTH: Final = 80  # five Python calls per level here, of the thousand allowed
MAX_LEVELS: Final = 120  # of the tree, and so of calls during evaluation
MAX_LENGTH: Final = 16_384

_LITERALS: Final = {"TRUE": True, "FALSE": False, "NULL": None}
_ORDERED: Final = frozenset({"<", "<=", ">", ">="})
_TESTS: Final = frozenset({"BETWEEN", "IN", "CONTAINS", "STARTSWITH", "ENDSWITH"})
_COMPARING: Final = _ORDERED | _TESTS | {"NOT"}
_EQUALITY: Final = frozenset({"=", "<>", "IS"})
_NESTING: Final = frozenset({"+", "-", "NOT", "("})


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

    # `part keyword part ...` becomes one node: three-valued AND and OR are associative, including which parts they
    # evaluate.

    def _any(self) -> Node:
        lexer, left = self._lexer, self._all()
        if lexer.kind != "OR":
            return left
        terms, at = [self._as_condition(left)], lexer.at
        while lexer.kind == "OR":
            lexer.advance()
            terms.append(self._as_condition(self._all()))
        return Logic("OR", tuple(terms), at)

    def _all(self) -> Node:
        lexer, left = self._lexer, self._equality()
        if lexer.kind != "AND":
            return left
        terms, at = [self._as_condition(left)], lexer.at
        while lexer.kind == "AND":
            lexer.advance()
            terms.append(self._as_condition(self._equality()))
        return Logic("AND", tuple(terms), at)

    def _equality(self) -> Node:
        lexer, left = self._lexer, self._comparison()
        length = 0
        while (sign := lexer.kind) in _EQUALITY:
            at, length = lexer.at, self._longer(length)
            lexer.advance()
            if sign == "IS":
                negated = self._skip("NOT")
                self._expect("NULL")
                left = Comparison("=", left, Constant(None, at), at)
            else:
                negated = sign == "<>"
                left = self._equals(left, self._comparison(), at)
            if negated:
                left = Not(left, at)
        return left

    def _longer(self, length: int) -> int:
        """Each part of a chain is a level of the tree; of 8,000, all would be read before it was too deep."""
        if length > MAX_LEVELS:
            raise self._lexer.error(f"more than {MAX_LEVELS} levels of conditions", self._lexer.at)
        return length + 1

    def _equals(self, left: Node, right: Node, at: int) -> Node:
        for side in (left, right):
            if isinstance(side, Constant) and side.value is None:
                raise self._lexer.error("NULL cannot be compared; write IS NULL or IS NOT NULL", side.at)
        constants = isinstance(left, Constant) and isinstance(right, Constant)
        if constants and is_condition(left) and not is_condition(right):
            raise self._lexer.error("TRUE and FALSE cannot be compared with a text or a number", left.at)
        return Comparison("=", left, right, at)

    def _comparison(self) -> Node:
        lexer, left = self._lexer, self._unary()
        length = 0
        while (operator := lexer.kind) in _COMPARING:
            at = lexer.at
            if operator in _ORDERED:
                lexer.advance()
                left = self._ordered(operator, left, self._unary(), at)
                continue
            negated = operator == "NOT"
            if negated:
                operator = lexer.following()
                if operator not in _TESTS:
                    lexer.advance()
                    raise lexer.error(f"after a value NOT wants BETWEEN, IN or a text test, not {lexer.shown()}", at)
                lexer.advance()
                at = lexer.at
            length = self._longer(length)
            lexer.advance()
            left = self._test(left, operator, at, negated)
        return left

    def _test(self, left: Node, operator: str, at: int, negated: bool) -> Node:
        if operator == "BETWEEN":
            return self._between(left, at, negated)
        if operator == "IN":
            return self._in(left, at, negated)
        return TextTest(operator, left, self._string(), negated, at)

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
        lexer = self._lexer
        sign = lexer.kind
        if sign not in _NESTING:
            return self._primary()
        if self._depth >= MAX_DEPTH:
            raise lexer.error(f"more than {MAX_DEPTH} levels of brackets and signs", lexer.at)
        self._depth += 1
        at = lexer.at
        lexer.advance()
        if sign == "(":
            node = self._any()
            self._expect(")")
        else:
            node = self._unary()
            if sign == "-":
                node = Negate(node, at)
            elif sign == "NOT":
                node = Not(self._as_condition(node), at)
        self._depth -= 1
        return node

    def _primary(self) -> Node:
        lexer = self._lexer
        kind, text, at = lexer.kind, lexer.text, lexer.at
        if kind == NAME:
            node: Node = Property(text, at)
        elif kind == STRING:
            node = Constant(_content(text), at)
        elif kind == INTEGER:
            node = Constant(self._whole_number(text, at), at)
        elif kind == FLOAT:
            node = Constant(self._float(text, at), at)
        elif kind in _LITERALS:
            node = Constant(_LITERALS[kind], at)
        else:
            raise lexer.error(f"a property, a value or a bracket is missing before {lexer.shown()}", at)
        lexer.advance()
        return node

    def _string(self) -> str:
        return _content(self._expect(STRING))

    def _whole_number(self, text: str, at: int) -> int:
        number = int(text.rstrip("lL"))
        if number > LONG_MAX:
            raise self._lexer.error(f"{number} is beyond the largest number, {LONG_MAX}", at)
        return number if number <= INT_MAX else Long(number)

    def _float(self, text: str, at: int) -> float:
        number = float(text)
        if number == 0.0 or number == float("inf"):
            raise self._lexer.error(f"{text} is beyond the range of doubles, which goes from 4.9E-324", at)
        return number

    def _as_condition(self, node: Node) -> Node:
        if is_condition(node):
            return node
        if isinstance(node, Property):
            return BooleanCast(node, node.at)
        raise self._lexer.error("this is a value, where a condition is needed", node.at)

    def _skip(self, kind: str) -> bool:
        is_next = self._lexer.kind == kind
        if is_next:
            self._lexer.advance()
        return is_next

    def _expect(self, kind: str) -> str:
        lexer = self._lexer
        if lexer.kind != kind:
            raise lexer.error(f"{kind} is missing before {lexer.shown()}", lexer.at)
        text = lexer.text
        lexer.advance()
        return text


def _content(text: str) -> str:
    """What a string in quotes says."""
    return text[1:-1].replace("''", "'")


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
