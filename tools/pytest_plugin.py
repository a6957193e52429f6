"""RocketMQ for tests: fixtures that come with the package, no conftest needed.

    def test_orders(rocketmq):
        with Producer("orders", namesrv=rocketmq.namesrv) as producer:
            producer.send(Message("orders", b"7"))
        rocketmq.on(RequestCode.SEND_MESSAGE_V2, reply=ResponseCode.SYSTEM_BUSY, times=3)

- `rocketmq`: a name server and a broker for one test, in memory, on free ports.
- `rocketmq_session`: one for the whole run, for suites that separate tests by topic; faults end with each test.
- `rocketmq_cluster`: call it, `rocketmq_cluster(brokers=2, namesrvs=2)`, for as many as are needed, also with slaves
  (`replicas=2`); its brokers can be killed, paused and partitioned.
- `rocketmq_virtual`: the same in virtual time, for tests under trio:
  `async with rocketmq_virtual(replicas=2) as cluster`.

Clients of RocketMQ 5 connect to `rocketmq.endpoints` (with the extra grpc).

After a test that had `rocketmq` or `rocketmq_cluster`, clients that are still connected are an error that names them
(`rocketmq_leaks = warn` or `off` in the ini file makes it less). Settings of the broker go by a marker:
`@pytest.mark.rocketmq(messageDelayLevel="1s 2s", autoCreateTopicEnable=False)`; with `fast_retries=True` each retry
comes after a second.

Nothing of the stack is imported before a test uses it.

Java: (none)
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rocketlet.tools.thread_stack import ThreadStack
    from rocketlet.tools.virtual_cluster import VirtualCluster

FAST_RETRIES = " ".join(["1s"] * 18)  # all delay levels, through which retries otherwise go from 10 s to 2 h
LEAK_GRACE_SECONDS = 2.0  # a client that was closed at the very end may still be unregistering
_LOOK_EVERY = 0.01


class ClientsLeftOpen(AssertionError):
    """A test ended while clients that it had created were still connected."""


class ClientsLeftOpenWarning(UserWarning):
    """The same, with `rocketmq_leaks = warn`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("rocketmq_leaks", "clients left open after a test: error (default), warn or off", default="error")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "rocketmq(**settings): settings of the broker behind the rocketmq fixture, by RocketMQ's keys"
    )


@pytest.fixture
def rocketmq(request: pytest.FixtureRequest) -> Iterator[ThreadStack]:
    """A fresh name server and broker in memory, on free ports; `.namesrv` is the address, `.on(...)` scripts faults,
    `.kill("broker-a")`, `.restart`, `.pause` and `.resume` break and repair the broker."""
    with _stack(breakable=True, settings=_marker_settings(request)) as stack:
        yield stack
        _check_leaks(stack, request.config.getini("rocketmq_leaks"))


@pytest.fixture(scope="session")
def _rocketmq_of_the_session() -> Iterator[ThreadStack]:
    with _stack() as stack:
        yield stack


@pytest.fixture
def rocketmq_session(_rocketmq_of_the_session: ThreadStack) -> Iterator[ThreadStack]:
    """A name server and broker that all tests of the run share."""
    yield _rocketmq_of_the_session
    _rocketmq_of_the_session.clear_faults()


@pytest.fixture
def rocketmq_cluster(request: pytest.FixtureRequest) -> Iterator[Callable[..., ThreadStack]]:
    """Call it for a stack of several: `rocketmq_cluster(brokers=2, replicas=2, flushDiskType="SYNC_FLUSH")`.

    Its brokers can be broken: `kill`, `restart`, `pause`, `resume`, `partition`, `heal`, `promote`.
    """
    started: list[ThreadStack] = []

    def start(*, brokers: int | None = None, namesrvs: int = 1, replicas: int = 1, **settings: Any) -> ThreadStack:
        count = brokers or (2 if replicas == 1 else 1)
        all_settings = _marker_settings(request) | _texts(settings)
        stack = _stack(brokers=count, namesrvs=namesrvs, replicas=replicas, breakable=True, settings=all_settings)
        stack.start()
        started.append(stack)
        return stack

    try:
        yield start
        for stack in started:
            _check_leaks(stack, request.config.getini("rocketmq_leaks"))
    finally:
        for stack in started:
            stack.stop()


@pytest.fixture
def rocketmq_virtual(request: pytest.FixtureRequest) -> Callable[..., AbstractAsyncContextManager[VirtualCluster]]:
    """Call it for a stack in memory and in virtual time: `async with rocketmq_virtual(replicas=2) as cluster:`.

    The test asks for pytest-trio's `autojump_clock`, and makes its clients with `world=cluster.world()`.
    """

    def virtual(
        *, brokers: int = 1, namesrvs: int = 1, replicas: int = 1, **settings: Any
    ) -> AbstractAsyncContextManager[VirtualCluster]:
        from rocketlet.tools.virtual_cluster import virtual_cluster

        all_settings = _marker_settings(request) | _texts(settings)
        return virtual_cluster(brokers=brokers, namesrvs=namesrvs, replicas=replicas, settings=all_settings)

    return virtual


def _stack(**options: Any) -> ThreadStack:
    from rocketlet.tools.local_settings import LocalSettings
    from rocketlet.tools.thread_stack import ThreadStack

    return ThreadStack(LocalSettings(namesrv_port=0, broker_port=0, **options))


def _marker_settings(request: pytest.FixtureRequest) -> dict[str, str]:
    marker = request.node.get_closest_marker("rocketmq")
    if marker is None:
        return {}
    settings = dict(marker.kwargs)
    if settings.pop("fast_retries", False):
        settings.setdefault("messageDelayLevel", FAST_RETRIES)
    return _texts(settings)


def _texts(settings: dict[str, Any]) -> dict[str, str]:
    """Values as written in a properties file."""
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in settings.items()}


def _check_leaks(stack: ThreadStack, mode: str) -> None:
    if mode == "off":
        return
    deadline = time.monotonic() + LEAK_GRACE_SECONDS
    while (open_connections := stack.open_connections()) and time.monotonic() < deadline:
        time.sleep(_LOOK_EVERY)
    if open_connections:
        from rocketlet.client.facades.facade import open_clients

        culprits = [description for namesrv, description in open_clients() if stack.namesrv in namesrv]
        text = (
            f"{len(open_connections)} connection(s) of clients are still open after the test:"
            f" {', '.join(culprits or open_connections)};"
            " close each client (a with block does), or set rocketmq_leaks = warn in the ini file"
        )
        if mode == "warn":
            warnings.warn(text, ClientsLeftOpenWarning, stacklevel=2)
        else:
            raise ClientsLeftOpen(text)
