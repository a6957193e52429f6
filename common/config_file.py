"""Where a process gets its settings: flags, environment, a RocketMQ properties file, defaults; in this precedence.

One call reads several settings dataclasses (see common/settings.py) from one file, as a broker needs: its own, the
store's, the server's. Each value keeps its origin, which `-p` prints. All problems are reported together, not one by
one:

- a key that neither we nor RocketMQ know is an error with the nearest match, since silently skipping a misspelt key
  would leave a default that nobody chose;
- a key of RocketMQ's that this process does not serve is a warning that names it, so that a broker.conf from the field
  starts;
- an unknown variable ROCKETLET_… is a warning only: one environment serves several programs.

A path setting may begin with ``~/`` for the home directory.

Java: namesrv/NamesrvStartup.java, broker/BrokerStartup.java
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rocketlet.common import java_properties, rocketmq_keys
from rocketlet.common.settings import (
    ENVIRONMENT_PREFIX,
    Setting,
    SettingsError,
    nearest,
    settings_of,
    shown,
    snake_case,
    with_updates_of_all,
)

Config = TypeVar("Config")

DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A read configuration file: its name as given, and its entries."""

    name: str
    entries: Sequence[java_properties.Entry]


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings of one process: `loaded[NamesrvConfig]` is one of its dataclasses, `origins` goes by key.

    `file_name` is the configuration file that was read, which is where changes at run time are kept; "" without one.
    """

    configs: tuple[Any, ...]
    origins: Mapping[str, str]
    warnings: tuple[str, ...] = ()
    file_name: str = ""

    def __getitem__(self, config_type: type[Config]) -> Config:
        for config in self.configs:
            if isinstance(config, config_type):
                return config
        raise KeyError(config_type)

    def with_updates(self, updates: Mapping[str, str]) -> Loaded:
        """After requests 25 and 318. Raises SettingsError, and then nothing has changed."""
        configs = tuple(with_updates_of_all(self.configs, updates))
        before, after = dict(_values(self.configs)), dict(_values(configs))
        changed = {key: "changed at run time" for key in after if after[key] != before[key]}
        return Loaded(configs, {**self.origins, **changed}, self.warnings, self.file_name)

    def listing(self, *, important_only: bool = False) -> str:
        """What `-p` and `-m` print: a configuration file that may be kept, each line below its origin and meaning."""
        lines: list[str] = []
        for config in self.configs:
            listed = [setting for setting in settings_of(type(config)) if setting.important or not important_only]
            if listed:
                lines += ["", f"# {title_of(type(config))}"]
            for setting in listed:
                value = shown(setting, getattr(config, setting.field))
                lines.append(f"# [{self.origins[setting.key]}] {_meaning(setting)}")
                lines.append(java_properties.format_entry(setting.key, value))
        return "\n".join(lines[1:]) + "\n"


def read_file(path: str | Path) -> ConfigFile:
    """Raises SettingsError that names the file, when it cannot be read or breaks the rules of properties files."""
    try:
        return ConfigFile(str(path), java_properties.parse(java_properties.decode(Path(path).read_bytes())))
    except OSError as error:
        raise SettingsError(f"configuration file {path}: {error.strerror}; check the path given with -c") from error
    except java_properties.PropertiesError as error:
        raise SettingsError(f"configuration file {path}: {error}") from error


def load(
    *config_types: type,
    file: ConfigFile | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
) -> Loaded:
    """All settings of a process, checked. `flags` goes by key; `environment` is os.environ or a test's.

    Raises SettingsError with a line for everything that is wrong.
    """
    environment = environment or {}
    gathered = _Gathered(config_types)
    if file is not None:
        gathered.add_file(file)
    gathered.add_environment(environment)
    gathered.add_flags(flags or {})
    loaded = gathered.finish(environment.get("HOME") or str(Path.home()))
    return loaded if file is None else dataclasses.replace(loaded, file_name=file.name)


class _Gathered:
    """Values and origins while sources are added from the weakest to the strongest, and their problems."""

    def __init__(self, config_types: Iterable[type]) -> None:
        self._types = tuple(config_types)
        self._settings = [setting for config_type in self._types for setting in settings_of(config_type)]
        # Two dataclasses may share a key (writeBufferHighWaterMark is one of server and client): both get the value.
        self._by_key: dict[str, list[Setting]] = {}
        for setting in self._settings:
            for key in (setting.key, *setting.old_keys):
                self._by_key.setdefault(key, []).append(setting)
        self._texts: dict[str, tuple[str, str]] = {}  # by key: text and origin
        self._problems: list[str] = []
        self._warnings: list[str] = []

    def flag(self, key: str) -> str:
        return next(flag for flag in self._by_key[key][0].flags if flag.startswith("--"))

    def add(self, key: str, text: str, origin: str) -> None:
        self._texts[self._by_key[key][0].key] = (text, origin)

    def add_flags(self, flags: Mapping[str, str]) -> None:
        for key, text in flags.items():
            if key in self._by_key:
                self.add(key, text, f"flag {self.flag(key)}")
            else:
                self._not_served(key, "flags")

    def add_file(self, file: ConfigFile) -> None:
        # Of two lines with one key the last counts, as in Java; with an old and the new spelling too.
        for entry in file.entries:
            place = f"{file.name} line {entry.line}"
            if entry.key in self._by_key:
                self.add(entry.key, entry.value, place)
            else:
                self._not_served(entry.key, place)

    def _not_served(self, key: str, place: str) -> None:
        if key in rocketmq_keys.ALL:
            note = rocketmq_keys.NOTES.get(key, "RocketMQ knows it, this process does not use it")
            self._warnings.append(f"{place}: setting {key} is not served: {note}")
        else:
            self._problems.append(f"{place}: {self._unknown('setting', key, self._by_key)}")

    def add_environment(self, environment: Mapping[str, str]) -> None:
        # A setting's plain variable (NAMESRV_ADDR) is weaker than its prefixed one, which was meant for us alone.
        for setting in self._settings:
            for variable in reversed(setting.variables):
                if variable in environment:
                    self.add(setting.key, environment[variable], f"environment {variable}")
        known_variables = {variable for setting in self._settings for variable in setting.variables}
        for variable in sorted(environment):
            if (
                variable.startswith(ENVIRONMENT_PREFIX)
                and variable not in known_variables
                and not _is_rocketmqs(variable)
            ):
                self._warnings.append(f"environment: {self._unknown('variable', variable, known_variables)}")

    def _unknown(self, kind: str, name: str, served: Iterable[str]) -> str:
        suggestion = nearest(name, served) or (nearest(name, rocketmq_keys.ALL) if kind == "setting" else None)
        advice = f"did you mean {suggestion}?" if suggestion else "-p prints all that there are"
        return f"unknown {kind} {name}; {advice}"

    def finish(self, home: str) -> Loaded:
        values = {setting.key: self._value(setting, home) for setting in self._settings}
        configs: list[Any] = []
        for config_type in self._types:
            try:
                fields = {setting.field: values[setting.key] for setting in settings_of(config_type)}
                configs.append(config_type(**fields))
            except SettingsError as error:  # a check between fields, in __post_init__
                self._problems.extend(error.problems)
        if self._problems:
            raise SettingsError(*dict.fromkeys(self._problems))
        keys = [setting.key for setting in self._settings]
        origins = {key: self._texts[key][1] if key in self._texts else DEFAULT for key in keys}
        return Loaded(tuple(configs), origins, tuple(self._warnings))

    def _value(self, setting: Setting, home: str) -> Any:
        value = setting.default
        if setting.key in self._texts:
            text, origin = self._texts[setting.key]
            try:
                value = setting.parse(text)
            except SettingsError as error:
                self._problems.extend(f"{origin}: {problem}" for problem in error.problems)
        if setting.path and value[:2] == "~/":
            return home + value[1:]
        return value


def _is_rocketmqs(variable: str) -> bool:
    """ROCKETLET_BROKER_NAME and the like: known to one of our programs, if perhaps not to this one."""
    name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
    return any(name == snake_case(key) for key in rocketmq_keys.ALL)


def _values(configs: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    for config in configs:
        for setting in settings_of(type(config)):
            yield setting.key, getattr(config, setting.field)


def _meaning(setting: Setting) -> str:
    notes = [setting.doc]
    if setting.unit:
        notes.append(f"Unit: {setting.unit}.")
    if setting.choices:
        notes.append(f"One of {', '.join(setting.choices)}.")
    if setting.default_note:
        notes.append(f"Empty: {setting.default_note}.")
    return " ".join(notes)


def title_of(config_type: type) -> str:
    """The first line of a settings dataclass's docstring."""
    return (config_type.__doc__ or config_type.__name__).strip().splitlines()[0]
