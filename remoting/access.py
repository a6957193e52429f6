"""Who may send a request, as declared for each request code in the tables of handlers.

An entry says which permission on which resource a request needs, and in which field, or where in its body, the resource
is named, or how the server finds its name (the topic of the message at an offset). Whether a sender has that permission
is decided elsewhere. A code whose entry declares nothing is for administrators.

Java: acl/plain/PlainAccessResource.java (parse)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any


class Permission(Enum):
    """What an account may do with a resource; the values are those of RocketMQ's access file."""

    PUBLISH = "PUB"
    SUBSCRIBE = "SUB"


class Resource(Enum):
    """The kind of resource a permission applies to."""

    TOPIC = "topic"
    GROUP = "group"


NamesInBody = Callable[[bytes | memoryview], Iterable[str]]
"""Reads names out of a request's body. Raises BodyError."""


@dataclass(frozen=True, slots=True)
class Found:
    """Names that the server derives from the header; none if the request is about nothing that exists."""

    find: Callable[[Any], Iterable[str]]


@dataclass(frozen=True, slots=True)
class IfNamed:
    """An optional field: a request without it needs no permission for it."""

    field: str


Named = str | IfNamed | NamesInBody | Found


class NotNamed(Exception):
    """A request lacks the field that names the resource it needs a permission for."""


@dataclass(frozen=True, slots=True)
class Need:
    """A permission on each of the topics, or groups, that a request names in a header field or in its body."""

    permission: Permission
    resource: Resource
    named: Named

    def names(self, header: Any, body: bytes | memoryview) -> list[str]:
        """The resources. Raises NotNamed, or BodyError if they are in an unreadable body."""
        named = self.named
        if isinstance(named, str):
            name = getattr(header, named)
            if not name:
                raise NotNamed(named)
            return [name]
        if isinstance(named, IfNamed):
            name = getattr(header, named.field)
            return [name] if name else []
        return list(named.find(header) if isinstance(named, Found) else named(body))


@dataclass(frozen=True, slots=True)
class Access:
    """Who may send a request: anyone, any account that has all of `needs`, or an administrator."""

    needs: tuple[Need, ...] = ()
    admin: bool = False
    anyone: bool = False


ADMIN = Access(admin=True)
ANY_ACCOUNT = Access()
ANYONE = Access(anyone=True)


def publish(topic: Named) -> Access:
    """For those who may publish to the topic."""
    return Access((Need(Permission.PUBLISH, Resource.TOPIC, topic),))


def subscribe(*, topic: Named | None = None, group: Named | None = None) -> Access:
    """For those who may subscribe to the topic, and consume as the group."""
    named = ((Resource.TOPIC, topic), (Resource.GROUP, group))
    return Access(tuple(Need(Permission.SUBSCRIBE, kind, name) for kind, name in named if name is not None))
