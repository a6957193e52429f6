"""Writes docs/settings.md, the table of every setting: `python -m rocketlet.tools.settings_table`.

A test compares the page with the output, so the page cannot become outdated. It also lists the keys of RocketMQ's that
have no effect here, for users with an existing broker.conf.

Java: (none; its settings are listed by hand in the documentation)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from rocketlet.access.config import AccessConfig
from rocketlet.broker.configs import BROKER_CONFIGS
from rocketlet.common import rocketmq_keys
from rocketlet.common.config_file import title_of
from rocketlet.common.logging_setup import LogConfig
from rocketlet.common.settings import Setting, settings_of
from rocketlet.metrics.config import MetricsConfig
from rocketlet.namesrv.config import NamesrvConfig
from rocketlet.proxy.config import ProxyConfig
from rocketlet.remoting.config import PoolConfig, ServerConfig

PAGE = Path(__file__).parent.parent / "docs" / "settings.md"

PROGRAMS: Mapping[str, Sequence[type]] = {
    "mqnamesrv": (NamesrvConfig, ServerConfig, MetricsConfig, AccessConfig, LogConfig),
    "mqbroker": (*BROKER_CONFIGS, LogConfig),
    "mqproxy": (ProxyConfig, ServerConfig, PoolConfig, MetricsConfig, AccessConfig, LogConfig),
}

_HEAD = """\
# Settings

<!-- Written by `python -m rocketlet.tools.settings_table`; change the dataclasses instead. -->

Each setting can be given in four ways; the first that is there counts:

1. a flag: `--listen-port 9876`, or in RocketMQ's spelling `--listenPort 9876`;
2. the environment: `ROCKETLET_LISTEN_PORT=9876`;
3. the file named with `-c`, with the rules of `java.util.Properties`: `listenPort=9876`;
4. the default.

`mqnamesrv -p` and `mqbroker -p` print all settings with the place that each value came from; `-m` prints the important
ones, set in bold here. An unknown key is refused with the nearest match. Those marked ↻ may be changed while
the process runs (`mqadmin updateBrokerConfig`, `updateNamesrvConfig`); settings that name a file never may. Keys
after a slash are other spellings that are read too.
"""

_NOT_SERVED_HEAD = """
## Keys of RocketMQ's that are not served

They are read, named in a warning, and change nothing. Where there is more to say, the warning says it.
"""


def page() -> str:
    """The whole page."""
    parts = [_HEAD]
    for config_type in _config_types():
        parts.append(f"\n## {title_of(config_type).rstrip('.')}\n\nRead by {_readers(config_type)}.\n\n")
        parts.append("| key | default | | meaning |\n|---|---|---|---|\n")
        parts += [_row(setting) for setting in settings_of(config_type)]
    parts.append(_NOT_SERVED_HEAD + "\n")
    served = {key for config_type in _config_types() for entry in settings_of(config_type) for key in _keys(entry)}
    for title, keys in {
        "RocketMQ 4.9.8": rocketmq_keys.ALL - rocketmq_keys.OTHER_VERSIONS - served,
        "Other versions": rocketmq_keys.OTHER_VERSIONS - served,
    }.items():
        parts.append(f"{title}: {', '.join(f'`{key}`' for key in sorted(keys, key=str.lower))}.\n\n")
    parts += ["| key | what the warning says |\n|---|---|\n", *_notes(served)]
    return "".join(parts)


def _config_types() -> Iterable[type]:
    return dict.fromkeys(config_type for types in PROGRAMS.values() for config_type in types)


def _readers(config_type: type) -> str:
    return " and ".join(f"`{program}`" for program, types in PROGRAMS.items() if config_type in types)


def _keys(setting: Setting) -> tuple[str, ...]:
    return (setting.key, *setting.old_keys)


def _row(setting: Setting) -> str:
    keys = " / ".join(f"`{key}`" for key in _keys(setting))
    own_words = [*setting.variables[1:], *(flag for flag in setting.flags if not flag.startswith("--"))]
    default = setting.format(setting.default)
    meaning = [setting.doc]
    if setting.choices:
        meaning.append(f"One of {', '.join(f'`{choice}`' for choice in setting.choices)}.")
    elif setting.minimum is not None:
        expected = setting.expects()
        meaning.append(f"{expected[:1].upper()}{expected[1:]}.")
    elif setting.unit:
        meaning.append(f"In {setting.unit}.")
    if own_words:
        meaning.append(f"Also {', '.join(f'`{word}`' for word in own_words)}.")
    cells = [
        f"**{keys}**" if setting.important else keys,
        f"`{default}`" if default else setting.default_note,
        "↻" if setting.updatable else "",
        " ".join(meaning),
    ]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _notes(served: Iterable[str]) -> Iterator[str]:
    for key, note in sorted(rocketmq_keys.NOTES.items()):
        if key not in served:
            yield f"| `{key}` | {note} |\n"


def main() -> None:
    PAGE.write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
