"""KV configuration: 100 put, 101 get, 102 delete, 219 list a namespace.

100, 102  Answered when the change is on disk; 1 if it could not be written, and then nothing has changed.
101, 219  22 for an unknown key or namespace.

Java: namesrv/processor/DefaultRequestProcessor.java
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable

from rocketlet.namesrv.kv_config import KvConfig, KvConfigFull
from rocketlet.remoting.access import ANYONE
from rocketlet.remoting.handler import Handler, HandlerTable, Refused, Reply, Request
from rocketlet.remoting.protocol.kv import (
    KVConfigAnswerHeader,
    KVConfigHeader,
    KVNamespaceHeader,
    KVTable,
    PutKVConfigHeader,
)
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode

log = logging.getLogger("rocketlet.namesrv.kv_config")


class KvHandlers:
    """The four requests about KV configuration."""

    def __init__(self, kv: KvConfig) -> None:
        self._kv = kv

    def table(self) -> HandlerTable:
        return {
            RequestCode.PUT_KV_CONFIG: Handler(self.put, PutKVConfigHeader),
            RequestCode.GET_KV_CONFIG: Handler(self.get, KVConfigHeader, access=ANYONE),
            RequestCode.DELETE_KV_CONFIG: Handler(self.delete, KVConfigHeader),
            RequestCode.GET_KVLIST_BY_NAMESPACE: Handler(self.namespace, KVNamespaceHeader, access=ANYONE),
        }

    async def put(self, request: Request) -> Reply:
        """100."""
        header: PutKVConfigHeader = request.header
        if header.namespace is None or header.key is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, "namespace or key is null")
        if header.value is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"no value for key {header.key} of namespace {header.namespace}")
        await _written(self._kv.put(header.namespace, header.key, header.value))
        log.info(
            "%s: kv config of namespace %s: %s = %s",
            request.connection.peer,
            header.namespace,
            header.key,
            header.value,
        )
        return Reply()

    def get(self, request: Request) -> Reply:
        """101."""
        header: KVConfigHeader = request.header
        value = None if header.namespace is None or header.key is None else self._kv.get(header.namespace, header.key)
        if value is None:
            raise Refused(
                ResponseCode.QUERY_NOT_FOUND,
                f"No config item, Namespace: {header.namespace or 'null'} Key: {header.key or 'null'}",
                KVConfigAnswerHeader(),
            )
        return Reply(header=KVConfigAnswerHeader(value))

    async def delete(self, request: Request) -> Reply:
        """102."""
        header: KVConfigHeader = request.header
        if header.namespace is None or header.key is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, "namespace or key is null")
        await _written(self._kv.delete(header.namespace, header.key))
        log.info("%s: kv config of namespace %s: %s deleted", request.connection.peer, header.namespace, header.key)
        return Reply()

    def namespace(self, request: Request) -> Reply:
        """219."""
        header: KVNamespaceHeader = request.header
        table = None if header.namespace is None else self._kv.namespace(header.namespace)
        if table is None:
            raise Refused(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {header.namespace or 'null'}")
        return Reply(body=KVTable({**table}).to_json())


async def _written(change: Awaitable[None]) -> None:
    try:
        await change
    except KvConfigFull as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
    except OSError as error:
        log.error("the KV configuration cannot be written: %s", error)
        raise Refused(
            ResponseCode.SYSTEM_ERROR, f"the KV configuration cannot be written: {error}; nothing was changed"
        ) from error
