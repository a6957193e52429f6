"""Reports what a wheel lacks (a package's py.typed, the licence, a console script) or should not contain (tests)."""

from __future__ import annotations

import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text("utf-8"))
PARTS = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]["parts"]
SCRIPTS = list(PROJECT["project"]["scripts"])


def findings(wheel: zipfile.ZipFile) -> Iterator[str]:
    """One line for each thing that is wrong."""
    names = wheel.namelist()
    for package in ("rocketlet", "client", *(f"rocketlet/{part}" for part in PARTS)):
        if f"{package}/py.typed" not in names:
            yield f"no {package}/py.typed"
    more = [
        name for name in names if name.startswith("client/") and name not in ("client/__init__.py", "client/py.typed")
    ]
    if more:
        yield f"more in client than the facade: {', '.join(more)}"
    for licence in ("LICENSE", "NOTICE"):
        if not any(name.endswith(f".dist-info/licenses/{licence}") for name in names):
            yield f"no {licence}"
    strange = sorted({name.partition("/")[0] for name in names} - {"rocketlet", "client"})
    if len(strange) != 1 or not strange[0].endswith(".dist-info"):
        yield f"more at the top than rocketlet and client: {', '.join(strange)}"
    entry_points = next((name for name in names if name.endswith("/entry_points.txt")), None)
    declared = wheel.read(entry_points).decode() if entry_points else ""
    for script in SCRIPTS:
        if f"{script} = " not in declared:
            yield f"no console script {script}"


def main() -> None:
    path = sys.argv[1]
    with zipfile.ZipFile(path) as wheel:
        found = list(findings(wheel))
        size = sum(entry.compress_size for entry in wheel.infolist())
    for finding in found:
        sys.stdout.write(f"{path}: {finding}\n")
    if found:
        raise SystemExit(1)
    sys.stdout.write(f"{path.rpartition('/')[2]}: {size // 1024} KiB, complete\n")


if __name__ == "__main__":
    main()
