"""The bytecode of test files, made by all workers together where a clone has none yet.

pytest rewrites the assertions of every file that it imports and keeps the result, which takes 7 s of CPU for all of
them. Workers that begin at the same time would each do it for every file; so each does its part first.
"""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


def make_part(config: pytest.Config) -> None:
    """A worker's part. Nothing where there is one process, or where pytest keeps its bytecode in another way."""
    worker_input = getattr(config, "workerinput", None)
    if worker_input is None or config.getoption("assertmode") != "rewrite":
        return
    try:
        from _pytest.assertion.rewrite import PYC_TAIL, _rewrite_test, _write_pyc, assertstate_key, get_cache_dir
    except ImportError:
        return
    number = int(worker_input["workerid"].removeprefix("gw"))
    for path in sorted(TESTS.rglob("test_*.py"))[number :: worker_input["workercount"]]:
        cached = get_cache_dir(path) / (path.stem + PYC_TAIL)
        if cached.exists():
            continue  # the import looks whether it is still right
        try:
            cached.parent.mkdir(parents=True, exist_ok=True)
        except OSError:
            return  # nothing can be kept here
        source, code = _rewrite_test(path, config)
        _write_pyc(config.stash[assertstate_key], code, source, cached)
