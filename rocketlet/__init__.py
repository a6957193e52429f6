"""Rocketlet: RocketMQ's whole stack in Python, under one name.

    from rocketlet import Message, Producer

    with Producer("group", namesrv="127.0.0.1:9876") as producer:
        print(producer.send(Message("T", b"hi")))

What applications use, the names of `rocketlet.client`, can be imported from here, and `open_store`, which reads the
files of a broker. Importing this imports nothing else.
The parts (`rocketlet.broker`, `rocketlet.store` and so on) are folders inside this package where it is installed. In a
checkout they lie beside it, at the top of the repository.

Java: org.apache.rocketmq
"""

from __future__ import annotations

import os.path
from typing import TYPE_CHECKING

_here = os.path.dirname(__file__)
if not os.path.isdir(os.path.join(_here, "common")):
    __path__.append(os.path.dirname(_here))

# Type checkers see the names themselves: with `__getattr__`, misspelt ones would have a type too.
if TYPE_CHECKING:
    from rocketlet.client import *  # noqa: F403
    from rocketlet.store.view import open_store as open_store
else:

    def __getattr__(name: str) -> object:
        from importlib import import_module  # not `from rocketlet import client`, which would ask this function again

        if name == "__all__":  # of `from rocketlet import *`
            return ["open_store", *import_module("rocketlet.client").__all__]
        if name.startswith("__"):
            raise AttributeError(f"module 'rocketlet' has no attribute {name!r}")
        home = import_module("rocketlet.store.view" if name == "open_store" else "rocketlet.client")
        if name != "open_store" and name not in home.__all__:
            raise AttributeError(f"module 'rocketlet' has no attribute {name!r}")
        found: object = getattr(home, name)
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        from importlib import import_module

        return [*globals(), "open_store", *import_module("rocketlet.client").__all__]
