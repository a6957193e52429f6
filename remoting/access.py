"""Who may send a request: what each entry in a table of handlers says of its request code, and nothing more.

A table says which permission on which resource a request needs, and in which field, or where in its body, the resource
is named. Whether a sender has that permission is decided elsewhere. A code whose entry says nothing is for
administrators.

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
    """What a permission is given on."""

    TOPIC = "topic"
    GROUP = "group"


NamesInBody = Callable[[bytes | memoryview], Iterable[str]]
"""Reads names out of a request's body. Raises BodyError."""


@dataclass(frozen=True, slots=True)
class Need:
    """A permission on each of the topics, or groups, that a request names in a header field or in its body."""

    permission: Permission
    resource: Resource
    named: str | NamesInBody

    def names(self, header: Any, body: bytes | memoryview) -> list[str]:
        """The resources; none where the request leaves the field out, so that it does not tell what it needs."""
        if callable(self.named):
            return list(self.named(body))
        name = getattr(header, self.named)
        return [name] if name else []


@dataclass(frozen=True, slots=True)
class Access:
    """Who may send a request: anyone, any account that has all of `needs`, or an administrator."""

    needs: tuple[Need, ...] = ()
    admin: bool = False
    anyone: bool = False


ADMIN = Access(admin=True)
ANY_ACCOUNT = Access()
ANYONE = Access(anyone=True)


def publish(topic: str | NamesInBody) -> Access:
    """For those who may publish to the topic."""
    return Access((Need(Permission.PUBLISH, Resource.TOPIC, topic),))


def subscribe(*, topic: str | NamesInBody | None = None, group: str | NamesInBody | None = None) -> Access:
    """For those who may subscribe to the topic, and consume as the group."""
    named = ((Resource.TOPIC, topic), (Resource.GROUP, group))
    return Access(tuple(Need(Permission.SUBSCRIBE, kind, where) for kind, where in named if where is not None))
