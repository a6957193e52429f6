"""The recorded store directories of tests/vectors/stores, unpacked."""

from __future__ import annotations

import tarfile
from pathlib import Path

STORES = Path(__file__).parent.parent / "vectors" / "stores"


def unpack(case: str, into: Path) -> Path:
    """The store directory of a case (`clean`, `damaged/crash-torn-tail`), its files with their original times."""
    with tarfile.open(STORES / case / "store.tar.gz") as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(into, filter="data")
        else:  # Python before 3.11.4
            archive.extractall(into)
    return into / "store"
