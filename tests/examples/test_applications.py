"""A web service and the tests of an application, run as by their users."""

from __future__ import annotations

import pytest

from rocketlet.tools.thread_stack import ThreadStack
from tests.support.examples import ROOT, output


def test_the_web_service(rocketmq_session: ThreadStack, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("flask", reason="flask is not installed; the dev extra has it")
    monkeypatch.setenv("NAMESRV_ADDR", rocketmq_session.namesrv)
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "web"))
    import app  # type: ignore[import-not-found]

    client = app.app.test_client()
    taken = client.post("/orders", json={"item": "anvil"})
    assert taken.status_code == 202
    order = client.get(f"/orders/{taken.json['id']}")
    assert (order.status_code, order.json["item"]) == (200, "anvil")
    assert client.get("/orders/none").status_code == 404
    app.producer().shutdown()


@pytest.mark.process
def test_the_tests_of_an_application(rocketmq_session: ThreadStack) -> None:
    lines = output(rocketmq_session.namesrv, "-m", "pytest", "-q", "-p", "no:cacheprovider", "examples/testing")
    assert "3 passed" in lines[-1]
