"""The console as users see it: one journey per page in a real browser, with our stack and with a Java one.

Each journey is made by mouse in English and by keyboard in Chinese; BROWSER_MATRIX=all makes it in all four ways.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the extra console is not installed")

from rocketlet.client import ConsumeFrom, Later, Message, Producer, PushConsumer
from rocketlet.common.message import ReceivedMessage
from rocketlet.tools.local_settings import LocalSettings
from rocketlet.tools.thread_stack import ThreadStack
from tests.support import java_programs
from tests.support.chromium import Chromium, Missing, Visitor
from tests.support.java_programs import JavaPrograms
from tests.support.programs import program

pytestmark = [pytest.mark.process, pytest.mark.slow]

HOSTILE = '<script>window.bad=1</script><img src=x onerror="window.bad=2">\'&'
ACCOUNTS = """\
accounts:
- accessKey: billing1
  secretKey: correct-horse
  topicPerms:
  - orders=PUB
"""
WAYS = [("en", False), ("zh", True)]
if os.environ.get("BROWSER_MATRIX") == "all":
    WAYS = list(itertools.product(("en", "zh"), (False, True)))
PAGES = [
    "/", "/ops", "/cluster", "/cluster/broker-a/0", "/topics", "/topics?kind=all", "/topics/orders",
    "/topics/orders/tail", "/consumers", "/consumers/billing", "/producers", "/messages", "/messages?topic=orders",
    "/messages?q=order-3", "/messages?q=hostile", "/dead-letters", "/dead-letters/ledger", "/traces",
    "/traces?q=order-3", "/access", "/access/billing1", "/topics/nowhere",
]  # fmt: skip


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    try:
        with Chromium.started() as running:
            yield running
    except Missing as missing:
        pytest.skip(str(missing))


class Shop:
    """Topics with messages, a group that consumes, one that fails, and a console."""

    def __init__(self, namesrv: str, held: ExitStack) -> None:
        self.namesrv = namesrv
        self.producer = held.enter_context(Producer("shop", namesrv=namesrv, trace=True, send_timeout=30.0))
        for number in range(20):
            self.send({"order": number, "to": "北京"}, f"order-{number}")
        hostile = Message("orders", HOSTILE.encode(), tags="<i>tag</i>", keys=["hostile", "<b>key</b>"])
        hostile.properties["<u>name</u>"] = HOSTILE
        self.producer.send(hostile)
        for number in range(3):
            self.producer.send(Message("refunds", f"refund {number}".encode(), keys=[f"refund-{number}"]))
        self.taken = threading.Semaphore(0)
        self.refused = threading.Semaphore(0)
        for group, listener, topic in (("billing", self._take, "orders"), ("ledger", self._refuse, "refunds")):
            held.enter_context(
                PushConsumer(
                    group, listener, topics={topic: "*"}, namesrv=namesrv, trace=True, max_reconsume_times=0,
                    consume_from=ConsumeFrom.FIRST_OFFSET,
                )
            )  # fmt: skip
        for _ in range(21):
            assert self.taken.acquire(timeout=300)
        for _ in range(3):
            assert self.refused.acquire(timeout=300)
        accounts = Path(held.enter_context(tempfile.TemporaryDirectory()))
        (accounts / "plain_acl.yml").write_text(ACCOUNTS)
        words = ["-n", namesrv, "--port", "0", "--accounts", str(accounts), "--print-addr"]
        console = held.enter_context(program("console", *words))
        self.console = console.line_with("http://")

    def send(self, body: object, key: str, tags: str = "new") -> None:
        text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
        self.producer.send(Message("orders", text.encode(), tags=tags, keys=[key]))

    def _take(self, message: ReceivedMessage) -> None:
        self.taken.release()

    def _refuse(self, message: ReceivedMessage) -> Later:
        self.refused.release()
        return Later()


@contextmanager
def ours() -> Iterator[str]:
    settings = LocalSettings(namesrv_port=0, broker_port=0, settings={"traceTopicEnable": "true"})
    with ThreadStack(settings) as stack:
        yield stack.namesrv


@contextmanager
def javas(folder: Path) -> Iterator[str]:
    try:
        programs = JavaPrograms.prepare()
    except java_programs.Missing as missing:
        pytest.skip(str(missing))
    with (
        programs.name_server(folder / "namesrv") as namesrv,
        programs.broker(folder / "broker", namesrv, traceTopicEnable="true", brokerName="broker-a"),
    ):
        yield namesrv


@pytest.fixture(scope="module", params=["ours", pytest.param("java", marks=pytest.mark.interop)])
def shop(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, chromium: Chromium
) -> Iterator[Shop]:
    stack = ours() if request.param == "ours" else javas(tmp_path_factory.mktemp("java"))
    with stack as namesrv, ExitStack() as held:
        yield Shop(namesrv, held)


@pytest.fixture(params=WAYS, ids=lambda way: f"{way[0]}-{'keyboard' if way[1] else 'mouse'}")
def visitor(request: pytest.FixtureRequest, chromium: Chromium, shop: Shop) -> Iterator[Visitor]:
    language, by_keyboard = request.param
    with chromium.visitor(shop.console, language, by_keyboard=by_keyboard) as one:
        one.open("/")
        yield one


# ---- one journey per page


def test_dashboard(visitor: Visitor) -> None:
    # A broker that has just started on a busy machine may be slow to answer, which is rightly reported as trouble.
    visitor.reads_in_time("Nothing that brokers and name servers know of.")
    visitor.press(visitor.page.locator("main .tiles a").first)
    visitor.page.get_by_role("heading", name=visitor.t("Consumers"), exact=True).wait_for()
    visitor.sees("billing")


def test_cluster(visitor: Visitor) -> None:
    visitor.go("Cluster", "c")
    visitor.press(visitor.link("broker-a"))
    visitor.sees("commitLogMaxOffset")
    visitor.write(visitor.page.locator("#filter"), "deleteWhen")
    visitor.press(visitor.button("Filter"))
    field = visitor.page.get_by_label("deleteWhen", exact=True)
    before = field.input_value()
    for value in ("05", before):
        field = visitor.page.get_by_label("deleteWhen", exact=True)
        visitor.write(field, value)
        visitor.press(visitor.page.locator("form", has=field).get_by_role("button"))
        visitor.reads("{key} is {value} now", key="deleteWhen", value=value)


def test_topics(visitor: Visitor) -> None:
    name = f"fresh-{visitor.language}-{'keyboard' if visitor.by_keyboard else 'mouse'}"
    visitor.go("Topics", "t")
    visitor.sees("orders")
    visitor.press(visitor.page.locator("summary", has_text=visitor.t("Create a topic")))
    visitor.write(visitor.page.locator("#new"), name)
    visitor.press(visitor.button("Create"))
    visitor.reads("Topic {name} is there", name=name)
    visitor.press(visitor.page.locator("summary", has_text=visitor.t("Send a message")))
    visitor.write(visitor.page.locator("#body"), HOSTILE)
    visitor.write(visitor.page.locator("#tags"), "A")
    visitor.press(visitor.button("Send"))
    visitor.sees("SEND_OK")
    visitor.press(visitor.link(visitor.t("Look at its messages")))
    visitor.sees(HOSTILE)
    visitor.open(f"/topics/{name}")
    visitor.press(visitor.page.locator("summary", has_text=visitor.t("Delete the topic")))
    visitor.write(visitor.page.locator("input[name=confirm]"), name)
    visitor.press(visitor.button("Delete with all messages"))
    visitor.reads("Topic {name} is deleted", name=name)


def test_live_messages(visitor: Visitor, shop: Shop) -> None:
    visitor.go("Topics", "t")
    visitor.press(visitor.link("orders"))
    with visitor.page.expect_request("**/tail/events?*"):
        visitor.press(visitor.link(visitor.t("Watch messages as they come")))
    row = visitor.page.locator("#tail tr").filter(has_text="live-1")
    deadline = time.monotonic() + 120
    while not row.count() and time.monotonic() < deadline:
        shop.send(f"live-1 {HOSTILE}", "live-key")
        visitor.page.wait_for_timeout(500)
    assert HOSTILE in row.first.inner_text()
    visitor.press(visitor.button("Pause"))
    assert visitor.page.locator("#pause").get_attribute("aria-pressed") == "true"
    visitor.press(row.first.get_by_role("link"))
    visitor.sees(HOSTILE)


def test_consumers(visitor: Visitor) -> None:
    visitor.go("Consumers", "g")
    visitor.write(visitor.page.locator("#filter"), "bill")
    visitor.press(visitor.button("Filter"))
    visitor.page.wait_for_url("**filter=bill*")
    assert visitor.page.get_by_text("ledger").count() == 0
    visitor.press(visitor.link("billing"))
    visitor.sees("%RETRY%billing")
    visitor.press(visitor.link(visitor.t("Threads")))
    visitor.sees("PROP_CLIENT_VERSION")
    visitor.page.go_back()
    visitor.press(visitor.page.locator("summary", has_text=visitor.t("Move the group in this topic")).first)
    visitor.press(visitor.button("Skip everything not consumed …"))
    visitor.reads("What that would do")
    visitor.press(visitor.button("Do it"))
    visitor.reads("Group {name} continues in {topic} from there", name="billing", topic="orders")


def test_one_group(visitor: Visitor) -> None:
    name = f"fresh-{visitor.language}-{'keyboard' if visitor.by_keyboard else 'mouse'}"
    visitor.go("Consumers", "g")
    visitor.press(visitor.page.locator("summary", has_text=visitor.t("Create a group")))
    visitor.write(visitor.page.locator("#new"), name)
    visitor.press(visitor.button("Create"))
    visitor.reads("Group {name} is there", name=name)
    visitor.press(visitor.page.locator("summary", has_text=visitor.t("Change the group")))
    visitor.write(visitor.page.locator("#retries"), "3")
    visitor.press(visitor.button("Save"))
    visitor.reads("Group {name} is there", name=name)
    assert visitor.page.locator("#retries").input_value() == "3"
    visitor.press(visitor.page.locator("summary", has_text=visitor.t("Delete the group")))
    visitor.write(visitor.page.locator("input[name=confirm]"), name)
    visitor.press(visitor.button("Delete with its positions"))
    visitor.reads("Group {name} is deleted", name=name)


def test_producers(visitor: Visitor) -> None:
    visitor.go("Producers", "p")
    visitor.sees("shop")
    visitor.write(visitor.page.locator("#filter"), "nobody of that name")
    visitor.press(visitor.button("Filter"))
    visitor.reads("Nobody produces now, or the brokers are older than 4.9.4 and do not tell.")
    assert visitor.page.get_by_role("cell", name="shop", exact=True).count() == 0


def test_messages(visitor: Visitor) -> None:
    if visitor.by_keyboard:
        visitor.page.keyboard.press("/")
        visitor.page.keyboard.insert_text("order-3")
        visitor.page.keyboard.press("Enter")
    else:
        visitor.page.locator("#find").fill("order-3")
        visitor.page.locator("#find").press("Enter")
    visitor.sees('"order": 3')
    message_id = visitor.page.locator("h1").inner_text()
    visitor.press(visitor.link(visitor.t("hex")))
    visitor.sees("00000000  7b 22")
    with visitor.page.expect_download() as download:
        visitor.press(visitor.link(visitor.t("Download the body")))
    assert json.loads(Path(download.value.path()).read_bytes()) == {"order": 3, "to": "北京"}
    if visitor.page.get_by_role("button", name=visitor.t("Consume now")).count():
        visitor.press(visitor.button("Consume now"))
        visitor.sees("CR_SUCCESS")
    visitor.go("Messages", "m")
    visitor.write(visitor.page.locator("#q"), message_id)
    visitor.press(visitor.button("Find"))
    visitor.sees(message_id)
    visitor.go("Messages", "m")
    visitor.write(visitor.page.locator("#topic"), "orders")
    visitor.write(visitor.page.locator("#has"), "window.bad")
    visitor.press(visitor.button("Find"))
    visitor.sees("<i>tag</i>")
    assert visitor.page.get_by_text("order-3", exact=True).count() == 0
    visitor.press(visitor.page.locator("tbody tr").filter(has_text="<b>key</b>").get_by_role("link"))
    visitor.sees("<u>name</u>")
    assert visitor.page.evaluate("window.bad") is None
    assert visitor.page.locator("main img, main script, main b:has-text('key')").count() == 0


def test_dead_letters(visitor: Visitor) -> None:
    visitor.go("Dead letters", "l")
    visitor.press(visitor.link("ledger"))
    visitor.sees("refund ")
    visitor.press(visitor.page.locator("input[name=one]").first)
    visitor.press(visitor.button("The chosen ones"))
    visitor.reads("{count} dead letters are sent again", count=1)
    visitor.press(visitor.link(visitor.t("Back")))
    with visitor.page.expect_download() as download:
        visitor.press(visitor.link(visitor.t("Export as JSON lines")))
    lines = Path(download.value.path()).read_text("utf-8").splitlines()
    assert {json.loads(line)["body"] for line in lines} == {"refund 0", "refund 1", "refund 2"}


def test_traces(visitor: Visitor) -> None:
    deadline = time.monotonic() + 120
    while True:
        visitor.go("Traces", "r")
        visitor.write(visitor.page.locator("#q"), "order-5")
        visitor.press(visitor.button("Find"))
        visitor.page.locator("main .flash, main svg.trace").first.wait_for()
        if visitor.page.locator("svg.trace rect").count() >= 2 or time.monotonic() > deadline:
            break  # clients send traces every few seconds
    assert visitor.page.locator("svg.trace rect").count() >= 2
    visitor.reads("Pub")
    visitor.write(visitor.page.locator("#q"), "of nobody")
    visitor.press(visitor.button("Find"))
    visitor.reads("No trace was recorded of {text}: clients record them with trace=True.", text="of nobody")


def test_access(visitor: Visitor) -> None:
    visitor.go("Access", "a")
    visitor.sees("broker-a")
    visitor.press(visitor.link("billing1"))
    visitor.write(visitor.page.locator("#filter"), "orders")
    visitor.press(visitor.button("Filter"))
    visitor.page.wait_for_url("**filter=orders*")
    row = visitor.page.locator("tbody tr", has_text="orders").last
    assert row.locator(".tag").all_inner_texts() == [visitor.t("yes"), visitor.t("no")]
    assert "correct-horse" not in visitor.page.content()


def test_operations(visitor: Visitor, shop: Shop) -> None:
    visitor.go("Operations", "o")
    visitor.sees(shop.namesrv)
    visitor.press(visitor.page.locator("summary").filter(has_text=shop.namesrv))
    visitor.sees("listenPort")
    visitor.press(visitor.button("Ask them"))
    visitor.reads("The console asks {names} now", names=shop.namesrv)


def test_language_theme_and_keys(visitor: Visitor) -> None:
    other = {"en": "中文", "zh": "English"}[visitor.language]
    visitor.press(visitor.page.get_by_role("button", name=other, exact=True))
    visitor.page.get_by_role("button", name={"en": "English", "zh": "中文"}[visitor.language], exact=True).wait_for()
    light = visitor.page.evaluate("getComputedStyle(document.body).backgroundColor")
    visitor.press(visitor.page.locator("button[name=theme]"))
    visitor.page.locator("html[data-theme=dark]").wait_for()
    assert visitor.page.evaluate("getComputedStyle(document.body).backgroundColor") != light
    visitor.page.locator("h1").first.click()
    visitor.page.keyboard.press("?")
    visitor.page.locator("dialog[open]").wait_for()
    visitor.page.keyboard.press("Escape")
    visitor.page.locator("dialog[open]").wait_for(state="detached")


# ---- every page


@pytest.mark.parametrize(
    ("width", "language", "scheme"), [(1280, "en", "light"), (390, "zh", "dark")], ids=["wide", "narrow"]
)
def test_every_page_fits_and_is_accessible(
    chromium: Chromium, shop: Shop, width: int, language: str, scheme: str
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="the extra browser is not installed")
    grave = []
    with chromium.visitor(shop.console, language, width=width, color_scheme=scheme) as visitor:
        for path in PAGES:
            visitor.open(path)
            wide = visitor.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, f"{path} is {wide} pixels wider than {width}"
            assert visitor.page.evaluate("window.bad") is None
            for found in axe.Axe().run(visitor.page).response["violations"]:
                grave.append((path, found["id"], found["impact"], found["nodes"][0]["html"][:200]))
    assert grave == []


def test_without_a_token_nothing_is_shown(chromium: Chromium, shop: Shop) -> None:
    with (
        program("console", "-n", shop.namesrv, "--port", "0", "--token", "let me in", "--viewer-token", "look")
        as running,
    ):  # fmt: skip
        found = re.search(r"http://\S+[^\s,]", running.line_with("http://"))
        assert found is not None
        with chromium.visitor(found[0]) as visitor:
            visitor.open("/topics/orders")
            visitor.write(visitor.page.locator("#token"), "guess")
            visitor.press(visitor.button("Log in"))
            visitor.sees("That is not the token")
            visitor.write(visitor.page.locator("#token"), "look")
            visitor.press(visitor.button("Log in"))
            visitor.sees("messages kept")
            assert visitor.page.get_by_text("Delete the topic").count() == 0
            visitor.press(visitor.button("Log out"))
            visitor.page.locator("#token").wait_for()
            visitor.write(visitor.page.locator("#token"), "let me in")
            visitor.press(visitor.button("Log in"))
            visitor.open("/topics/orders")
            visitor.sees("Delete the topic")
