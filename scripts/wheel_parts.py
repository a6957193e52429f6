"""A hatchling hook: the folders of the repository become parts of the package `rocketlet` in the wheel.

`client` is also at the top level, so that `from client import Producer` works. That is only client/__init__.py, which
knows the name it is imported by. An editable installation finds all parts in the repository and copies none.
"""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PartsHook(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before each build; `version` says of which kind."""
        if version == "standard":
            for part in self.config["parts"]:
                build_data["force_include"][part] = f"rocketlet/{part}"
            for name in ("client/__init__.py", "client/py.typed"):
                build_data["force_include"][name] = name
