"""The master of replicas that elect it by a real etcd, switched in a real browser while messages are sent."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the extra console is not installed")

from rocketlet.client import Message, Producer, PullConsumer
from tests.support.chromium import TIMEOUT_MS, Chromium, Missing, Visitor
from tests.support.etcd import etcd_cluster, needs_etcd
from tests.support.programs import broker, name_server, program

pytestmark = [pytest.mark.process, pytest.mark.slow, needs_etcd]

REPLICAS = 3


@pytest.fixture
def chromium() -> Iterator[Chromium]:
    try:
        with Chromium.started() as running:
            yield running
    except Missing as missing:
        pytest.skip(str(missing))


class Cluster:
    """etcd, a name server, three brokers of one name and a console, each a process."""

    def __init__(self, folder: Path, held: ExitStack) -> None:
        etcd = held.enter_context(etcd_cluster(folder))
        _, self.namesrv = held.enter_context(name_server(folder))
        self.brokers = {}
        for number in range(1, REPLICAS + 1):
            running, address = held.enter_context(
                broker(
                    folder / f"broker-{number}", namesrvAddr=self.namesrv, failoverEnable="true", replicaId=number,
                    etcdEndpoints=",".join(etcd.endpoints), minInSyncReplicas=2,
                )
            )  # fmt: skip
            self.brokers[address] = running
        words = ["-n", self.namesrv, "--port", "0", "--print-addr", "--audit", str(folder / "audit.log")]
        self.console = held.enter_context(program("console", *words)).line_with("http://")
        self.audit = folder / "audit.log"


def lines(visitor: Visitor) -> list[str]:
    return visitor.page.locator("tbody tr").all_inner_texts()


def wait_until_all_are_in_sync(visitor: Visitor) -> None:
    """Reloads repeatedly, as a person would."""
    wanted = f"{REPLICAS} {visitor.t('in sync')}"
    for _ in range(TIMEOUT_MS // 250):
        visitor.open("/cluster")
        if sum(wanted in line for line in lines(visitor)) == REPLICAS:
            return
        visitor.page.wait_for_timeout(250)
    raise AssertionError(f"not all replicas are in sync: {lines(visitor)}")


def master_in(visitor: Visitor) -> tuple[str, str, int]:
    """Role, address and epoch in the master's row, of which there is exactly one."""
    (line,) = [one for one in lines(visitor) if f"{visitor.t('master')} 0" in one]
    address = re.search(r"127\.0\.0\.1:\d+", line)
    epoch = re.search(rf"{visitor.t('Epoch')} (\d+)", line)
    assert address is not None
    assert epoch is not None, line
    return line, address[0], int(epoch[1])


def switched(visitor: Visitor, choose: bool) -> tuple[str, str]:
    """Press the switch on the master's page. Returns the previous leader and the new one shown on the cluster's
    page."""
    wait_until_all_are_in_sync(visitor)
    line, before, epoch = master_in(visitor)
    assert "leading" in line
    row = visitor.page.locator("tbody tr").filter(has_text=before)
    visitor.press(row.get_by_role("link"))
    visitor.page.locator("h1", has_text=f"{visitor.t('master')} 0").wait_for()
    visitor.sees("leading")
    wanted = ""
    if choose:
        field = visitor.page.locator("select[name=replica]")
        if visitor.by_keyboard:
            visitor.reach(field)
            visitor.page.keyboard.press("ArrowDown")
        else:
            field.select_option(index=1)
        wanted = field.input_value()
        assert wanted
    visitor.press(visitor.button("Switch"))
    visitor.page.wait_for_url("**/cluster")
    message = visitor.page.locator("main .flash").inner_text()
    _, after, later = master_in(visitor)  # at once, on the page that says so
    assert message == visitor.t("{address} leads now, in epoch {epoch}", address=after, epoch=later)
    assert after != before
    assert later > epoch
    visitor.press(visitor.page.locator("tbody tr").filter(has_text=after).get_by_role("link"))
    visitor.page.locator("h1", has_text=f"{visitor.t('master')} 0").wait_for()
    visitor.sees("leading")
    if wanted:
        visitor.sees(wanted)
        assert wanted in visitor.page.locator("tr", has_text=visitor.t("This replica")).inner_text()
    return before, after


@pytest.mark.parametrize(("language", "by_keyboard", "choose"), [("en", False, False), ("zh", True, True)])
def test_a_master_is_switched_by_hand(
    tmp_path: Path, chromium: Chromium, language: str, by_keyboard: bool, choose: bool
) -> None:
    with ExitStack() as held:
        cluster = Cluster(tmp_path, held)
        with (
            chromium.visitor(cluster.console, language, by_keyboard=by_keyboard) as visitor,
            Producer("shop", namesrv=cluster.namesrv, send_timeout=20.0) as producer,
        ):
            visitor.open("/")
            wait_until_all_are_in_sync(visitor)
            for number in range(10):
                assert producer.send(Message("orders", b"%d" % number)).status.name == "SEND_OK"
            before, after = switched(visitor, choose)
            assert {before, after} <= cluster.brokers.keys()
            for number in range(10, 20):
                assert producer.send(Message("orders", b"%d" % number)).status.name == "SEND_OK"
            wait_until_all_are_in_sync(visitor)
            assert master_in(visitor)[1] == after
        with PullConsumer("all", namesrv=cluster.namesrv) as consumer:
            found = [one.body for queue in consumer.queues("orders") for one in consumer.pull(queue, 0).messages]
        assert sorted(found) == sorted(b"%d" % number for number in range(20))
        assert "switchMaster" in cluster.audit.read_text()
