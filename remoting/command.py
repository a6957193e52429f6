"""One message of the protocol, and the small vocabularies of its header: header types, languages, versions.

A `Command` is the general form, with its custom header flattened to text as it travels (`ext`). The requests a server
gets thousands of times a second never become one: see `remoting/request_reader.py`.

Java: remoting/protocol/RemotingCommand.java, remoting/protocol/LanguageCode.java, common/MQVersion.java
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from rocketlet.remoting.protocol.header import Header, to_ext

RESPONSE = 1  # bit of `flag`
ONEWAY = 2  # bit of `flag`: no answer is expected

VERSION = 409  # the version we announce: V4_9_8
HIGHEST_VERSION = 612  # larger numbers are displayed as this one

# Versions at which a peer's capabilities change.
V3_0_7_SNAPSHOT = 28
V3_0_11 = 37
V3_1_8_SNAPSHOT = 62
V3_4_9 = 121
V4_1_0_SNAPSHOT = 232
V4_9_3 = 399
V4_9_4 = 401
V5_0_0 = 413


class HeaderType(IntEnum):
    """How the header of a frame is written; the high byte of its second word. DO NOT CHANGE."""

    JSON = 0
    ROCKETMQ = 1
    MSGPACK = 2  # ours: no other implementation knows it


class Language(IntEnum):
    """The sender's language: the number in a binary header, the name in a JSON header. DO NOT CHANGE."""

    JAVA = 0
    CPP = 1
    DOTNET = 2
    PYTHON = 3
    DELPHI = 4
    ERLANG = 5
    RUBY = 6
    OTHER = 7
    HTTP = 8
    GO = 9
    PHP = 10
    OMS = 11
    RUST = 12
    NODE_JS = 13


_languages_by_name = {language.name: language for language in Language}


def language_of(announced: str | int | None) -> Language:
    """The language that a peer announced, by name or number; unknown ones are OTHER, a missing one is JAVA."""
    if announced is None:
        return Language.JAVA
    if isinstance(announced, str):
        return _languages_by_name.get(announced.upper(), Language.OTHER)
    return Language(announced) if 0 <= announced <= Language.NODE_JS else Language.OTHER


def version_name(version: int) -> str:
    """`V4_9_8` for 409, as `mqadmin` shows it. Releases before 4.0 were irregular: for those, the number."""
    version = min(version, HIGHEST_VERSION)
    if version < 212:
        return f"V3_{version}"
    major, base = (5, 412) if version >= 412 else (4, 212)
    minor, rest = divmod(version - base, 20)
    return f"V{major}_{minor}_{rest // 2}" + ("" if rest % 2 else "_SNAPSHOT")


@dataclass(slots=True)
class Command:
    """A request or an answer. `ext` None means that the frame had none; its values are always text."""

    code: int
    opaque: int = 0
    flag: int = 0
    language: Language = Language.PYTHON
    version: int = VERSION
    remark: str | None = None
    ext: dict[str, str] | None = None
    body: bytes = b""
    header_type: HeaderType = HeaderType.JSON

    @property
    def is_response(self) -> bool:
        """Whether this answers a request; its opaque says which."""
        return self.flag & RESPONSE != 0

    @property
    def is_oneway(self) -> bool:
        """Whether no answer is expected."""
        return self.flag & ONEWAY != 0


def request(code: int, header: Header | None = None, body: bytes = b"", *, remark: str | None = None) -> Command:
    """A request to send; its connection assigns the opaque."""
    return Command(code, remark=remark, ext=None if header is None else to_ext(header), body=body)
