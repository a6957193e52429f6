"""Every page with a cluster in memory: what it shows, what it changes, and what it refuses."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import trio
import trio.testing

pytest.importorskip("starlette", reason="the extra console is not installed")
pytest.importorskip("hypercorn", reason="the extra console is not installed")

from rocketlet.access.folder import RealFolder
from rocketlet.client import AsyncProducer, AsyncPushConsumer, ConsumeFrom, Later, Message
from rocketlet.common.message import ReceivedMessage
from rocketlet.console import app as console_app
from rocketlet.console.config import ConsoleConfig
from rocketlet.console.jobs import MAX_KEPT, MAX_RUNNING, Job, Jobs, TooManyJobs
from rocketlet.console.pages.topics import MAX_TAILS
from rocketlet.console.sampling import Sampler
from tests.support.console_browser import Browser
from tests.support.memory_cluster import Cluster, memory_cluster
from tests.support.pair import NAMESRV, pair
from tests.support.replicas import replicas

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&"


@asynccontextmanager
async def console(cluster: Cluster, **chosen: Any) -> AsyncIterator[Browser]:
    config = ConsoleConfig(namesrv=cluster.namesrv, **chosen)
    async with console_app.connected(config, cluster.network) as calls, trio.open_nursery() as nursery:
        world = cluster.world()
        yield Browser(console_app.create_app(config, calls, nursery, world.clock, world))
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def shop(**chosen: Any) -> AsyncIterator[tuple[Cluster, Browser, str]]:
    """A cluster with messages, a group that consumes some of them, and an id."""
    async with (
        memory_cluster(trace_topic_enable=True) as cluster,
        AsyncProducer("shop", namesrv=cluster.namesrv, world=cluster.world(), trace=True) as producer,
    ):
        for number in range(12):
            body = json.dumps({"order": number}).encode()
            sent = await producer.send(Message("orders", body, tags="new", keys=[f"order-{number}"]))
        async with console(cluster, **chosen) as browser:
            yield cluster, browser, sent.message_id


PAGES = {
    "/": "Dashboard messages in a second",
    "/ops": "Name servers DefaultCluster knows 1 broker names",
    "/cluster": "broker-a V4_9_8 master",
    "/cluster/broker-a/0": "State Settings autoCreateTopicEnable commitLogMaxOffset",
    "/topics": "orders read, write",
    "/topics?kind=system": "TBW102 RMQ_SYS_TRACE_TOPIC",
    "/topics/orders": "messages kept broker-a Route Send a message",
    "/topics/orders/tail": "Messages as they come Pause",
    "/consumers": "Create a group",
    "/producers": "shop PYTHON V4_9_8",
    "/messages": "Id, key or place",
    "/messages?topic=orders": 'order-11 { "order": 0 }',
    "/messages?topic=orders&q=order-3": 'order-3 UNIQ_KEY "order": 3',
    "/dead-letters": "No group has given a message up.",
    "/traces": "Message id or key",
    "/access": "broker-a off",
}


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_shows_its_subject(path: str, autojump_clock: trio.testing.MockClock) -> None:
    async with shop() as (_, browser, _):
        page = await browser.get(path)
        assert page.status == 200, page.text
        for word in PAGES[path].split():
            assert word in page.text
        assert "default-src 'none'" in page.headers["content-security-policy"]
        browser.cookies["rocketlet_lang"] = "zh"
        chinese = await browser.get(path)
        assert chinese.status == 200
        assert 'lang="zh-CN"' in chinese.html
        assert "概览" in chinese.text


async def test_one_search_box_finds_an_id_a_place_and_an_offset_id(autojump_clock: trio.testing.MockClock) -> None:
    async with shop() as (_, browser, message_id):
        by_id = await browser.get(f"/messages?q={message_id}")
        assert message_id in by_id.text
        assert '"order": 11' in by_id.text
        offset_id = by_id.text.partition("Offset id ")[2].split()[0]
        assert '"order": 11' in (await browser.get(f"/messages?q={offset_id}")).text
        place = by_id.text.partition("orders / broker-a / ")[2].split()
        assert '"order": 11' in (await browser.get(f"/messages?q=orders/broker-a/{place[0]}@{place[2]}")).text
        missing = await browser.get(f"/messages?q={'0' * 32}")
        assert "Nothing has the id, key or place 0000" in missing.text
        assert '"order": 3' in (await browser.get("/messages?q=order-3")).text
        several = await browser.get("/messages?q=orders@0")
        assert several.text.count("broker-a/") == len(
            [one for one in (await browser.app.state.console.cluster.offsets("orders")).values() if one.maxOffset]
        )
        assert "broker-a/" in (await browser.get("/messages?q=0&topic=orders")).text
        assert (await browser.get("/messages?q=orders/broker-a/0@999")).status == 404


async def test_a_trace_is_drawn_and_a_missing_one_differs_from_a_failure(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with shop() as (cluster, browser, message_id):
        await trio.sleep(3)
        page = await browser.get(f"/traces?q={message_id}")
        assert "Pub shop orders" in page.text
        assert cluster.brokers["broker-a"].identity.address in page.text
        assert '<svg class="trace"' in page.html
        none = await browser.get(f"/traces?q={'0' * 32}")
        assert (none.status, "No trace was recorded of" in none.text) == (200, True)
        await cluster.stop("broker-a")
        assert (await browser.get(f"/traces?q={message_id}")).status == 502


async def test_topics_are_created_changed_written_to_and_deleted(autojump_clock: trio.testing.MockClock) -> None:
    async with shop() as (cluster, browser, _):
        page = await browser.submit(
            "/topics", "/topics", topic="fresh", cluster="DefaultCluster", read="2", write="2", perm="6", order="no",
            type="FIFO",
        )  # fmt: skip
        assert "Topic fresh is there" in page.text
        assert cluster.brokers["broker-a"].tables.topics.get("fresh") is not None
        page = await browser.submit("/topics/fresh", "/topics/fresh/send", body="hello", tags="A", keys="k1")
        assert "Sent: SEND_OK" in page.text
        assert "hello" in (await browser.get("/messages?topic=fresh")).text
        page = await browser.submit("/topics/fresh", "/topics/fresh/delete", confirm="other")
        assert page.status == 400
        page = await browser.submit("/topics/fresh", "/topics/fresh/delete", confirm="fresh")
        assert "Topic fresh is deleted" in page.text
        assert (await browser.get("/topics/fresh")).status == 404
        page = await browser.submit("/topics", "/topics", topic="../../etc", cluster="DefaultCluster")
        assert page.status == 400


async def test_a_group_is_reset_after_a_preview(autojump_clock: trio.testing.MockClock) -> None:
    seen: list[bytes] = []

    async def listener(message: ReceivedMessage) -> None:
        seen.append(message.body)

    async with shop() as (cluster, browser, _):
        async with AsyncPushConsumer(
            "billing",
            listener,
            topics={"orders": "*"},
            namesrv=cluster.namesrv,
            world=cluster.world(),
            consume_from=ConsumeFrom.FIRST_OFFSET,
        ):
            await trio.sleep(30)
            page = await browser.get("/consumers/billing")
            assert "clustering" in (await browser.get("/consumers")).text
            assert "%RETRY%billing" in page.text
            client = page.html.partition("/stack?client=")[2].partition('"')[0]
            assert "Threads" in (await browser.get(f"/consumers/billing/stack?client={client}")).text
        assert len(seen) == 12
        await trio.sleep(30)
        look = await browser.submit("/consumers/billing", "/consumers/billing/move", topic="orders", how="time", at="1")
        assert "12 messages would be consumed again and 0 skipped" in look.text
        before = cluster.brokers["broker-a"].tables.offsets.of("billing", "orders")
        assert sum(before.values()) == 12
        done = await browser.post(
            "/consumers/billing/move", {"csrf": look.csrf, "topic": "orders", "how": "time", "at": "1", "sure": "yes"}
        )
        assert "Group billing continues in orders from there" in done.text
        assert sum(cluster.brokers["broker-a"].tables.offsets.of("billing", "orders").values()) == 0
        assert "12" in (await browser.get("/consumers/billing")).text
        done = await browser.submit(
            "/consumers/billing", "/consumers/billing/move", topic="orders", how="end", sure="yes"
        )
        assert sum(cluster.brokers["broker-a"].tables.offsets.of("billing", "orders").values()) == 12
        done = await browser.submit("/consumers/billing", "/consumers/billing/delete", confirm="billing")
        assert "Group billing is deleted" in done.text
        assert (await browser.get("/consumers/billing")).status == 404


async def test_dead_letters_are_shown_sent_again_and_exported(autojump_clock: trio.testing.MockClock) -> None:
    again: list[bytes] = []

    async def refuses(message: ReceivedMessage) -> Later:
        return Later()

    async def takes(message: ReceivedMessage) -> None:
        again.append(message.body)

    async with memory_cluster() as cluster:
        where = {"namesrv": cluster.namesrv, "world": cluster.world()}
        async with AsyncProducer("shop", **where) as producer:
            for body in (b"one", b"two"):
                await producer.send(Message("orders", body, keys=["k"]))
        async with AsyncPushConsumer(
            "billing",
            refuses,
            topics={"orders": "*"},
            consume_from=ConsumeFrom.FIRST_OFFSET,
            max_reconsume_times=1,
            **where,
        ):
            await trio.sleep(60)
        async with console(cluster) as browser:
            assert "billing 2" in (await browser.get("/dead-letters")).text
            page = await browser.get("/dead-letters/billing")
            assert "orders" in page.text
            assert "one" in page.text
            export = await browser.get("/dead-letters/billing/export")
            rows = [json.loads(line) for line in export.html.splitlines()]
            assert sorted(base64.b64decode(row["bodyBase64"]) for row in rows) == [b"one", b"two"]
            page = await browser.submit("/dead-letters/billing", "/dead-letters/billing/again", which="all", rate="1")
            assert "data-runs" in page.html
            await trio.sleep(3)
            page = await browser.get("/jobs/1")
            assert "2 dead letters are sent again" in page.text
            assert "data-runs" not in page.html
            assert "2 dead letters are sent again" in (await browser.get("/dead-letters/billing")).text
            async with AsyncPushConsumer("billing", takes, topics={"orders": "*"}, **where):
                await trio.sleep(60)
            assert sorted(again) == [b"one", b"two"]
            none = await browser.submit("/dead-letters/billing", "/dead-letters/billing/again", which="chosen")
            assert none.status == 400


async def test_message_contents_are_shown_as_text(autojump_clock: trio.testing.MockClock) -> None:
    async with memory_cluster() as cluster:
        async with AsyncProducer("shop", namesrv=cluster.namesrv, world=cluster.world()) as producer:
            await producer.send(
                Message("orders", HOSTILE.encode(), tags="<i>", keys=["<b>k</b>"], properties={"<u>p": HOSTILE})
            )
        async with console(cluster) as browser:
            page = await browser.get("/messages?topic=orders&q=" + quote("<b>k</b>"))
            for path in ("/messages?topic=orders", "/messages?q=" + quote(HOSTILE), "/topics?filter=" + quote(HOSTILE)):
                other = await browser.get(path)
                assert "<script>alert" not in other.html
                assert "<img src=x" not in other.html
    assert HOSTILE.split('"')[0] in page.text
    assert "<script>alert" not in page.html
    assert "<img src=x" not in page.html
    assert "<b>k</b>" not in page.html
    assert "<u>p" not in page.html


async def test_live_messages_come_as_events(autojump_clock: trio.testing.MockClock) -> None:
    async with shop() as (cluster, browser, _):
        told = ""

        async def look() -> None:
            nonlocal told
            told = (await browser.get("/topics/orders/tail/events?tag=new&has=live", seconds=10)).html

        async with trio.open_nursery() as nursery:
            nursery.start_soon(look)
            await trio.sleep(2)
            async with AsyncProducer("late", namesrv=cluster.namesrv, world=cluster.world()) as producer:
                await producer.send(Message("orders", b"it is live " + HOSTILE.encode(), tags="new"))
                await producer.send(Message("orders", b"another live one", tags="other"))
                await producer.send(Message("orders", b"not of interest", tags="new"))
    events = [json.loads(line[6:]) for line in told.splitlines() if line.startswith("data: ")]
    assert [event["body"] for event in events] == ["it is live " + " ".join(HOSTILE.split())]


async def test_forged_forms_change_nothing(autojump_clock: trio.testing.MockClock) -> None:
    async with shop() as (cluster, browser, _):
        fields = {"topic": "evil", "cluster": "DefaultCluster"}
        assert (await browser.post("/topics", fields)).status == 403
        page = await browser.get("/topics")
        assert (await browser.post("/topics", {**fields, "csrf": "0" * 64})).status == 403
        other = {**fields, "csrf": page.csrf}
        assert (await browser.post("/topics", other, headers={"origin": "http://evil.example"})).status == 403
        stranger = Browser(browser.app)
        await stranger.get("/topics")
        assert (await stranger.post("/topics", other)).status == 403
        assert cluster.brokers["broker-a"].tables.topics.get("evil") is None
        assert (await browser.post("/topics", other)).status == 200
        assert cluster.brokers["broker-a"].tables.topics.get("evil") is not None


async def test_a_rebound_host_name_is_refused(autojump_clock: trio.testing.MockClock) -> None:
    async with shop() as (_, browser, _):
        browser.host = "evil.example:8088"
        page = await browser.get("/topics")
        assert page.status == 400
        assert "orders" not in page.text


async def test_login_roles_and_guessing(autojump_clock: trio.testing.MockClock, tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    async with shop(token="let me in", viewer_token="to look", audit_file=str(audit)) as (_, browser, _):
        page = await browser.get("/topics")
        assert "Token" in page.text
        assert "orders" not in page.text
        assert (await browser.post("/login", {"csrf": page.csrf, "token": "wrong"})).status == 401
        page = await browser.post("/login", {"csrf": page.csrf, "token": "to look", "then": "//evil.example"})
        assert "Dashboard" in page.text
        assert "Create a topic" not in (await browser.get("/topics")).text
        page = await browser.submit("/topics", "/topics", topic="no", cluster="DefaultCluster")
        assert page.status == 403
        await browser.submit("/topics", "/logout")
        assert "Token" in (await browser.get("/")).text
        planted = browser.cookies["rocketlet_id"]
        page = await browser.submit("/login", "/login", token="let me in")
        assert browser.cookies["rocketlet_id"] != planted, "an id from before the log-in is worth nothing"
        page = await browser.submit("/topics", "/topics", topic="yes", cluster="DefaultCluster")
        assert "Topic yes is there" in page.text
        guesser = Browser(browser.app)
        page = await guesser.get("/login")
        for number in range(25):
            await guesser.post("/login", {"csrf": page.csrf, "token": str(number)})
        assert (await guesser.post("/login", {"csrf": page.csrf, "token": "let me in"})).status == 401
    lines = [json.loads(line) for line in audit.read_text("utf-8").splitlines()]
    changes = [(line["role"], line["action"], line["outcome"]) for line in lines if line["action"] != "login"]
    assert changes == [("viewer", "updateTopic", "forbidden"), ("operator", "updateTopic", "done")]
    assert lines[-1]["who"] == "192.0.2.7"
    assert "let me in" not in audit.read_text("utf-8")


async def test_sessions_and_wrong_guesses_do_not_age_by_the_wall_clock(autojump_clock: trio.testing.MockClock) -> None:
    """Set back by a day, it refused log-ins for a day after twenty wrong ones; set ahead, it ended all sessions."""
    day_ms, wall = 86_400_000, [1_700_000_000_000]
    async with memory_cluster() as cluster:
        config = ConsoleConfig(namesrv=cluster.namesrv, token="let me in")
        async with console_app.connected(config, cluster.network) as calls, trio.open_nursery() as nursery:
            app = console_app.create_app(config, calls, nursery, lambda: wall[0], cluster.world())
            browser, guesser = Browser(app), Browser(app)
            await browser.submit("/login", "/login", token="let me in")
            wall[0] += day_ms
            assert "Token" not in (await browser.get("/")).text
            page = await guesser.get("/login")
            for number in range(25):
                await guesser.post("/login", {"csrf": page.csrf, "token": str(number)})
            wall[0] -= day_ms
            await trio.sleep(61)
            assert (await guesser.post("/login", {"csrf": page.csrf, "token": "let me in"})).status == 200
            nursery.cancel_scope.cancel()


async def test_read_only_mode_applies_to_everybody(autojump_clock: trio.testing.MockClock) -> None:
    async with shop(read_only=True) as (cluster, browser, _):
        page = await browser.submit("/", "/topics", topic="no", cluster="DefaultCluster")
        assert page.status == 403
        assert cluster.brokers["broker-a"].tables.topics.get("no") is None
        assert "read only" in page.text


async def test_settings_are_shown_without_secrets_and_changed(autojump_clock: trio.testing.MockClock) -> None:
    async with shop() as (cluster, browser, _):
        page = await browser.submit(
            "/cluster/broker-a/0", "/cluster/broker-a/0/set", key="autoCreateTopicEnable", value="false"
        )
        assert "autoCreateTopicEnable is false now" in page.text
        assert cluster.brokers["broker-a"].settings.now.auto_create_topic_enable is False
        page = await browser.submit("/cluster/broker-a/0", "/cluster/broker-a/0/set", key="listenPort", value="1")
        assert 'role="alert"' in page.html
        page = await browser.submit("/cluster/broker-a/0", "/cluster/broker-a/0/writing", allow="no")
        assert "Clients leave broker-a" in page.text


async def test_samples_are_drawn_as_a_chart(autojump_clock: trio.testing.MockClock) -> None:
    async with (
        shop() as (cluster, browser, _),
        AsyncProducer("more", namesrv=cluster.namesrv, world=cluster.world()) as producer,
    ):
        shared = browser.app.state.console
        sampler = Sampler(shared)
        for minute in range(3):
            shared.history.add(1_790_000_000 + minute * 60, await sampler.sample())
            for _ in range(6):
                await producer.send(Message("orders", b"another"))
                await trio.sleep(10)
        page = await browser.get("/")
        assert page.html.count('<svg class="chart"') == 2
        assert '<svg class="chart"' in (await browser.get("/topics/orders")).html


async def test_an_unreachable_cluster_is_reported(autojump_clock: trio.testing.MockClock) -> None:
    async with memory_cluster() as cluster, console(cluster) as browser:
        await cluster.stop("broker-a")
        page = await browser.get("/ops")
        assert page.status == 200
        browser.app.state.console.cluster.forget()
        page = await browser.get("/topics/nowhere")
        assert page.status in (404, 502)


async def test_name_servers_can_be_changed_at_run_time(autojump_clock: trio.testing.MockClock) -> None:
    async with shop() as (cluster, browser, _):
        for wrong in ("", "nonsense", ";".join(f"10.0.0.{n}:9876" for n in range(30))):
            assert (await browser.submit("/ops", "/ops/namesrvs", namesrvs=wrong)).status == 400
        page = await browser.submit("/ops", "/ops/namesrvs", namesrvs="10.9.9.9:9876")
        assert 'role="alert"' in page.html, "one that does not answer is not taken"
        page = await browser.submit("/ops", "/ops/namesrvs", namesrvs=f" {cluster.namesrv} ")
        assert f"The console asks {cluster.namesrv} now" in page.text


async def test_settings_show_whether_they_were_set(autojump_clock: trio.testing.MockClock) -> None:
    async with shop() as (_, browser, _):
        page = await browser.get("/cluster/broker-a/0?only=set")
        assert "traceTopicEnable" in page.text
        assert "set , default false" in page.text
        assert "flushDiskType" not in page.text


async def test_a_topic_shows_its_producers_and_size(autojump_clock: trio.testing.MockClock) -> None:
    async with shop() as (_, browser, _):
        await trio.sleep(35)
        page = await browser.get("/topics/orders")
        assert "age of the oldest" in page.text
        senders = page.text.partition("Who sent the newest messages")[2].partition("Route")[0]
        assert "12 shop 10." in senders


async def test_jobs_can_be_stopped_and_are_limited(autojump_clock: trio.testing.MockClock) -> None:
    async with trio.open_nursery() as nursery:
        jobs, ended = Jobs(nursery), []

        async def endless(job: Job) -> str:
            job.done = 7
            await trio.sleep_forever()
            return "never"

        async def fails(job: Job) -> str:
            raise ValueError("not today")

        failing = jobs.begin("x", "/x", fails, ended.append)
        await trio.testing.wait_all_tasks_blocked()
        assert (failing.outcome, failing.bad) == ("ValueError: not today", True)
        several = [jobs.begin("x", "/x", endless, ended.append) for _ in range(MAX_RUNNING)]
        with pytest.raises(TooManyJobs):
            jobs.begin("x", "/x", endless, ended.append)
        await trio.testing.wait_all_tasks_blocked()
        for job in several:
            job.scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert [job.outcome for job in ended[1:]] == ["stopped after 7"] * MAX_RUNNING
        for _ in range(2 * MAX_KEPT):
            jobs.begin("y", "/y", fails, ended.append)
            await trio.testing.wait_all_tasks_blocked()
        assert len(jobs.of("/y")) == MAX_KEPT
        assert jobs.get(failing.id) is None


async def test_without_an_audit_log_nothing_is_changed(autojump_clock: trio.testing.MockClock) -> None:
    async with shop(audit_file="/nowhere/at/all") as (cluster, browser, _):
        page = await browser.submit("/topics", "/topics", topic="no", cluster="DefaultCluster")
        assert page.status == 500
        assert "so nothing is changed" in page.text
        assert cluster.brokers["broker-a"].tables.topics.get("no") is None


async def test_forms_before_login_are_limited_in_size(autojump_clock: trio.testing.MockClock) -> None:
    async with shop(token="let me in") as (_, browser, _):
        assert (await browser.post("/login", {"csrf": "", "token": "x" * 20_000})).status == 413


async def test_leaving_a_live_page_frees_its_slot(autojump_clock: trio.testing.MockClock) -> None:
    async with shop() as (_, browser, _):
        await browser.get("/topics/orders/tail/events", seconds=3)
        assert browser.app.state.console.tails == 0
        browser.app.state.console.tails = MAX_TAILS
        assert (await browser.get("/topics/orders/tail/events", seconds=3)).status == 503


async def test_a_slave_is_promoted_to_master(autojump_clock: trio.testing.MockClock) -> None:
    async with pair() as them:
        assert (await them.master.send("T", b"hi")).code == 0
        await them.caught_up()
        config = ConsoleConfig(namesrv=NAMESRV)
        async with console_app.connected(config, them.network) as calls, trio.open_nursery() as nursery:
            browser = Browser(console_app.create_app(config, calls, nursery, them.clock))
            master = await browser.get("/cluster/broker-a/0")
            assert "1 slaves in sync" in master.text
            slave = await browser.get("/cluster/broker-a/1")
            assert "Follows" in slave.text
            assert "Make it the master" in slave.text
            page = await browser.submit("/cluster/broker-a/1", "/cluster/broker-a/1/promote")
            assert "is the master of broker-a now" in page.text
            await trio.sleep(40)
            browser.app.state.console.cluster.forget()
            assert (await browser.get("/cluster")).text.count("broker-a") >= 2
            nursery.cancel_scope.cancel()


ACCOUNTS = """\
accounts:
- accessKey: billing1
  secretKey: correct-horse
  defaultTopicPerm: DENY
  topicPerms:
  - orders=PUB|SUB
- accessKey: operator
  secretKey: battery-staple
  admin: true
"""


async def test_accounts_are_shown_without_secrets_and_with_their_rights(
    autojump_clock: trio.testing.MockClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RealFolder, "blocking", False)  # virtual time would jump while a thread reads
    (tmp_path / "plain_acl.yml").write_text(ACCOUNTS)
    async with shop(accounts=str(tmp_path)) as (_, browser, _):
        page = await browser.get("/access")
        assert "billing1" in page.text
        rights = await browser.get("/access/billing1")
        assert "orders yes yes it is named" in rights.text
        groups = await browser.get("/access/billing1?of=groups")
        assert "Groups that are not named DENY" in groups.text
        assert "orders yes yes it is an administrator" in (await browser.get("/access/operator")).text
        for one in (page, rights, groups):
            assert "correct-horse" not in one.html
            assert "battery-staple" not in one.html
        assert (await browser.get("/access/nobody")).status == 404
        (tmp_path / "plain_acl.yml").write_text("accounts: [")
        assert "plain_acl.yml" in (await browser.get("/access")).text


async def test_account_changes_reach_brokers_and_the_audit_log_hides_secrets(
    autojump_clock: trio.testing.MockClock, tmp_path: Path
) -> None:
    audit = tmp_path / "audit"
    async with shop(audit_file=str(audit)) as (_, browser, _):
        form = {"cluster": "DefaultCluster", "account": "billing1", "secret": "correct-horse", "topics": "orders=PUB"}
        page = await browser.submit("/access", "/access", **form)
        assert 'role="alert"' in page.html, "the broker has no access control"
        assert (await browser.submit("/access", "/access/delete", account="billing1", confirm="other")).status == 400
    line = json.loads(audit.read_text("utf-8").splitlines()[0])
    assert (line["action"], line["account"], line["secret"]) == ("updateAclConfig", "billing1", True)
    assert "correct-horse" not in audit.read_text("utf-8")


@pytest.mark.slow
async def test_electing_replicas_are_shown_and_switched(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with replicas(3) as them:
        first = await them.all_in_sync()
        assert (await first.send("T", b"hi")).code == 0
        config = ConsoleConfig(namesrv=NAMESRV)
        async with console_app.connected(config, them.network) as calls, trio.open_nursery() as nursery:
            browser = Browser(console_app.create_app(config, calls, nursery, them.clock))
            page = await browser.get("/cluster/broker-a/0")
            assert "State leading" in page.text
            assert "Have another replica lead" in page.text
            assert "3 in sync" in (await browser.get("/cluster")).text
            page = await browser.submit("/cluster/broker-a/0", "/cluster/broker-a/0/switch", replica="")
            assert "leads now, in epoch" in page.text
            assert await them.leader() is not first
            await trio.sleep(40)
            browser.app.state.console.cluster.forget()
            page = await browser.submit("/cluster/broker-a/0", "/cluster/broker-a/0/in-sync", confirm="other")
            assert page.status == 400
            nursery.cancel_scope.cancel()
