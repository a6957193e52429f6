"""The command line of a server process: `-c`, `-p`, `-m`, `-h`, and a flag for every setting.

The whole of it follows from the settings dataclasses, so that a new setting needs no line here. A `__main__` reads:

    def main() -> None:
        settings = command_line.read("mqnamesrv", "The name server.", [NamesrvConfig], environment=os.environ)
        trio.run(NameServer(settings[NamesrvConfig], ...).run)

`read` sets logging up (it adds LogConfig to the list), logs the warnings and returns a `Loaded`. It ends the process
instead after `-h`, `--version`, `-p` (all settings with their origin), `-m` (the important ones), and with exit
code 2 and one line for each problem on stderr if anything is wrong. `-c` and `-n` are flags of RocketMQ's start
scripts, whose long spellings (`--configFile`, `--printConfigItem`) work too; a setting's flag may be written
`--listen-port` or `--listenPort`, and a boolean one without a value means true.

Why argparse and not click, which the `rocketlet` command uses: here all flags are data, there are no sub-commands, and
it saves 15 ms of every start.

Java: srvutil/ServerUtil.java, bin/mqnamesrv, bin/mqbroker
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence

from rocketlet.common import logging_setup
from rocketlet.common.config_file import Loaded, load, read_file, title_of
from rocketlet.common.settings import Setting, SettingsError, nearest, settings_of

EXIT_USAGE = 2
_SETTING_PREFIX = "setting "  # of the parser's destinations, so that no key can collide with config_file and its like


def read(
    program: str,
    description: str,
    config_types: Iterable[type],
    *,
    arguments: Sequence[str] | None = None,
    environment: Mapping[str, str],
    derive: Callable[[Loaded], Loaded] = lambda loaded: loaded,
) -> Loaded:
    """The settings of this process, with logging set up; or the end of it (SystemExit), see above.

    `arguments` are sys.argv without the program's name, `environment` is os.environ, unless a test gives others.
    `derive` replaces defaults that depend on other settings, so that `-p` prints what will be used.
    """
    types = [*config_types, logging_setup.LogConfig]
    parser = _parser(program, description, types)
    parsed, unknown = parser.parse_known_args(sys.argv[1:] if arguments is None else arguments)
    try:
        _refuse(parser, unknown)
        loaded = derive(
            load(
                *types,
                file=read_file(parsed.config_file) if parsed.config_file else None,
                environment=environment,
                flags=_settings_from(vars(parsed)),
            )
        )
        if parsed.print_all or parsed.print_important:
            _print(loaded, important_only=not parsed.print_all)
        logging_setup.set_up(loaded[logging_setup.LogConfig])
    except SettingsError as error:
        for problem in error.problems:
            sys.stderr.write(f"{program}: {problem}\n")
        raise SystemExit(EXIT_USAGE) from None
    for warning in loaded.warnings:
        logging.getLogger("rocketlet.common.config_file").warning("%s", warning)
    return loaded


def _print(loaded: Loaded, *, important_only: bool) -> None:
    sys.stdout.write(loaded.listing(important_only=important_only))
    for warning in loaded.warnings:
        sys.stderr.write(f"{warning}\n")
    raise SystemExit(0)


def _parser(program: str, description: str, types: Sequence[type]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=program,
        usage="%(prog)s [-c FILE] [-p | -m] [--SETTING VALUE]...",
        description=description,
        epilog="A flag is stronger than the environment (ROCKETLET_LISTEN_PORT and so on), the environment than the"
        " file, the file than the default.",
        allow_abbrev=False,
    )
    parser.add_argument("-c", "--config", "--configFile", dest="config_file", metavar="FILE", help="properties file")
    parser.add_argument(
        "-p", "--print", "--printConfigItem", dest="print_all", action="store_true", help="print all settings and exit"
    )
    parser.add_argument(
        "-m", "--printImportantConfig", dest="print_important", action="store_true", help="print the important ones"
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    added: set[str] = set()
    for config_type in types:
        group = parser.add_argument_group(title_of(config_type).rstrip("."))
        for setting in settings_of(config_type):
            if setting.key not in added:
                added.add(setting.key)
                _add(group, setting)
    return parser


def _add(group: argparse._ArgumentGroup, setting: Setting) -> None:
    default = setting.format(setting.default) or setting.default_note or "empty"
    group.add_argument(
        *setting.flags,
        dest=_SETTING_PREFIX + setting.key,
        metavar=setting.kind.__name__.upper() if isinstance(setting.kind, type) else "LIST",
        nargs="?" if setting.kind is bool else None,
        const="true" if setting.kind is bool else None,
        help=f"{setting.doc} [{default}]".replace("%", "%%"),
    )


def _settings_from(parsed: Mapping[str, str | None]) -> dict[str, str]:
    return {
        name.removeprefix(_SETTING_PREFIX): text
        for name, text in parsed.items()
        if name.startswith(_SETTING_PREFIX) and text is not None
    }


def _refuse(parser: argparse.ArgumentParser, unknown: Sequence[str]) -> None:
    if not unknown:
        return
    flags = [flag for action in parser._actions for flag in action.option_strings if flag.startswith("--")]
    # What follows an unknown flag is most likely its value, and needs no line of its own.
    unknown_flags = [text for text in unknown if text.startswith("-")] or unknown
    raise SettingsError(*(_unknown_argument(text, nearest(text.partition("=")[0], flags)) for text in unknown_flags))


def _unknown_argument(text: str, suggestion: str | None) -> str:
    return f"unknown argument {text}; " + (f"did you mean {suggestion}?" if suggestion else "-h lists all")


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import PackageNotFoundError, version  # 10 ms, for this flag alone

        try:
            number = version("rocketlet")
        except PackageNotFoundError:  # run from a source tree that was never installed
            number = "of a source tree"
        sys.stdout.write(f"{parser.prog} (Rocketlet) {number}\n")
        raise SystemExit(0)
