"""The base of all public classes: one body for threads, trio and asyncio.

Each public method is written once, as an `async def` against a `Bridge`. A class that also inherits from `OnEventLoop`
has it as it is. One that inherits from `InThreads` gets a plain method instead, which runs the coroutine to its end
in the calling thread. Type checkers see both: `shared` is a descriptor whose type depends on the class.

    class Asking(Facade[Engine, Config]):
        @shared
        async def max_offset(self, queue: MessageQueue) -> int: ...

    class Producer(Asking, InThreads): ...             # producer.max_offset(queue)
    class AsyncProducer(Asking, OnEventLoop): ...      # await producer.max_offset(queue)

A method that the engine already has in the right form needs no body: `seek = engine_method(LitePullEngine.seek)`.

Java: none
"""

from __future__ import annotations

import atexit
import functools
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, overload

import sniffio
import trio

from rocketlet.client.config import ClientConfig, configured, name_servers
from rocketlet.client.consuming.selector import Selection, check_topics
from rocketlet.client.coroutines import completed
from rocketlet.client.errors import ClientClosed, InvalidUse
from rocketlet.client.facades.bridges import Bridge
from rocketlet.client.facades.thread_bridge import ThreadBridge, blocking
from rocketlet.client.talking.session import Session, World

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Engine(Protocol):
    """A client's part on the engine's loop."""

    session: Session

    async def run(self, stop: trio.Event, *, task_status: trio.TaskStatus[None] = ...) -> None:
        """Work until `stop` is set, then shut down in order."""


EngineT = TypeVar("EngineT", bound=Engine)
ConfigT = TypeVar("ConfigT", bound=ClientConfig)


class shared(Generic[Parameters, Result]):
    """A public method, written once. See the module's docstring."""

    def __init__(self, function: Callable[Concatenate[Any, Parameters], Coroutine[Any, Any, Result]]) -> None:
        self.function = function

    # For type checkers: every class has real functions in these places, see `__init_subclass__` below.
    @overload
    def __get__(self, instance: InThreads, owner: object) -> Callable[Parameters, Result]: ...
    @overload
    def __get__(self, instance: OnEventLoop, owner: object) -> Callable[Parameters, Coroutine[Any, Any, Result]]: ...
    @overload
    def __get__(self, instance: None, owner: object) -> Callable[Concatenate[Any, Parameters], Any]: ...
    def __get__(self, instance: object, owner: object) -> Any:
        return functools.partial(self.function, instance)


def engine_method(
    function: Callable[Concatenate[Any, Parameters], Coroutine[Any, Any, Result]], part: str = ""
) -> shared[Parameters, Result]:
    """A public method that delegates to one of the engine or of its parts, with its name and documentation."""

    async def method(self: Facade[Any, Any], /, *args: Parameters.args, **named: Parameters.kwargs) -> Result:
        bridge, engine = self._running()
        owner = getattr(engine, part) if part else engine
        return await bridge.call(functools.partial(function, owner, *args, **named))

    functools.update_wrapper(method, function)
    return shared(method)


def _methods(cls: type) -> Mapping[str, shared[..., Any]]:
    attributes = {name: inspect.getattr_static(cls, name) for name in dir(cls)}
    return {name: method for name, method in attributes.items() if isinstance(method, shared)}


class Facade(Generic[EngineT, ConfigT]):
    """A client as its user sees it: its configuration, and the engine while it runs."""

    _role = "consumer"
    _config_type: type[ConfigT]
    _hosting: str
    _may_be_called_back = False
    """Whether it calls the user before its start is over; what the user then calls is served."""

    def __init__(
        self,
        group: str,
        config: ConfigT | None = None,
        *,
        namesrv: str | None = None,
        world: World | None = None,
        **settings: Any,
    ) -> None:
        """`settings` are single fields of the config by name. `world` is for tests."""
        self.config = configured(self._config_type, config, namesrv, settings, os.environ)
        self.group = group
        self._made_at = _caller_line()
        self._world = world
        self._now: tuple[Bridge, EngineT] | None = None

    def _make_engine(self, bridge: Bridge, world: World) -> EngineT:
        raise NotImplementedError

    async def _open(self, bridge: Bridge) -> None:
        try:
            engine = self._make_engine(bridge, self._world or World())
            if self._may_be_called_back:
                self._now = bridge, engine
            await bridge.start(engine.run)
        except BaseException:
            self._now = None
            await bridge.release()
            raise
        if self._may_be_called_back and self._now is None:
            return  # its listener has closed it
        self._now = bridge, engine
        namesrvs = ";".join(name_servers(self.config.namesrv))
        _open_clients[bridge] = namesrvs, f"{self._role} {self.group!r} made at {self._made_at}"
        await self._opened(bridge, engine)

    async def _opened(self, bridge: Bridge, engine: EngineT) -> None:
        """The engine has just started."""

    def _block_ended(self) -> None:
        """The user's block ended without an error."""

    async def _close(self, error: BaseException | None) -> None:
        (bridge, _), self._now = self._running(), None
        _open_clients.pop(bridge, None)
        try:
            await bridge.stop(error)
        finally:
            await bridge.release()

    def _running(self) -> tuple[Bridge, EngineT]:
        if self._now is None:
            raise ClientClosed(f"the {self._role} is not running", advice=self._hosting)
        return self._now

    @property
    def client_id(self) -> str:
        """The id under which brokers know this member of the group."""
        return self._running()[1].session.client_id


# Not the clients themselves: a forgotten one may be collected while its engine runs on.
_open_clients: dict[Bridge, tuple[str, str]] = {}
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # the folder client/


def open_clients() -> list[tuple[str, str]]:
    """(name servers, a description: role, group and the line that made it) of each client of this process that was not
    closed."""
    return sorted(_open_clients.values())


@atexit.register
def _warn_of_open_clients() -> None:
    # Python shows it with -X dev or -W default. The exit of the engine's thread closes them in order all the same.
    for _, description in open_clients():
        warnings.warn(f"the {description} was not closed; use it in a with block, or close it", ResourceWarning, 1)


if hasattr(os, "register_at_fork"):  # not on Windows, which has no forks
    os.register_at_fork(after_in_child=_open_clients.clear)  # they are the parent's


def _caller_line() -> str:
    """`path:line` of the call that led into this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


class Subscribed(Facade[EngineT, ConfigT]):
    """A consumer that may be given its topics when it is made."""

    def __init__(
        self,
        group: str,
        topics: Mapping[str, Selection] | None = None,
        *,
        config: ConfigT | None = None,
        namesrv: str | None = None,
        world: World | None = None,
        **settings: Any,
    ) -> None:
        """`settings` are single fields of the config by name. `world` is for tests."""
        super().__init__(group, config, namesrv=namesrv, world=world, **settings)
        self._topics = check_topics(topics)


class InThreads(Facade[Any, Any]):
    """A client for plain threads: any number of them may share it."""

    _hosting = "start() it, or use it in a with block"

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, method in _methods(cls).items():
            setattr(cls, name, blocking(method.function))

    def start(self) -> None:
        """Begin; `with` does it."""
        if self._now is None:
            completed(self._open(ThreadBridge(f"{self._role} {self.group}")))

    def shutdown(self) -> None:
        """Finish what is in flight, unregister from the brokers, stop. Raises EngineFailed if it had died."""
        if self._now is not None:
            completed(self._close(None))

    def close(self) -> None:
        """The same as `shutdown`, for `contextlib.closing`."""
        self.shutdown()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._now is not None:
            self._block_ended()
        self.shutdown()


class OnEventLoop(Facade[Any, Any]):
    """A client for trio or asyncio, as an `async with` block: any number of tasks may share it."""

    _hosting = "use it in an async with block"

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, method in _methods(cls).items():
            setattr(cls, name, method.function)

    _is_opening = False

    async def __aenter__(self) -> Self:
        if self._now is not None or self._is_opening:
            raise InvalidUse(
                f"the {self._role} {self.group} is running already", advice="enter its block once; tasks may share it"
            )
        self._is_opening = True
        try:
            await self._open(_bridge_of_this_loop(f"{self._role} {self.group}"))
        finally:
            self._is_opening = False
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._block_ended()
        await self._close(error)


def _bridge_of_this_loop(name: str) -> Bridge:
    if sniffio.current_async_library() == "trio":
        return Bridge(name)
    from rocketlet.client.facades.asyncio_bridge import AsyncioBridge

    return AsyncioBridge(name)
