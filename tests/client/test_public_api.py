from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys

import pytest

import rocketlet.client as client


@pytest.mark.process
def test_importing_the_client_imports_nothing_heavy() -> None:
    heavy = ("trio", "msgspec", "asyncio", "numpy")
    program = f"import sys, rocketlet.client; print([name for name in {heavy} if name in sys.modules])"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


@pytest.mark.parametrize("name", client.__all__)
def test_every_public_name_exists_and_is_documented(name: str) -> None:
    found = getattr(client, name)
    assert found.__doc__


def test_all_names_can_be_imported_at_once() -> None:
    names: dict[str, object] = {}
    exec("from rocketlet import *", names)
    assert set(names) - {"__builtins__"} == {"open_store", *client.__all__}


def test_every_error_of_the_client_can_be_imported_from_it() -> None:
    for name in (module.name for module in pkgutil.walk_packages(client.__path__, "rocketlet.client.")):
        importlib.import_module(name)
    kinds = [client.ClientError]
    for kind in kinds:
        kinds += [one for one in kind.__subclasses__() if one.__module__.startswith("rocketlet.client.")]
    assert {kind.__name__ for kind in kinds} <= set(client.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Produzent"):
        client.Produzent  # noqa: B018


def test_every_method_of_the_facades_is_documented() -> None:
    for name in client.__all__:
        if name.endswith(("Producer", "Consumer")):
            facade = getattr(client, name)
            for attribute, value in vars(facade).items():
                if not attribute.startswith("_") and callable(value):
                    assert value.__doc__, f"{name}.{attribute}"
