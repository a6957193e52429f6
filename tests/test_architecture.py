"""Which module may import which, and through which modules the outside world is accessed.

The dictionaries are the rules; ARCHITECTURE.md draws them. Change them only together with it, and with a reason. The
second half plants a violation of each rule in a small tree, to check that it is found and that the message helps.
"""

from __future__ import annotations

import graphlib
import tomllib
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.support import architecture
from tests.support.architecture import SourceTree

ROOT = Path(__file__).parent.parent

# Room: the rooms that it may import. store.layout is a separate room: bytes over any buffer, for Spark too.
ARROWS: dict[str, set[str]] = {
    "common": set(),
    "remoting": {"common"},
    "store.layout": {"common"},
    "store": {"store.layout", "common"},
    "metrics": {"remoting", "common"},
    "access": {"remoting", "common"},
    "namesrv": {"access", "metrics", "remoting", "common"},
    "replication": {"store", "remoting", "common"},
    "failover": {"replication", "store", "store.layout", "remoting", "common"},
    "broker": {"access", "metrics", "failover", "replication", "store", "store.layout", "remoting", "common"},
    "client": {"remoting", "common"},
    "spark_jobs": {"client", "remoting", "store.layout", "common"},
    "proxy": {"access", "client", "metrics", "remoting", "common"},
    # Above the tools: it does what mqadmin does. `rocketlet console` names it without importing it.
    "console": {"access", "tools", "client", "remoting", "common"},
    "tools": {
        "access",
        "spark_jobs",
        "proxy",
        "broker",
        "failover",
        "replication",
        "client",
        "namesrv",
        "metrics",
        "store",
        "store.layout",
        "remoting",
        "common",
    },
}
PACKAGES = [room for room in ARROWS if "." not in room]

# These decide and do no I/O: bytes, values and the time are arguments.
PURE = [
    "common.*",
    "remoting.access",
    "remoting.claims",
    "remoting.peers",
    "remoting.rates",
    "access.account_edits",
    "access.account_files",
    "access.account_requests",
    "access.accounts",
    "access.addresses",
    "access.explain",
    "access.verdicts",
    "remoting.command",
    "remoting.frame_codec",
    "remoting.header_*",
    "remoting.protocol.*",
    "remoting.re*_codes",
    "remoting.request_reader",
    "store.layout.*",
    "namesrv.route_table",
    "namesrv.route_values",
    "broker.consumer_groups",
    "broker.consumer_offsets",
    "broker.delay_levels",
    "broker.delay_offsets",
    "broker.filter.*",
    "broker.popping.facts",
    "broker.popping.in_flight",
    "broker.popping.modes",
    "broker.producer_groups",
    "broker.property_text",
    "broker.put_times",
    "broker.queue_locks",
    "broker.subscription_groups",
    "broker.timing.deliver_at",
    "broker.timing.facts",
    "broker.timing.pending",
    "broker.topic_table",
    "broker.transaction_states",
    "failover.candidacy",
    "failover.coordinator",
    "failover.epochs",
    "failover.in_sync",
    "failover.stream_codec",
    "replication.slave_view",
    "replication.stream_codec",
    "client.sending.batch_splitter",
    "metrics.page",
    "proxy.call",
    "proxy.grpc_wire",
    "proxy.http2.*",
    "proxy.service.incoming",
    "proxy.service.outgoing",
    "proxy.service.routes",
    "proxy.service.settings",
    "proxy.wire.*",
    "client.compression",
    "client.errors",
    "client.sending.latency_faults",
    "client.namespace",
    "client.consuming.process_queue",
    "client.consuming.queue_allocation",
    "client.sending.queue_selection",
    "client.consuming.received_messages",
    "client.sending.send_frames",
    "remoting.signing",
    "client.validators",
    "spark_jobs.index_segments",
    "spark_jobs.rocketmq.options",
    "spark_jobs.rocketmq.queue_offsets",
    "spark_jobs.segment_rows",
    "*.config",
]
PURE_BUT_FOR = ["common.clock", "common.platform_files"]
ACTS_ON_THE_WORLD = ["trio", "asyncio", "os", "mmap", "time", "threading", "random", "socket", "subprocess", "tempfile"]

# Foreign module: the modules of ours that may import it.
DOORS = {
    "mmap": ["store.disk", "store.real_region"],
    "msgpack": ["remoting.header_msgpack"],
    "pyspark": ["spark_jobs.*"],
    "starlette": ["console.*"],
    "jinja2": ["console.*"],
    "hypercorn": ["console.app", "console.__main__"],
    "prometheus_client": ["metrics.exposition"],
    "h11": ["failover.etcd_client", "metrics.endpoint"],
    "google": ["proxy.wire.*", "proxy.connection"],
    "hpack": ["proxy.http2.protocol"],
    "cryptography": ["remoting.certificates"],
    "yaml": ["access.account_files", "access.account_edits"],
    "click": ["*.__main__", "tools.*"],
    # Nothing that a peer or a file controls ever unpickles or starts a program.
    "pickle": [],
    "marshal": [],
    "shelve": [],
    "subprocess": ["tools.*", "spark_jobs.*"],
}

WALL_TIME = ["time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "datetime.today", "date.today"]
WALL_TIME += [f"datetime.{call}" for call in WALL_TIME if call.startswith("date")]
FILE_CALLS = [
    "open",
    "io.open",
    "os.open",
    "os.fdopen",
    "os.pread",
    "os.pwrite",
    "os.fsync",
    "os.fdatasync",
    "os.replace",
]
FILE_CALLS += ["os.rename", "os.unlink", "os.remove", "os.truncate", "os.ftruncate"]
SHELLS = ["os.system", "os.popen", "eval", "exec"]

COMPOSITION_ROOTS = {
    "proxy.proxy": ["proxy.__main__", "tools.*"],
    "broker.broker": ["broker.__main__", "tools.*"],
    "broker.requests": ["broker.broker"],
    "broker.parts": [
        "broker.broker",
        "broker.duties",
        "broker.requests",
        "broker.metrics.*",
        "broker.handlers.replicas",
    ],
    "namesrv.namesrv": ["namesrv.__main__", "tools.*"],
}

FACADES = ["client"]  # the SDK's public names
FACADE_USERS = ["tools.*"]
SUFFIXES = ["Manager", "Service", "Controller", "Impl", "Helper", "Util", "Utils"]


@pytest.fixture(scope="module")
def tree() -> SourceTree:
    tree = SourceTree(ROOT, PACKAGES)
    assert tree.imports  # parses all modules once, here, so that no test is charged for it
    return tree


def findings(tree: SourceTree) -> Iterator[str]:
    """Everything in the tree that violates a rule."""
    yield from of_imports(tree)
    yield from of_calls(tree)
    yield from of_names(tree)


def of_imports(tree: SourceTree) -> Iterator[str]:
    yield from architecture.against_the_arrows(tree, ARROWS)
    yield from architecture.cycles(tree)
    yield from architecture.impure(tree, PURE, PURE_BUT_FOR, ACTS_ON_THE_WORLD)
    yield from architecture.through_another_door(tree, DOORS)


def of_calls(tree: SourceTree) -> Iterator[str]:
    yield from architecture.forbidden_calls(
        tree, WALL_TIME, ["common.clock"], "Wall time has one door, common/clock.py: take a WallClock or the time."
    )
    yield from architecture.forbidden_calls(
        tree,
        FILE_CALLS,
        ["common.platform_files", "store.real_disk", "store.real_region", "namesrv.durable_file", "access.folder"],
        "Files are met through a seam, Disk in store/disk.py, Files in namesrv/durable_file.py or Folder in"
        " access/folder.py, so that tests can make them fail.",
        within=["access.*", "store.*", "broker.*", "namesrv.*", "remoting.*", "common.*"],
    )
    yield from architecture.forbidden_calls(tree, SHELLS, [], "Nothing here runs text. Spell out what is to be done.")


def of_names(tree: SourceTree) -> Iterator[str]:
    yield from architecture.composition_roots_known(tree, COMPOSITION_ROOTS)
    yield from architecture.through_a_facade(tree, FACADES, FACADE_USERS)
    yield from architecture.by_a_general_name(tree)
    yield from architecture.inhabited_packages(tree, FACADES)
    yield from architecture.badly_named_classes(tree, SUFFIXES)
    yield from architecture.without_docstring(tree)


def test_every_package_is_in_the_wheel_and_seen_by_mypy() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    hook = project["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]
    assert sorted(hook["parts"]) == sorted(PACKAGES), "pyproject.toml: the parts of the wheel"
    linked = {path.name for path in (ROOT / ".typing" / "rocketlet").iterdir() if path.is_dir()}
    assert linked == set(PACKAGES), ".typing/rocketlet: ln -s ../../PACKAGE .typing/rocketlet/PACKAGE"


@pytest.mark.parametrize("rules", [of_imports, of_calls, of_names])
def test_the_tree_keeps_every_rule(tree: SourceTree, rules: Callable[[SourceTree], Iterator[str]]) -> None:
    found = list(rules(tree))
    assert not found, "\n".join(["", *found])  # each in full, because it says what to do


def test_the_rules_name_only_what_exists(tree: SourceTree) -> None:
    named = [*PURE, *PURE_BUT_FOR, *COMPOSITION_ROOTS, *FACADES, *(door for doors in DOORS.values() for door in doors)]
    assert [pattern for pattern in named if not any(fnmatchcase(module, pattern) for module in tree.modules)] == []


def test_every_package_exists_and_is_typed(tree: SourceTree) -> None:
    assert {name for name in tree.modules if "." not in name} == set(PACKAGES)
    assert [package for package in PACKAGES if not (ROOT / package / "py.typed").exists()] == []


def test_the_arrows_form_no_cycle() -> None:
    graphlib.TopologicalSorter(ARROWS).prepare()


PLANTED = {
    "common/errors.py": '"""Errors."""',
    "store/layout/file_names.py": '"""Names."""\nfrom rocketlet.common.errors import X',
    "store/disk.py": '"""Disk."""\nfrom mmap import PAGESIZE',
    "store/real_region.py": '"""Region."""\nimport mmap, os\nos.open("x", 0)',
    "store/commit_log.py": (
        '"""Log."""\nfrom rocketlet.store.disk import Disk\nfrom rocketlet.store.layout import file_names'
    ),
    "broker/broker.py": (
        '"""Root."""\nimport rocketlet.store.commit_log\nfrom rocketlet.broker.handlers.send import send'
    ),
    "broker/handlers/send.py": '"""Send."""\nfrom rocketlet.remoting.command import Command',
    "broker/__main__.py": '"""Start."""\nimport click\nfrom rocketlet.broker.broker import Broker',
    "remoting/command.py": '"""Command."""\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import trio',
    "client/__init__.py": '"""SDK."""\nfrom rocketlet.client.sending.producer import Producer',
    "client/producer.py": '"""Producer."""\nimport trio',
    "tools/local.py": '"""Local."""\nfrom rocketlet.client import Producer\nimport rocketlet.namesrv.namesrv',
    "namesrv/namesrv.py": '"""Root."""',
    "spark_jobs/rows.py": '"""Rows."""\nimport pyspark\nimport rocketlet.store.layout.file_names',
}


def plant(root: Path, changes: Mapping[str, str] = MappingProxyType({})) -> SourceTree:
    """A small tree that keeps every rule, with these files changed."""
    for name, text in (PLANTED | {**changes}).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        for directory in path.relative_to(root).parents:
            if directory.name:
                (root / directory / "__init__.py").touch()
        path.write_text(text, "utf-8")
    return SourceTree(root, PACKAGES)


def test_a_good_tree_has_no_findings(tmp_path: Path) -> None:
    assert list(findings(plant(tmp_path))) == []


@pytest.mark.parametrize(
    ("path", "text", "words"),
    [
        (
            "store/commit_log.py",
            "import rocketlet.remoting.command",
            "store/commit_log.py:2: store.commit_log imports remoting.command, but store may import only common,"
            " store.layout. Move what both need into a package that both may import, or hand it in as an argument from"
            " a composition root.",
        ),
        ("broker/long_poll.py", "from rocketlet.client.sending.producer import Producer", "broker may import only"),
        (
            "spark_jobs/find.py",
            "from rocketlet.store.commit_log import CommitLog",
            "spark_jobs may import only client, common, remoting, store.layout",
        ),
        ("store/layout/scan.py", "from rocketlet.store.disk import Disk", "store.layout may import only common"),
        ("common/message.py", "import rocketlet.store.layout.file_names", "common may import only nothing of ours"),
        ("client/late.py", "def f():\n    from rocketlet.broker.handlers.send import send", "client may import only"),
        (
            "client/typed.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import rocketlet.store.disk",
            "may import only",
        ),
        ("common/message.py", "import time", "is a pure module and imports time. Take the time"),
        ("common/message.py", "def f():\n    from trio import sleep", "is a pure module and imports trio"),
        ("remoting/protocol/sending.py", "import os.path", "is a pure module and imports os"),
        ("store/commit_log.py", "import mmap", "imports mmap, whose one door is store.disk, store.real_region"),
        (
            "store/commit_log.py",
            "from mmap import mmap",
            "imports mmap, whose one door is store.disk, store.real_region",
        ),
        ("client/producer.py", "import msgpack", "imports msgpack, whose one door is remoting.header_msgpack"),
        ("tools/report.py", "from pyspark.sql import Row", "imports pyspark, whose one door is spark_jobs.*"),
        ("broker/config.py", "import click", "imports click, whose one door is *.__main__, tools.*"),
        ("broker/cache.py", "import pickle", "imports pickle, whose one door is no module"),
        ("client/producer.py", "import time\ntime.time()", "calls time.time. Wall time has one door"),
        ("client/producer.py", "import datetime\ndatetime.datetime.now()", "calls datetime.datetime.now. Wall time"),
        ("client/producer.py", "from datetime import datetime\ndatetime.now()", "calls datetime.now. Wall time"),
        ("broker/json_file.py", "open('x')", "calls open. Files are met through a seam, Disk in"),
        ("broker/json_file.py", "import os\nos.replace('x', 'y')", "calls os.replace. Files are met"),
        ("broker/hooks.py", "import os\nos.system('x')", "calls os.system. Nothing here runs text"),
        (
            "broker/long_poll.py",
            "from rocketlet.broker.broker import Broker",
            "imports the composition root broker.broker",
        ),
        ("namesrv/handlers.py", "import rocketlet.namesrv.namesrv", "imports the composition root namesrv.namesrv"),
        (
            "client/pull.py",
            "from rocketlet.client import Producer",
            "imports Producer from the package client. Import it from the",
        ),
        (
            "client/pull.py",
            "import common.errors",
            "imports common.errors by a general name. Write rocketlet.common",
        ),
        ("client/pull.py", "import store.disk", "imports store.disk by a general name. Write rocketlet.store.disk."),
        ("client/pull.py", "from .producer import Producer", "imports relatively. Name the module in full"),
        ("store/__init__.py", "X = 1", "is a package whose __init__.py holds code"),
        ("broker/topics.py", "class TopicConfigManager: ...", "has a class TopicConfigManager. Name what it holds"),
    ],
)
def test_a_planted_violation_is_found(tmp_path: Path, path: str, text: str, words: str) -> None:
    found = list(findings(plant(tmp_path, {path: f'"""Planted."""\n{text}'})))
    assert [finding for finding in found if words in finding], found


def test_a_planted_cycle_is_found(tmp_path: Path) -> None:
    tree = plant(
        tmp_path,
        {
            "store/flush.py": '"""Planted."""\nfrom rocketlet.store.dispatch import run',
            "store/dispatch.py": '"""Planted."""\nfrom rocketlet.store.queue import Queue',
            "store/queue.py": '"""Planted."""\ndef late():\n    from rocketlet.store.flush import flush',
        },
    )
    (finding,) = findings(tree)
    assert finding.startswith("import cycle: ")
    for module in ("store.flush", "store.dispatch", "store.queue"):
        assert module in finding
    assert "Move what they share into a third module" in finding


def test_a_module_without_docstring_is_found(tmp_path: Path) -> None:
    (finding,) = findings(plant(tmp_path, {"client/pull.py": "import trio"}))
    assert finding.startswith("client/pull.py:1: client.pull has no docstring.")


def test_a_call_by_an_imported_name_is_found(tmp_path: Path) -> None:
    (finding,) = findings(plant(tmp_path, {"client/pull.py": '"""Planted."""\nfrom time import time_ns\ntime_ns()'}))
    assert "calls time.time_ns" in finding
