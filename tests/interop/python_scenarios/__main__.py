"""Our own client through the scenarios of the official one, against any name server and broker.

    python -m tests.interop.python_scenarios --namesrv 127.0.0.1:9876 [--header 1] [--json FILE] [name or group ...]

Exit code 0: nothing failed; 1: something failed; 2: usage.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import threading
import time
import traceback
from pathlib import Path

from tests.interop.python_scenarios.catalogue import Scenario, all_scenarios
from tests.interop.python_scenarios.lab import Lab, Skip

_CLOSE = 15


def attempt(scenario: Scenario, namesrv: str, run: str, header_type: int, slow: int) -> tuple[str, float, str]:
    """Verdict, seconds, reason."""
    lab = Lab(namesrv, scenario.name, run, header_type)
    thrown: list[BaseException] = []

    def body() -> None:
        try:
            scenario.body(lab)
        except BaseException as error:  # noqa: BLE001 - also what a scenario should never raise is told
            thrown.append(error)

    began = time.monotonic()
    thread = threading.Thread(target=body, name=scenario.name, daemon=True)
    thread.start()
    thread.join(scenario.seconds * slow)
    took = time.monotonic() - began
    if thread.is_alive():
        assert thread.ident is not None
        frame = sys._current_frames()[thread.ident]
        where = [one for one in traceback.extract_stack(frame) if "python_scenarios" in one.filename][-1]
        return "FAIL", took, f"still running after its limit at {Path(where.filename).name}:{where.lineno}"
    closing = threading.Thread(target=lab.close, name=f"{scenario.name}-close", daemon=True)
    closing.start()
    closing.join(_CLOSE)
    if closing.is_alive():
        sys.stderr.write(f"clients of {scenario.name} did not shut down within {_CLOSE} s" + "\n")
    if not thrown:
        return "PASS", took, ""
    if isinstance(thrown[0], Skip):
        return "SKIP", took, str(thrown[0])
    places = [one for one in traceback.extract_tb(thrown[0].__traceback__) if "python_scenarios" in one.filename]
    place = [one for one in places if not one.filename.endswith("lab.py")][-1]
    return "FAIL", took, f"{type(thrown[0]).__name__}: {thrown[0]} ({Path(place.filename).name}:{place.lineno})"


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="scenarios or groups; all without")
    parser.add_argument("--namesrv", default="127.0.0.1:9876")
    parser.add_argument("--header", type=int, default=0, choices=(0, 1, 2), help="header type of all requests")
    parser.add_argument("--slow", type=int, default=1, help="multiplies the time limits")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--log", help="file for the client's log")
    options = parser.parse_args()
    if options.log:
        logging.basicConfig(filename=options.log, level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    known = all_scenarios()
    chosen = [one for one in known if not options.names or one.name in options.names or one.group in options.names]
    for name in options.names:
        if name not in {one.name for one in known} | {one.group for one in known}:
            parser.error(f"no scenario or group {name}; see --list")
    if options.list:
        for one in chosen:
            _say(f"{one.group:12} {one.name:28} {one.seconds:4} s  {one.shows}")
        return 0
    run = f"{time.time_ns() // 1_000_000:x}"
    outcomes = []
    for number, one in enumerate(chosen):
        verdict, took, why = attempt(one, options.namesrv, f"{run}-{number}", options.header, options.slow)
        outcomes.append({"name": one.name, "verdict": verdict, "millis": round(took * 1000), "why": why})
        _say(f"{verdict} {one.name:28} {took:6.1f} s  {why}")
    count = {verdict: sum(one["verdict"] == verdict for one in outcomes) for verdict in ("PASS", "FAIL", "SKIP")}
    _say(f"{count['PASS']} passed, {count['FAIL']} failed, {count['SKIP']} skipped")
    if options.json:
        options.json.write_text(json.dumps({"scenarios": outcomes}))
    return 1 if count["FAIL"] else 0


if __name__ == "__main__":
    sys.exit(main())
