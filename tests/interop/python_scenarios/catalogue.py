"""All scenarios, in the order in which they run. Names and groups are those of the official client's catalogue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.interop.python_scenarios.lab import Lab

Body = Callable[[Lab], None]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One guarantee, shown by our own client."""

    group: str
    name: str
    seconds: int
    shows: str
    body: Body


SCENARIOS: list[Scenario] = []


def scenario(group: str, name: str, seconds: int) -> Callable[[Body], Body]:
    """Register a function; its docstring says what it shows."""

    def enter(body: Body) -> Body:
        SCENARIOS.append(Scenario(group, name, seconds, (body.__doc__ or "").strip(), body))
        return body

    return enter


def all_scenarios() -> list[Scenario]:
    """Complete once their modules are imported."""
    from tests.interop.python_scenarios import (
        administration,
        agreeing,
        consuming,
        dialects,
        pulling,
        routes,
        sending,
        waiting,
    )

    order = [routes, sending, consuming, waiting, agreeing, pulling, administration, dialects]
    groups = [module.GROUP for module in order]
    return sorted(SCENARIOS, key=lambda one: groups.index(one.group))
