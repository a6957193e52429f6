"""Telemetry, Heartbeat, NotifyClientTermination: the clients, and the commands they get.

Java: proxy/grpc/v2/client/ClientActivity.java
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from rocketlet.proxy.call import Call, Refusal
from rocketlet.proxy.config import ProxyConfig
from rocketlet.proxy.grpc_wire import GrpcStatus
from rocketlet.proxy.service.brokers import Brokers
from rocketlet.proxy.service.clients import Clients
from rocketlet.proxy.service.outgoing import check_group
from rocketlet.proxy.service.settings import consumer_settings, producer_settings
from rocketlet.proxy.wire import messages as m
from rocketlet.proxy.wire.codes import Code

_CONSUMERS = frozenset({m.PUSH_CONSUMER, m.SIMPLE_CONSUMER, m.PULL_CONSUMER})


class Membership:
    """See the module."""

    def __init__(
        self, config: ProxyConfig, brokers: Brokers, clients: Clients, end_polls: Callable[[str], None]
    ) -> None:
        self._config = config
        self._brokers = brokers
        self._clients = clients
        self._end_polls = end_polls

    def telemetry(self, call: Call, command: m.TelemetryCommand) -> Awaitable[None] | None:
        """One message of a client's stream. Answers to commands, which we never send, are ignored."""
        if command.WhichOneof("command") == "settings":
            return self._settings(call, command.settings)
        return None

    async def _settings(self, call: Call, settings: m.Settings) -> None:
        try:
            kind = settings.WhichOneof("pub_sub")
            if kind is None:
                raise Refusal(Code.UNRECOGNIZED_CLIENT_TYPE, "settings of neither a producer nor a consumer")
            if kind == "subscription":
                check_group(settings.subscription.group.name)
            self._clients.apply_settings(call, settings)
            if kind == "subscription":
                group = await self._brokers.group(settings.subscription.group.name)
                answer = consumer_settings(settings, self._config, group)
            else:
                answer = producer_settings(settings, self._config)
        except Refusal as refusal:
            call.end(GrpcStatus.INVALID_ARGUMENT, f"{refusal.code}: {refusal}")
        else:
            call.send(m.TelemetryCommand(status=m.Status(code=Code.OK, message="OK"), settings=answer))

    def heartbeat(self, call: Call, request: m.HeartbeatRequest) -> None:
        """A heartbeat. It describes the client, whatever settings we have for its id."""
        client = self._clients.get(call.client_id)
        kind = request.client_type or (client.kind if client is not None else m.CLIENT_TYPE_UNSPECIFIED)
        if kind in _CONSUMERS:
            check_group(request.group.name)
        elif kind != m.PRODUCER:
            raise Refusal(Code.UNRECOGNIZED_CLIENT_TYPE, f"client type {kind} is not served")
        call.reply(m.HeartbeatResponse(status=m.Status(code=Code.OK, message="OK")))

    def termination(self, call: Call, request: m.NotifyClientTerminationRequest) -> None:
        """A client terminates: its waiting receives are answered, so that it need not wait for them."""
        self._clients.leave(call.client_id)
        self._end_polls(call.client_id)
        call.reply(m.NotifyClientTerminationResponse(status=m.Status(code=Code.OK, message="OK")))
