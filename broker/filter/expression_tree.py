"""The tree of a parsed selector: what the parser builds and the compiler reads.

Values are Java's, because their type decides how a property's text is read: `Integer` and `Long` literals require a
whole number in their range, floats accept any number. A bool is an int in Python, so types are checked with
`type(value) is ...`. Nothing changes a node, but they are not frozen: it would take three times as long to make one.

Java: filter/expression/Expression.java and its kin
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1


class Long(int):
    """A whole number that did not fit an int when it was written, as in `a > 3000000000`."""

    __slots__ = ()


Value: TypeAlias = "bool | str | int | float | None"


@dataclass(slots=True)
class Constant:
    value: Value
    at: int


@dataclass(slots=True)
class Property:
    name: str
    at: int


@dataclass(slots=True)
class BooleanCast:
    """A bare property as a condition: FALSE if the message has it, else NULL. Odd, but Java's."""

    operand: Property
    at: int


@dataclass(slots=True)
class Negate:
    operand: Node
    at: int


@dataclass(slots=True)
class Not:
    operand: Node
    at: int


@dataclass(slots=True)
class Logic:
    """AND or OR of two or more conditions, evaluated from the left until one decides."""

    operator: str
    terms: tuple[Node, ...]
    at: int


@dataclass(slots=True)
class Comparison:
    operator: str  # = < <= > >=; <> is Not of =, IS NULL is = with the constant NULL
    left: Node
    right: Node
    at: int


@dataclass(slots=True)
class Membership:
    operand: Property
    values: frozenset[str]
    negated: bool
    at: int


@dataclass(slots=True)
class TextTest:
    operator: str  # CONTAINS STARTSWITH ENDSWITH
    operand: Node
    text: str
    negated: bool
    at: int


Node: TypeAlias = Constant | Property | BooleanCast | Negate | Not | Logic | Comparison | Membership | TextTest


def is_condition(node: Node) -> bool:
    """Whether it yields TRUE, FALSE or NULL, not a text or a number."""
    if isinstance(node, Constant):
        return node.value is None or isinstance(node.value, bool)
    return not isinstance(node, Property | Negate)
