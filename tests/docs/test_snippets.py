"""Every program in README.md and docs/ does what the page says (see tests/docs/snippets.py)."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from rocketlet.tools.local_settings import LocalSettings
from rocketlet.tools.thread_stack import ThreadStack
from tests.docs.snippets import GRPC, NAMESRV, Snippet, matches, snippets, steps

ROOT = Path(__file__).parent.parent.parent

# Pages whose programs are tested elsewhere.
ELSEWHERE = {
    "docs/spark.md": "it needs Spark; tests/spark_jobs runs the same jobs",
    "docs/performance.md": "it measures; benchmarks/ runs it",
}
# Retries and checks of transactions without minutes of waiting.
HURRY = {
    "messageDelayLevel": "1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s",
    "transactionTimeOut": "300",
    "transactionCheckInterval": "300",
}
SECONDS = 300  # only a hanging program takes that long
# Packages that the programs of a page need, from an extra that only tests install.
NEEDS = {"docs/howto/rocketmq5.md": "rocketmq"}


def pages() -> list[Path]:
    found = [Path("README.md"), *(path.relative_to(ROOT) for path in sorted(ROOT.glob("docs/**/*.md")))]
    return [page for page in found if snippets(ROOT, page) and page.as_posix() not in ELSEWHERE]


@pytest.fixture(scope="module")
def stack() -> Iterator[ThreadStack]:
    """One stack for all pages, with shorter delays than usual."""
    with ThreadStack(LocalSettings(namesrv_port=0, broker_port=0, settings=HURRY)) as running:
        yield running


@pytest.mark.process
@pytest.mark.parametrize("page", pages(), ids=str)
def test_programs_on_a_page_run(
    page: Path,
    stack: ThreadStack,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    needed = NEEDS.get(page.as_posix())
    if needed is not None and find_spec(needed) is None:
        pytest.skip(f"package {needed} is not installed; scripts/venv.sh dev rocketmq5 installs it")
    monkeypatch.chdir(tmp_path)
    request.addfinalizer(alarm())
    monkeypatch.setenv("NAMESRV_ADDR", stack.namesrv)
    names: dict[str, object] = {"__name__": "__main__"}
    for snippet in snippets(ROOT, page):
        text = snippet.text.replace(NAMESRV, stack.namesrv)
        if snippet.not_run:
            continue
        if GRPC in text:
            text = text.replace(GRPC, stack.endpoints)
        if snippet.word == "console":
            run_console(snippet, text, stack.namesrv)
        elif snippet.until:
            run_until(snippet, [sys.executable, "-c", text], stack.namesrv)
        elif re.search(r"^(async )?def test_", text, re.M):
            run_tests(snippet, text, stack.namesrv)
        else:
            exec(compile("\n" * snippet.line + text, str(ROOT / page), "exec"), names)


def test_snippets_that_are_not_run_say_why(record_property: pytest.RecordProperty) -> None:
    every = [one for page in pages() for one in snippets(ROOT, page)]
    left_out = {one.place: one.not_run for one in every if one.not_run}
    record_property("not run", left_out)
    assert all(len(reason) > 10 for reason in left_out.values()), left_out
    assert len(left_out) < len(every) / 4, left_out


@pytest.mark.parametrize("page", pages(), ids=str)
def test_shell_blocks_are_consoles(page: Path) -> None:
    """A `console` block distinguishes commands from output; `sh` is only for commands that are not run."""
    for one in snippets(ROOT, page):
        if one.word == "sh":
            assert one.not_run, f"{one.place}: make it a console block"
        elif one.word == "console":
            assert steps(one.text), f"{one.place}: no line begins with '$ '"


def alarm() -> Callable[[], object]:
    """Ends a program that does not end on its own; returns a function that cancels this."""

    def ring(*_: object) -> None:
        raise TimeoutError(f"still running after {SECONDS} s; mark what stays with <!-- until: text -->")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(SECONDS)

    def call_off() -> None:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)

    return call_off


def environment(namesrv: str) -> dict[str, str]:
    programs = os.path.dirname(sys.executable)
    return {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "HOME": os.getcwd(),
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
        "NAMESRV_ADDR": namesrv,
    }


def run_console(snippet: Snippet, text: str, namesrv: str) -> None:
    for step in steps(text):
        if snippet.until:
            run_until(snippet, ["bash", "-c", f"exec {step.command}"], namesrv)
            continue
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", step.command],
            env=environment(namesrv),
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        assert done.returncode == 0, f"{snippet.place}: {step.command}\n{done.stdout}{done.stderr}"
        if step.output:
            assert matches(step.output, done.stdout + done.stderr), (
                f"{snippet.place}: {step.command}\nprints\n{done.stdout}{done.stderr}\nand not\n{step.output}"
            )


def run_until(snippet: Snippet, command: list[str], namesrv: str) -> None:
    with subprocess.Popen(
        command, env=environment(namesrv), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        said = []
        try:
            for line in process.stdout:
                said.append(line)
                if snippet.until in line:
                    return
        finally:
            process.terminate()
    pytest.fail(f"{snippet.place} ended without {snippet.until!r}:\n{''.join(said)}")


def run_tests(snippet: Snippet, text: str, namesrv: str) -> None:
    path = Path(f"test_line_{snippet.line}.py")
    path.write_text(text, "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(path)],
        env=environment(namesrv),
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, f"{snippet.place}:\n{done.stdout}{done.stderr}"
