"""Plain functions of an engine, in the form in which facades call all of it.

Java: none
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


async def called(function: Callable[Parameters, Result], *args: Parameters.args, **named: Parameters.kwargs) -> Result:
    """Calls the function, on whatever loop this is awaited."""
    return function(*args, **named)
