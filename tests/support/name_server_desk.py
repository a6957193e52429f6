"""The name server's handlers without sockets: a frame in, the answer's frame out."""

from __future__ import annotations

import inspect
import json
from dataclasses import dataclass, field
from typing import Any

from rocketlet.common.config_file import load
from rocketlet.namesrv.config import NamesrvConfig
from rocketlet.namesrv.durable_file import DurableFile
from rocketlet.namesrv.handlers.configuration import ConfigurationHandlers
from rocketlet.namesrv.handlers.kv import KvHandlers
from rocketlet.namesrv.handlers.registration import RegistrationHandlers
from rocketlet.namesrv.handlers.routes import RouteHandlers
from rocketlet.namesrv.kv_config import KvConfig
from rocketlet.namesrv.memory_files import MemoryFiles
from rocketlet.namesrv.route_table import RouteTable
from rocketlet.namesrv.run_time_settings import RunTimeSettings
from rocketlet.remoting import frame_codec
from rocketlet.remoting.command import Command
from rocketlet.remoting.handler import Refused, Reply, Request, handler_table
from rocketlet.remoting.protocol.header import from_ext


@dataclass(eq=False)
class FakeConnection:
    """A Connection as the handlers see it."""

    local: str = "10.0.0.1:9876"
    peer: str = "10.0.0.2:40000"
    attributes: dict[str, Any] = field(default_factory=dict)


class Desk:
    """The handlers without sockets: a frame in, the answer's frame out."""

    def __init__(self, order: dict[str, str] | None = None) -> None:
        contents = {"kv": json.dumps({"configTable": {"ORDER_TOPIC_CONFIG": order} if order else {}}).encode()}
        self.files = MemoryFiles(contents)
        self.table = RouteTable()
        self.kv = KvConfig(DurableFile("kv", self.files))
        self.kv.load()
        settings = RunTimeSettings(
            load(NamesrvConfig, flags={"orderMessageEnable": "true"}), DurableFile("conf", self.files)
        )
        self.routes = RouteHandlers(self.table, self.kv, settings)
        self.handlers = handler_table(
            [
                RegistrationHandlers(self.table, self.kv, lambda: 0),
                self.routes,
                KvHandlers(self.kv),
                ConfigurationHandlers(settings),
            ]
        )
        self.connections: dict[int, Any] = {}

    def connection(self, conn: int, local: str, peer: str) -> None:
        """Set the ends of a connection; by default two hosts in 10.0.0.0."""
        self.connections[conn] = FakeConnection(local, peer)

    async def answer(self, frame: bytes, conn: int = 0) -> Command | None:
        """None for a code that no handler serves."""
        (command,) = frame_codec.FrameDecoder().feed(frame)
        handler = self.handlers.get(command.code)
        if handler is None:
            return None
        request = Request(
            code=command.code,
            opaque=command.opaque,
            flag=command.flag,
            version=command.version,
            announced_language=command.language,
            remark=command.remark,
            header=None if handler.header is None else from_ext(handler.header, command.ext),
            raw_header=b"",
            body=command.body,
            header_type=command.header_type,
            connection=self.connections.setdefault(conn, FakeConnection()),
            received_at=0.0,
        )
        try:
            reply: Any = handler.function(request)
            if inspect.isawaitable(reply):
                reply = await reply
        except Refused as refused:
            reply = Reply(refused.code, refused.header, remark=refused.remark)
        assert isinstance(reply, Reply)
        parts = frame_codec.encode_answer(
            command.header_type, command.opaque, reply.code, reply.header, reply.body, reply.remark
        )
        (answer,) = frame_codec.FrameDecoder().feed(b"".join(parts))
        return answer
