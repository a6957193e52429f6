"""Takes functions away that some platforms lack, before the modules that use them are imported.

    ROCKETLET_TEST_WITHOUT="os.fdatasync os.posix_fallocate fcntl" make quick

is how the suite runs on macOS (no fdatasync, no posix_fallocate) and on Windows (no fcntl either), as far as Linux can
show it. A name without a dot is a module.
"""

from __future__ import annotations

import importlib
import os
import sys


def take_away() -> None:
    for name in os.environ.get("ROCKETLET_TEST_WITHOUT", "").split():
        module, _, function = name.rpartition(".")
        if not module:
            sys.modules[name] = None  # type: ignore[assignment]  # to import it is an ImportError
        elif hasattr(importlib.import_module(module), function):
            delattr(importlib.import_module(module), function)
