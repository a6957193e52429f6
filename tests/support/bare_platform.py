"""Removes functions that some platforms lack, before the modules that use them are imported.

    ROCKETLET_TEST_WITHOUT="os.fdatasync os.posix_fallocate fcntl" make quick

runs the suite as on macOS (no fdatasync, no posix_fallocate) and on Windows (no fcntl either), as far as Linux can show
it. A name without a dot is a module. Instead of fcntl there is a fake of msvcrt, with a lock of the same kind.
"""

from __future__ import annotations

import importlib
import os
import sys
from types import SimpleNamespace
from typing import Any, cast


def remove_modules() -> None:
    names = os.environ.get("ROCKETLET_TEST_WITHOUT", "").split()
    if "fcntl" in names:
        sys.modules["msvcrt"] = cast("Any", SimpleNamespace(locking=_locking(), LK_NBLCK=2))
    for name in names:
        module, _, function = name.rpartition(".")
        if not module:
            sys.modules[name] = None  # type: ignore[assignment]  # to import it is an ImportError
        elif hasattr(importlib.import_module(module), function):
            delattr(importlib.import_module(module), function)


def _locking() -> Any:
    from fcntl import LOCK_EX, LOCK_NB, lockf

    return lambda descriptor, mode, size: lockf(descriptor, LOCK_EX | LOCK_NB, size, 0, os.SEEK_CUR)
