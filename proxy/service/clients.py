"""The clients that have sent their settings, each with its open Telemetry.

A client's settings hold as long as one of its telemetry streams is open. No call requires them: one that arrives before
its settings, or after our restart, when some clients repeat them only every five minutes, is served all the same.

Invariants: a client in the table has an open telemetry; `producers` names exactly the clients whose settings have the
topic.

Java: proxy/grpc/v2/common/GrpcClientSettingsManager.java, proxy/grpc/v2/channel/GrpcChannelManager.java
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from rocketlet.common.topic import is_topic_name
from rocketlet.proxy.call import Call, Refusal
from rocketlet.proxy.wire import messages as m
from rocketlet.proxy.wire.codes import Code

MAX_TOPICS = 1000
"""Of one client's settings; more of them are not remembered."""
MAX_BYTES = 64 << 20
"""Of names that all clients together may have in their settings; those of further clients are not remembered."""
_CLIENT_SIZE = 1024
_TOPIC_SIZE = 500  # besides its name, for a topic that no other client has


class Client:
    """One client, by its id."""

    def __init__(self, client_id: str, telemetry: Call) -> None:
        self.id = client_id
        self.telemetry = telemetry
        self.kind = m.CLIENT_TYPE_UNSPECIFIED
        self.group = ""
        self.topics: set[str] = set()
        self.size = 0
        self.is_leaving = False

    def __repr__(self) -> str:
        return f"<Client {self.id}: kind {self.kind}, {self.group or len(self.topics)}>"


class Clients:
    """See the module."""

    def __init__(self, random: Random) -> None:
        self._by_id: dict[str, Client] = {}
        self._producers: dict[str, dict[str, Client]] = {}
        self._random = random
        self.size = 0

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Client]:
        return iter(self._by_id.values())

    def get(self, client_id: str) -> Client | None:
        return self._by_id.get(client_id)

    def apply_settings(self, call: Call, settings: m.Settings) -> Client:
        """A client has sent its settings on this telemetry stream, for the first time or again. Raises Refusal."""
        client = self._by_id.get(call.client_id)
        names = {topic.name for topic in settings.publishing.topics[:MAX_TOPICS] if is_topic_name(topic.name)}
        size = _CLIENT_SIZE + sum(_TOPIC_SIZE + len(name) for name in names)
        size_before = client.size if client is not None else 0
        if self.size - size_before + size > MAX_BYTES:
            raise Refusal(Code.TOO_MANY_REQUESTS, f"the settings of all clients together exceed {MAX_BYTES} bytes")
        if client is None:
            client = self._by_id[call.client_id] = Client(call.client_id, call)
        self.size += size - size_before
        client.size = size
        client.telemetry = call
        call.when_over = self._on_call_end
        client.kind = settings.client_type
        client.is_leaving = call.is_abandoned = False
        if settings.WhichOneof("pub_sub") == "subscription":
            client.group = settings.subscription.group.name
        else:
            for topic in client.topics - names:
                self._no_longer(topic, client)
            for topic in names:
                self._producers.setdefault(topic, {})[client.id] = client
            client.topics = names
        return client

    def producers(self, topic: str) -> list[Client]:
        """The producers of a topic, from a random one on."""
        clients = list(self._producers.get(topic, {}).values())
        first = self._random.randrange(len(clients)) if clients else 0
        return clients[first:] + clients[:first]

    def topics(self) -> set[str]:
        """All topics with producers."""
        return set(self._producers)

    def leave(self, client_id: str) -> None:
        """The client has announced its end."""
        client = self._by_id.get(client_id)
        if client is not None:
            client.is_leaving = client.telemetry.is_abandoned = True

    def _on_call_end(self, call: Call) -> None:
        client = self._by_id.get(call.client_id)
        if client is None or client.telemetry is not call:
            return  # it has opened another stream meanwhile
        del self._by_id[client.id]
        self.size -= client.size
        for topic in client.topics:
            self._no_longer(topic, client)

    def _no_longer(self, topic: str, client: Client) -> None:
        producers = self._producers.get(topic, {})
        producers.pop(client.id, None)
        if not producers:
            self._producers.pop(topic, None)
