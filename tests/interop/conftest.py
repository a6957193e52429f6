"""RocketMQ's own programs, built once per machine; without them the tests here are skipped, naming what is missing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.java_admin import JavaAdmin
from tests.support.java_programs import JavaPrograms, Missing


@pytest.fixture(scope="session")
def java() -> JavaPrograms:
    """Scenarios of the official client, and Java brokers."""
    try:
        return JavaPrograms.prepare()
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def java_admin(java: JavaPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaAdmin]:
    """RocketMQ's mqadmin, one process for all commands of a module."""
    with JavaAdmin(java, tmp_path_factory.mktemp("mqadmin")) as admin:
        yield admin
