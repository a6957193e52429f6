"""Runs the benchmarks, compares them with the last committed run, and reports which budgets are met.

    python -m benchmarks [CHAPTER ...] [--quick] [--rounds 3] [--json FILE] [--png FILE]

Chapters: see --list. A full run takes 17 minutes, seven of them for Java and four for growth; --quick takes three and
says little about the budgets. Results of a full run go to benchmarks/results/latest.json, others only to the file given
by --json.

Java: (none)
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.budgets import CHAPTERS, Figure, Figures

RESULTS = Path(__file__).parent / "results" / "latest.json"
PNG = Path(__file__).parent.parent / "docs" / "growth.png"
WIDTH = 58


def run_chapter(name: str, rounds: int, *, quick: bool) -> dict[str, list[float]]:
    """The values of each round, by figure."""
    chapter = CHAPTERS[name]
    values_by_figure: dict[str, list[float]] = {}
    for _ in range(1 if chapter.once else rounds):
        values: Figures = chapter.measure(quick)
        for key, value in values.items():
            values_by_figure.setdefault(key, []).append(value)
    return values_by_figure


def row(figure: Figure, values: list[float], last: list[float] | None) -> str:
    """One line of the table: median, previous value, bound, whether each round met it."""
    verdict = ""
    if figure.bound:
        met = sum(bool(figure.holds(value)) for value in values)
        verdict = f"{figure.bound:>9}  " + ("held" if met == len(values) else f"MISSED in {len(values) - met}")
    previous = shown(statistics.median(last), figure.unit) if last else ""
    return (
        f"{figure.what:{WIDTH}} {shown(statistics.median(values), figure.unit):>12} {previous:>12} {verdict}".rstrip()
    )


def shown(value: float, unit: str) -> str:
    """A number with its unit, in significant digits."""
    digits = 0 if abs(value) >= 1000 or value == int(value) else 1 if abs(value) >= 20 else 2
    return f"{value:,.{digits}f} {unit}".rstrip()


def show(name: str, values_by_figure: dict[str, list[float]], before: dict[str, list[float]]) -> None:
    chapter = CHAPTERS[name]
    print(f"\n{name}: {chapter.about}", flush=True)
    for key, values in values_by_figure.items():
        if key in chapter.figures:
            print(row(chapter.figures[key], values, before.get(key)))
        elif not key.endswith((" MB", " ratio")):
            memory = values_by_figure.get(f"{key} MB")
            memory_text = f"{memory[0]:8.0f} MB" if memory else ""
            print(f"{key:{WIDTH}} {shown(values[0], '/s'):>12} {memory_text}")
    sys.stdout.flush()


def machine() -> dict[str, Any]:
    """The machine on which the figures were taken."""
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "load before": [round(value, 1) for value in os.getloadavg()],
        "date": time.strftime("%Y-%m-%d %H:%M"),
    }


def draw_growth(values_by_figure: dict[str, list[float]], path: Path) -> None:
    """A plot of the growth figures, if matplotlib is installed."""
    from benchmarks.growth import draw

    points = []
    for key, values in values_by_figure.items():
        series, _, at = key.partition("=")
        if at.replace(".", "").isdigit():
            points.append(
                {"series": series, "at": float(at), "rate": values[0], "memory_mb": values_by_figure[f"{key} MB"][0]}
            )
    try:
        draw(points, str(path))
    except ImportError:
        print("no picture of the growth: pip install matplotlib (the extra `plot`)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("chapters", nargs="*", metavar="CHAPTER", help="which (default: all)")
    parser.add_argument("--list", action="store_true", help="name the chapters")
    parser.add_argument("--quick", action="store_true", help="small runs, to see that all works")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument("--png", type=Path, help="draw the growth here (docs/growth.png; with --quick nowhere)")
    options = parser.parse_args()
    if options.list:
        print("\n".join(f"{name:12} {chapter.about}" for name, chapter in CHAPTERS.items()))
        return
    unknown = set(options.chapters) - set(CHAPTERS)
    if unknown:
        parser.error(f"no chapter {', '.join(sorted(unknown))}; there are {', '.join(CHAPTERS)}")
    last = json.loads(RESULTS.read_text())["chapters"] if RESULTS.exists() else {}
    results: dict[str, Any] = {"machine": machine(), "quick": options.quick, "chapters": {}}
    print(f"{'':{WIDTH}} {'now':>12} {'last':>12}    budget")
    for name in options.chapters or CHAPTERS:
        missing_names = CHAPTERS[name].needs()
        if missing_names:
            print(f"\n{name}: not run; missing: {', '.join(missing_names)}")
            continue
        values_by_figure = run_chapter(name, 1 if options.quick else options.rounds, quick=options.quick)
        results["chapters"][name] = values_by_figure
        show(name, values_by_figure, last.get(name, {}))
        if name == "growth" and (options.png or not options.quick):
            draw_growth(values_by_figure, options.png or PNG)
    is_whole = not options.quick and set(results["chapters"]) == set(CHAPTERS)
    target = options.json or (RESULTS if is_whole else None)
    if target is not None:
        target.parent.mkdir(exist_ok=True, parents=True)
        target.write_text(json.dumps(results, indent=1) + "\n")
        print(f"\nwritten to {target}")


if __name__ == "__main__":
    main()
