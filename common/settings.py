"""Settings: how a package declares them, and how text becomes a checked value and text again.

A package declares its settings as one frozen dataclass, every default visible, every field made by `setting`:

    @dataclass(frozen=True, slots=True, kw_only=True)
    class NamesrvConfig:
        "Settings of the name server."

        listen_port: int = setting(9876, "Port to listen on; 0 takes a free one.", minimum=0, maximum=65535)
        namesrv_addr: tuple[str, ...] = setting((), "Name servers, host:port.", env="NAMESRV_ADDR", flag="-n")
        flush_disk_type: FlushDiskType = setting(FlushDiskType.ASYNC_FLUSH, "When a send is answered.", updatable=True)

Every value has bounds, since requests 25 and 318 bring it from outside: a number without `maximum` is a Java int, which
no arithmetic with times overflows, and text without `longest` has at most LONGEST_TEXT characters.

The key is RocketMQ's: by default the field's name in camelCase (`listen_port` → `listenPort`), else given as `key`.
From the key come its flag (`--listen-port`, and `--listenPort`) and its environment variable
(`ROCKETLET_LISTEN_PORT`). Types: bool, int, float, str, a StrEnum, tuple[str, ...] (joined by `separator`).

What may change while the process runs (requests 25 and 318) is what says `updatable=True`, and nothing else. A setting
that names a file or directory (`path=True`) never may: two of RocketMQ's CVEs were a path changed from outside
(CVE-2023-33246, CVE-2023-37582). A `secret` is never shown (CVE-2024-23321).

Checks between fields go into `__post_init__`, which raises SettingsError.

Java: common/BrokerConfig.java and its kin, common/MixAll.java (properties2Object)
"""

from __future__ import annotations

import dataclasses
import math
import re
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from rocketlet.common.errors import RocketletError

Config = TypeVar("Config")
Value = TypeVar("Value")

INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1
LONGEST_TEXT = 4096  # characters
REDACTED = "******"
ENVIRONMENT_PREFIX = "ROCKETLET_"
_METADATA = "rocketlet"
_control_character = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]").search
# Problems reported for one update; a suggestion takes 4 ms to find, and an update may have a thousand wrong keys.
_PROBLEMS_SHOWN = 10
_LONGEST_KEY = 100
_described_types: dict[type, tuple[Setting, ...]] = {}  # looking up type hints costs 100 µs, and an update asks often


class SettingsError(RocketletError):
    """One or several settings are wrong; one line each. Nothing was changed."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Everything about one setting. `kind` is its Python type, `field` the name of the dataclass field."""

    field: str
    key: str
    old_keys: tuple[str, ...]
    kind: Any
    default: Any
    doc: str
    updatable: bool
    important: bool
    path: bool
    secret: bool
    unit: str
    minimum: float | None
    maximum: float | None
    longest: int
    choices: tuple[str, ...]
    separator: str
    default_note: str
    variables: tuple[str, ...]
    flags: tuple[str, ...]

    def parse(self, text: str) -> Any:
        """Requires: text from a file, the environment, a flag or a request. Raises SettingsError that names the key."""
        text = text.strip()
        if len(text) > self.longest:
            raise SettingsError(
                f"{self.key}={text[:20]}...: has {len(text)} characters, at most {self.longest} are allowed"
            )
        if _control_character(text):
            raise SettingsError(f"{self.key}={text!r}: must not contain control characters")
        try:
            value = _PARSERS[_family(self.kind)](self, text)
        except ValueError:
            raise SettingsError(f"{self.key}={text}: must be {self.expects()}") from None
        self.check(value)
        return value

    def check(self, value: Any) -> None:
        """Raises SettingsError where a value of the right type lies outside what the setting allows."""
        too_small = self.minimum is not None and value < self.minimum
        too_large = self.maximum is not None and value > self.maximum
        if too_small or too_large or (self.choices and str(value) not in self.choices):
            raise SettingsError(f"{self.key}={self.format(value)}: must be {self.expects()}")

    def format(self, value: Any) -> str:
        """The text that `parse` makes this value of."""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return self.separator.join(value)
        return str(value)

    def expects(self) -> str:
        """What a value must be, in words that complete "must be"."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        words = _EXPECTED[_family(self.kind)]
        if self.unit:
            words += f" ({self.unit})"
        return words if self.minimum is None else f"{words} from {self.minimum} to {self.maximum}"


def setting(
    default: Value,
    doc: str,
    *,
    key: str = "",
    old_keys: Iterable[str] = (),
    updatable: bool = False,
    important: bool = False,
    path: bool = False,
    secret: bool = False,
    unit: str = "",
    minimum: float | None = None,
    maximum: float | None = None,
    longest: int = LONGEST_TEXT,
    choices: Iterable[str] = (),
    separator: str = ";",
    default_note: str = "",
    env: str = "",
    flag: str = "",
) -> Value:
    """One field of a settings dataclass; `doc` is a sentence for the person who has to choose a value.

    old_keys: other spellings that files in the field use. important: shown by `-m`. default_note: what an empty default
    becomes at start ("host name"). env, flag: one more variable and flag (`-n`) beside those made of the key.
    """
    if updatable and path:
        raise TypeError(f"{doc!r}: a path is never updatable")
    if type(default) in (int, float):
        minimum = -INT_MAX - 1 if minimum is None else minimum
        maximum = INT_MAX if maximum is None else maximum
        if not minimum <= default <= maximum:  # type: ignore[operator]
            raise TypeError(f"{doc!r}: the default {default} is not between {minimum} and {maximum}")
    metadata = {name: value for name, value in locals().items() if name != "default"}
    return dataclasses.field(default=default, repr=not secret, metadata={_METADATA: metadata})


def settings_of(config_type: type) -> tuple[Setting, ...]:
    """The settings of a dataclass in the order of its fields. Each of its fields must be made by `setting`."""
    if config_type not in _described_types:
        kinds = typing.get_type_hints(config_type)
        described = [_described(field, kinds[field.name]) for field in dataclasses.fields(config_type)]
        _described_types[config_type] = tuple(described)
    return _described_types[config_type]


def _described(field: dataclasses.Field[Any], kind: Any) -> Setting:
    metadata = dict(field.metadata[_METADATA])
    env, flag = metadata.pop("env"), metadata.pop("flag")
    key = metadata.pop("key") or camel_case(field.name)
    choices = tuple(metadata.pop("choices")) or (tuple(kind) if _family(kind) is StrEnum else ())
    snake = snake_case(key)
    return Setting(
        field=field.name,
        key=key,
        kind=kind,
        default=field.default,
        choices=choices,
        old_keys=tuple(metadata.pop("old_keys")),
        variables=(ENVIRONMENT_PREFIX + snake.upper(), *([env] if env else [])),
        flags=tuple(dict.fromkeys([*([flag] if flag else []), f"--{snake.replace('_', '-')}", f"--{key}"])),
        **metadata,
    )


def camel_case(name: str) -> str:
    """listen_port → listenPort"""
    first, *rest = name.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)


def snake_case(key: str) -> str:
    """listenPort → listen_port, brokerIP1 → broker_ip1, checkCRCOnRecover → check_crc_on_recover"""
    words = re.sub("(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", key)
    return words.replace(".", "_").lower()


def to_properties(*configs: Any) -> dict[str, str]:
    """Key and value of every setting, in order, secrets redacted: the answer to requests 26 and 319."""
    return {
        setting.key: shown(setting, getattr(config, setting.field))
        for config in configs
        for setting in settings_of(type(config))
    }


def shown(setting: Setting, value: Any) -> str:
    """A value as anyone may see it."""
    return REDACTED if setting.secret and value else setting.format(value)


def with_updates(config: Config, updates: Mapping[str, str]) -> Config:
    """The same settings with these values, as requests 25 and 318 ask for. All are taken or none: raises SettingsError.

    A value equal to the present one changes nothing and is accepted for every key, since tools send back the whole
    list that they were shown.
    """
    return typing.cast(Config, with_updates_of_all([config], updates)[0])


def with_updates_of_all(configs: Sequence[Any], updates: Mapping[str, str]) -> list[Any]:
    """`with_updates` for a process with several settings dataclasses. A key that two of them have changes both."""
    problems: list[str] = []
    changes: list[dict[str, Any]] = [{} for _ in configs]
    places = _places(configs)
    for number, (key, text) in enumerate(updates.items(), 1):
        if len(problems) >= _PROBLEMS_SHOWN:
            problems.append(f"and perhaps more: {len(updates) - number + 1} settings were not checked")
            break
        if key not in places:
            problems.append(_unknown(key, places))
        for index, setting in places.get(key, ()):
            try:
                change = _change(setting, getattr(configs[index], setting.field), text)
            except SettingsError as error:
                problems.extend(error.problems)
            else:
                changes[index].update(change)
    if problems:
        raise SettingsError(*dict.fromkeys(problems))
    # replace() runs __post_init__, so that checks between fields hold after an update as they do at start.
    return [dataclasses.replace(config, **change) for config, change in zip(configs, changes, strict=True)]


def _places(configs: Sequence[Any]) -> dict[str, list[tuple[int, Setting]]]:
    places: dict[str, list[tuple[int, Setting]]] = {}
    for index, config in enumerate(configs):
        for setting in settings_of(type(config)):
            for key in (setting.key, *setting.old_keys):
                places.setdefault(key, []).append((index, setting))
    return places


def _change(setting: Setting, present: Any, text: str) -> dict[str, Any]:
    if text.strip() == shown(setting, present):
        return {}
    if not setting.updatable:
        raise SettingsError(
            f"{setting.key}: is read at start only; set it in the configuration file and restart (it is"
            f" {shown(setting, present) or 'empty'} now)"
        )
    return {setting.field: setting.parse(text)}


def _unknown(key: str, known_keys: Iterable[str]) -> str:
    suggestion = nearest(key, known_keys)
    return f"{key[:_LONGEST_KEY]}: no such setting" + (f"; did you mean {suggestion}?" if suggestion else "")


def nearest(key: str, known_keys: Iterable[str]) -> str | None:
    """The known key that was most likely meant."""
    if len(key) > _LONGEST_KEY:
        return None
    import difflib  # 4 ms, and only needed when something is wrong

    # Of two spellings that differ in case and dashes only, the first is suggested.
    candidates = {_plain(candidate): candidate for candidate in reversed(list(known_keys))}
    close = difflib.get_close_matches(_plain(key), candidates, n=1)
    return candidates[close[0]] if close else None


def _plain(key: str) -> str:
    return key.lower().replace("-", "").replace("_", "")


def _family(kind: Any) -> Any:
    """bool, int, float, str, tuple or StrEnum: what stands for the type in the tables below."""
    origin = typing.get_origin(kind)
    if origin is tuple and typing.get_args(kind) == (str, ...):
        return tuple
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return StrEnum
    if kind in (bool, int, float, str):
        return kind
    raise TypeError(f"{kind}: a setting is bool, int, float, str, a StrEnum or tuple[str, ...]")


def _parse_bool(_: Setting, text: str) -> bool:
    # Java takes anything but "true" as false; a typing error must not switch something off.
    return {"true": True, "false": False}[text.lower()] if text.lower() in ("true", "false") else _reject(text)


def _parse_int(_: Setting, text: str) -> int:
    digits = text[1:] if text[:1] in ("-", "+") else text
    return int(text) if digits.isascii() and digits.isdigit() else _reject(text)


def _parse_float(_: Setting, text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _reject(text)


def _parse_names(setting: Setting, text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(setting.separator) if part.strip())


def _parse_choice(setting: Setting, text: str) -> StrEnum:
    members: Iterable[StrEnum] = setting.kind
    return next((member for member in members if member.lower() == text.lower()), None) or _reject(text)


def _reject(text: str) -> typing.NoReturn:
    raise ValueError(text)


_PARSERS: dict[Any, Callable[[Setting, str], Any]] = {
    bool: _parse_bool,
    int: _parse_int,
    float: _parse_float,
    str: lambda _, text: text,
    tuple: _parse_names,
    StrEnum: _parse_choice,
}

_EXPECTED: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    tuple: "a list",
    StrEnum: "a name",
}
