"""A whole broker and name server with access control, in memory."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trio

from rocketlet.access.account_edits import with_account
from rocketlet.access.config import AccessConfig
from rocketlet.common.config_file import load
from rocketlet.common.settings import SettingsError
from rocketlet.common.topic import HALF_TOPIC
from rocketlet.metrics.config import MetricsConfig
from rocketlet.namesrv.config import NamesrvConfig
from rocketlet.namesrv.memory_files import MemoryFiles
from rocketlet.namesrv.namesrv import NameServer
from rocketlet.remoting.certificates import Authority
from rocketlet.remoting.command import Command
from rocketlet.remoting.config import PoolConfig, ServerConfig
from rocketlet.remoting.connection_pool import ConnectionPool
from rocketlet.remoting.errors import CallTimeout
from rocketlet.remoting.memory_network import MemoryNetwork
from rocketlet.remoting.protocol.access import UpdateAclConfigHeader
from rocketlet.remoting.protocol.configuration import CreateTopicHeader, DataVersion
from rocketlet.remoting.protocol.kv import KVConfigHeader, PutKVConfigHeader
from rocketlet.remoting.protocol.pulling import ViewMessageHeader
from rocketlet.remoting.protocol.sending import ConsumerSendMsgBackHeader
from rocketlet.remoting.protocol.transactions import COMMIT, EndTransactionHeader
from rocketlet.remoting.request_codes import RequestCode
from rocketlet.remoting.response_codes import ResponseCode
from rocketlet.remoting.signing import Signer
from tests.support.memory_broker import Client, RunningBroker, memory_broker, tags
from tests.support.memory_folder import MemoryFolder, account, accounts

SECRET = "correct-horse"
FILE = accounts(
    account("operator", admin=True),
    account("webshop", topics=("orders=PUB",)),
    account("reader-1", topics=("orders=SUB",), groups=("readers=SUB",)),
    account("stranger", topics=("prices=PUB|SUB",), groups=("strangers=SUB",)),
)


@asynccontextmanager
async def guarded(folder: MemoryFolder | None = None, **settings: object) -> AsyncIterator[RunningBroker]:
    async with memory_broker(accounts=folder or MemoryFolder(FILE), acl_enable=True, **settings) as one:
        yield one


@asynccontextmanager
async def signed(one: RunningBroker, key: str, secret: str = SECRET) -> AsyncIterator[Client]:
    async with ConnectionPool(one.network, PoolConfig(), hooks=[Signer(key, secret)]) as pool:
        yield Client(pool, one.bound)


async def test_a_permitted_account_sends_and_consumes(autojump_clock: trio.testing.MockClock) -> None:
    async with guarded() as one, signed(one, "webshop") as shop, signed(one, "reader-1") as reader:
        assert (await shop.send("orders", b"hello")).code == 0
        refused = await shop.send("prices", b"hello")
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert refused.remark == (
            "org.apache.rocketmq.acl.common.AclException: account webshop may not publish to topic prices: it needs"
            " prices=PUB in its topicPerms"
        )
        assert (await reader.heartbeat("c", "readers", tags("orders"))).code == 0
        assert "may not consume as group others" in str((await reader.heartbeat("c", "others", tags("orders"))).remark)
        pulled = await reader.pull("orders", 0, 0, consumerGroup="readers")
        assert [record.body for record in pulled.records] == [b"hello"]
        assert (await one.send("orders")).remark == (
            "org.apache.rocketmq.acl.common.AclException: SEND_MESSAGE_V2 is not signed, and this server has access"
            " control: give the client an access key and a secret key"
        )


async def test_viewing_sending_back_and_ending_are_judged_by_the_messages_own_topic(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Requests with an offset and no topic: RocketMQ checks none of the three."""
    async with guarded() as one, signed(one, "webshop") as shop, signed(one, "stranger") as stranger:
        await shop.send("orders", b"secret")
        half = await shop.send("orders", b"half", PGROUP="PG", TRAN_MSG="true", fields={"sysFlag": 4})
        assert half.code == 0
        queue = one.broker.store.queue(HALF_TOPIC, 0)
        entry = queue.entry(0) if queue is not None else None
        assert entry is not None
        view = ViewMessageHeader(0, topic="prices")
        seen = await stranger.call(RequestCode.VIEW_MESSAGE_BY_ID, view)
        assert "may not subscribe to topic orders" in str(seen.remark), "whatever topic the request names"
        back = ConsumerSendMsgBackHeader(0, "strangers")
        sent_back = await stranger.call(RequestCode.CONSUMER_SEND_MSG_BACK, back)
        assert "may not subscribe to topic orders" in str(sent_back.remark)
        end = EndTransactionHeader(entry[0], COMMIT, 0, "PG")
        ended = await stranger.call(RequestCode.END_TRANSACTION, end)
        assert "may not publish to topic orders" in str(ended.remark)
        assert (await shop.call(RequestCode.END_TRANSACTION, end)).code == 0
        async with signed(one, "reader-1") as reader:
            assert b"secret" in (await reader.call(RequestCode.VIEW_MESSAGE_BY_ID, view)).body


async def test_administrators_change_accounts_and_the_audit_log_hides_secrets(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rocketlet.audit")
    folder = MemoryFolder(FILE)
    async with guarded(folder) as one, signed(one, "operator") as operator, signed(one, "webshop") as shop:
        change = UpdateAclConfigHeader("newcomer", "battery-staple", topicPerms="orders=SUB", groupPerms="late=SUB")
        refused = await shop.call(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, change)
        assert "is for administrators" in str(refused.remark)
        assert (await operator.call(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, change)).code == 0
        async with signed(one, "newcomer", "battery-staple") as newcomer:
            assert (await newcomer.pull("orders", 0, 0, consumerGroup="late")).code != ResponseCode.SYSTEM_ERROR
        await operator.call(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, UpdateAclConfigHeader("newcomer", "another-one"))
        await operator.call(
            RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicHeader("made", readQueueNums=2, writeQueueNums=2)
        )
        answer = await operator.call(RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
        assert json.loads((answer.ext or {})["allAclFileVersion"])[folder.default_path]["counter"] == 2
        settings = await operator.call(RequestCode.GET_BROKER_CONFIG)
    lines = [json.loads(record.message) for record in caplog.records if record.name == "rocketlet.audit"]
    assert [(line["who"], line["what"], line["outcome"]) for line in lines] == [
        ("operator", "UPDATE_AND_CREATE_ACL_CONFIG", "done"),
        ("operator", "UPDATE_AND_CREATE_ACL_CONFIG", "done"),
        ("operator", "UPDATE_AND_CREATE_TOPIC", "done"),
    ]
    assert lines[0]["before"] is None
    assert lines[0]["after"]["topicPerms"] == ["orders=SUB"]
    assert lines[1]["after"]["secretKey"] == "******", "told, though all that is shown is the same"
    assert (lines[2]["before"], lines[2]["after"]["readQueueNums"]) == (None, 2)
    everything = caplog.text + settings.body.decode() + json.dumps(lines)
    for secret in (SECRET, "battery-staple", "another-one"):
        assert secret not in everything


@pytest.mark.parametrize(
    ("header", "says"),
    [
        (UpdateAclConfigHeader("short", "battery-staple"), "accessKey must have from 7"),
        (UpdateAclConfigHeader("newcomer", ""), "secretKey must have from 7"),
        (UpdateAclConfigHeader("new\ncomer", "battery-staple"), "accessKey"),
        (UpdateAclConfigHeader("newcomer", "battery-staple", topicPerms="a b=PUB"), "names no topic"),
        (UpdateAclConfigHeader("newcomer", "battery-staple", topicPerms="orders=ALL"), "must end in ="),
        (UpdateAclConfigHeader("newcomer", "battery-staple", defaultTopicPerm="ALL"), "defaultTopicPerm must be"),
        (UpdateAclConfigHeader("newcomer", "battery-staple", whiteRemoteAddress="10.1"), "is no address"),
        (UpdateAclConfigHeader("operator", "", admin=False), "no administrator would be left"),
    ],
)
async def test_nonsensical_account_changes_are_refused(
    autojump_clock: trio.testing.MockClock, header: UpdateAclConfigHeader, says: str
) -> None:
    folder = MemoryFolder(FILE)
    async with guarded(folder) as one, signed(one, "operator") as operator:
        answer = await operator.call(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, header)
        assert answer.code == ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED
        assert says in str(answer.remark)
        assert folder.contents[folder.default_path] == FILE.encode()


async def test_rules_reloaded_under_load_apply_whole(
    autojump_clock: trio.testing.MockClock,
) -> None:
    folder = MemoryFolder(FILE)
    async with guarded(folder) as one, signed(one, "webshop") as shop, trio.open_nursery() as nursery:
        codes: list[tuple[float, int, int]] = []

        async def send_for_ever(number: int) -> None:
            while True:
                orders, prices = await shop.send("orders"), await shop.send("prices")
                codes.append((trio.current_time(), orders.code, prices.code))
                await trio.sleep(0.2)

        for number in range(3):
            nursery.start_soon(send_for_ever, number)
        await trio.sleep(1)
        changed = with_account("f", FILE.encode(), "webshop", {"topicPerms": ["prices=PUB"]}, DataVersion(1, 1))
        folder.write(changed.decode())
        began = trio.current_time()
        await trio.sleep(10)
        nursery.cancel_scope.cancel()
    pairs = [(orders, prices) for _, orders, prices in codes]
    old, new = (0, 1), (1, 0)
    switched = next(moment for moment, *pair in codes if tuple(pair) == new)
    assert switched - began < 5
    assert {pair for pair in pairs if pair not in (old, new)} <= {(0, 0)}, "the change fell between the two sends"
    assert all(tuple(pair) == new for moment, *pair in codes if moment > switched + 1)


async def test_the_rate_of_an_account_changes_while_the_broker_runs(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with guarded() as one, signed(one, "operator") as operator, signed(one, "webshop") as shop:
        assert [(await shop.send("orders")).code for _ in range(6)] == [0] * 6
        body = b"requestsPerSecondByAccount=2\n"
        assert (await operator.call(RequestCode.UPDATE_BROKER_CONFIG, body=body)).code == 0
        await trio.sleep(2)
        codes = [(await shop.send("orders")).code for _ in range(6)]
        assert codes.count(ResponseCode.SYSTEM_BUSY) >= 3
        assert one.broker.parts.access.gate.denied["rate"] >= 3  # type: ignore[index]


async def test_without_access_control_account_requests_are_answered_as_by_rocketmq(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "rocketlet.access.account_requests")
    async with memory_broker() as one:
        for code, expected, method in (
            (
                RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
                ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED,
                "updateAccessConfig(org.apache.rocketmq.common.PlainAccessConfig)",
            ),
            (
                RequestCode.DELETE_ACL_CONFIG,
                ResponseCode.DELETE_ACL_CONFIG_FAILED,
                "deleteAccessConfig(String)",
            ),
            (
                RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
                ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED,
                "updateGlobalWhiteAddrsConfig(java.util.List, String)",
            ),
        ):
            answer = await one.call(code, {"accessKey": "webshop", "secretKey": SECRET, "globalWhiteAddrs": "*"})
            assert (answer.code, answer.remark) == (
                expected,
                f'Cannot invoke "org.apache.rocketmq.acl.AccessValidator.{method}" because "accessValidator" is null',
            )
            assert "aclEnable=false" in caplog.messages[-1]


async def test_without_access_control_the_version_has_no_answer(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rocketlet.access")
    async with memory_broker() as one:
        with pytest.raises(CallTimeout):  # RocketMQ's client waits for it in vain, too
            await one.call(RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
        assert "aclEnable=false" in caplog.messages[-1]
        assert (await one.call(RequestCode.GET_BROKER_CONFIG)).code == 0


@pytest.mark.parametrize("text", ["", "accounts: []\n"])
async def test_a_broker_does_not_start_without_accounts(text: str) -> None:
    with pytest.raises(BaseExceptionGroup) as caught:
        async with memory_broker(accounts=MemoryFolder(text), acl_enable=True):
            pass
    assert caught.group_contains(SettingsError, match="there is no account in /conf/plain_acl.yml")


async def test_a_server_reachable_by_others_without_access_control_warns(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with memory_broker():
        pass
    assert "without access control" not in caplog.text
    async with memory_broker(bind_address="10.0.0.5"):
        pass
    assert "the broker listens on 10.0.0.5 without access control" in caplog.text


async def test_a_client_certificate_authenticates_its_account(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    authority = Authority("CA", 36_000, datetime(2026, 1, 31, tzinfo=UTC))
    paths = {"ca": str(tmp_path / "ca.pem")}
    Path(paths["ca"]).write_bytes(authority.certificate)
    for name, server in (("server", True), ("shop.example", False), ("stranger.example", False)):
        issued = authority.issue(name, (), server=server)
        paths[name] = str(tmp_path / f"{name}.pem")
        Path(paths[name]).write_bytes(issued.certificate + issued.key)
    mutual = {
        "tls_mode": "enforcing",
        "tls_cert_path": paths["server"],
        "tls_trust_path": paths["ca"],
        "tls_client_auth": "require",
        "tls_accounts": ("shop.example=webshop",),
    }
    async with guarded(**mutual) as one:
        codes = {}
        for name in ("shop.example", "stranger.example"):
            config = PoolConfig(use_tls=True, tls_cert_path=paths[name])
            async with ConnectionPool(one.network, config) as pool:
                client = Client(pool, one.bound)
                codes[name] = [(await client.send(topic)).code for topic in ("orders", "prices")]
        assert codes == {"shop.example": [0, 1], "stranger.example": [1, 1]}
        assert "haAllowed=\n" in one.broker.settings.properties(), "who connects has shown a certificate"


async def test_the_log_is_replicated_only_to_named_hosts(autojump_clock: trio.testing.MockClock) -> None:
    async with guarded() as one:
        assert one.broker.settings.loaded.configs
        shown = one.broker.settings.properties()
        assert "haAllowed=127.0.0.0/8;::1/128" in shown
    async with guarded(ha_allowed=("10.0.0.7",)) as one:
        assert "haAllowed=10.0.0.7" in one.broker.settings.properties()


@asynccontextmanager
async def name_server(network: MemoryNetwork, **more: str) -> AsyncIterator[str]:
    flags = {"bindAddress": "10.0.0.9", "kvConfigPath": "kv", "configStorePath": "conf", "aclEnable": "true", **more}
    loaded = load(NamesrvConfig, ServerConfig, MetricsConfig, AccessConfig, flags=flags)
    server = NameServer(loaded, network, files=MemoryFiles(), accounts=MemoryFolder(FILE))
    async with trio.open_nursery() as nursery:
        yield await nursery.start(server.run)
        nursery.cancel_scope.cancel()


async def test_a_name_server_requires_signatures_for_changes(autojump_clock: trio.testing.MockClock) -> None:
    network = MemoryNetwork()
    put = PutKVConfigHeader(namespace="N", key="K", value="V")
    async with name_server(network) as address:

        async def ask(code: RequestCode, header: Any, *hooks: Signer) -> Command:
            async with ConnectionPool(network, PoolConfig(), hooks=hooks) as pool:
                ext = {name: getattr(header, name) for name in header.__struct_fields__}
                return await pool.call(address, Command(code, ext=ext), 5)

        assert "is not signed" in str((await ask(RequestCode.PUT_KV_CONFIG, put)).remark)
        refused = await ask(RequestCode.PUT_KV_CONFIG, put, Signer("webshop", SECRET))
        assert "is for administrators" in str(refused.remark)
        assert (await ask(RequestCode.PUT_KV_CONFIG, put, Signer("operator", SECRET))).code == 0
        found = await ask(RequestCode.GET_KV_CONFIG, KVConfigHeader(namespace="N", key="K"))
        assert (found.ext or {})["value"] == "V", "whoever reads need not sign"


async def test_a_broker_signs_registrations_with_the_account_in_tools_yml(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    network = MemoryNetwork()
    folder = MemoryFolder(FILE)
    async with name_server(network) as address:
        async with memory_broker(network=network, accounts=folder, namesrv_addr=(address,)) as one:
            assert [known for _, known in one.broker.registration.places()] == [False]
        folder.contents[folder.tools_path] = b"accessKey: operator\nsecretKey: correct-horse\n"
        async with memory_broker(network=network, accounts=folder, namesrv_addr=(address,)) as one:
            assert [known for _, known in one.broker.registration.places()] == [True]
    assert SECRET not in caplog.text
