"""The whole catalogue of the official client, against our name servers and brokers as real processes.

Twice: with JSON headers on one broker, and with binary ones on two brokers and two name servers, concurrently. The
client gives up on a request after three seconds, its own setting, which is sometimes too short on a busy machine. So
failed scenarios are run once more, alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.java_programs import QUICK_BROKER, JavaPrograms, Outcome
from tests.support.ports import free_broker_port
from tests.support.programs import name_server, program

pytestmark = pytest.mark.interop

VARIANTS = ["one broker, JSON", "two brokers, binary"]
SCENARIOS = 78
SLOW = 4  # times as patient as alone


def run(java: JavaPrograms, folder: Path, brokers: int, *, binary: bool) -> dict[str, Outcome]:
    """One stack, with all of the official client's scenarios."""
    with ExitStack() as held:
        namesrvs = [held.enter_context(name_server(_made(folder / f"namesrv-{n}")))[1] for n in range(brokers)]
        for number in range(brokers):
            given = {
                "brokerName": f"broker-{'ab'[number]}",
                "storePathRootDir": _made(folder / f"broker-{number}"),
                "listenPort": free_broker_port(),
                **QUICK_BROKER,
            }
            words = [word for key, value in given.items() for word in (f"--{key}", str(value))]
            held.enter_context(program("broker", *words, "-n", ";".join(namesrvs))).line_with("is ready")
        address = ";".join(namesrvs)
        outcomes = java.all_scenarios(address, binary=binary, slow=SLOW)
        failed = [name for name, one in outcomes.items() if one.verdict == "FAIL"]
        if failed:
            outcomes |= java.scenarios(address, *failed, binary=binary, slow=SLOW)
        return outcomes


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


@pytest.fixture(scope="module")
def runs(
    java: JavaPrograms, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[dict[str, Outcome]]]]:
    """Both runs, in progress."""
    with ThreadPoolExecutor(len(VARIANTS)) as pool:
        yield {
            variant: pool.submit(
                run,
                java,
                tmp_path_factory.mktemp("stack"),
                2 if variant.startswith("two") else 1,
                binary=variant.endswith("binary"),
            )
            for variant in VARIANTS
        }


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_official_client_sees_no_difference(runs: dict[str, Future[dict[str, Outcome]]], variant: str) -> None:
    outcomes = runs[variant].result()
    assert {name: one.why for name, one in outcomes.items() if one.verdict != "PASS"} == {}
    assert len(outcomes) == SCENARIOS
