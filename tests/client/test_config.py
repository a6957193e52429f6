from __future__ import annotations

import pytest

from rocketlet.client.config import ProducerConfig, PullConfig, PushConfig, configured, name_servers
from rocketlet.client.errors import InvalidUse


def test_arguments_override_a_config_which_overrides_the_environment() -> None:
    config = ProducerConfig(retries=7, send_timeout=9.0)
    chosen = configured(ProducerConfig, config, None, {"retries": 1}, {"NAMESRV_ADDR": "env:9876"})
    assert (chosen.retries, chosen.send_timeout, chosen.namesrv) == (1, 9.0, "env:9876")
    assert configured(ProducerConfig, None, "given:1", {}, {"NAMESRV_ADDR": "env:9876"}).namesrv == "given:1"
    assert configured(PushConfig, None, None, {}, {}).namesrv == "127.0.0.1:9876"


def test_an_unknown_setting_names_similar_ones() -> None:
    with pytest.raises(InvalidUse, match=r"no setting send_timeut; did you mean send_timeout"):
        configured(ProducerConfig, None, None, {"send_timeut": 1}, {})


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("a:1", ("a:1",)),
        ("a:1;b:2", ("a:1", "b:2")),
        (" a:1 ; b:2;", ("a:1", "b:2")),
        ("http://a:1", ("a:1",)),
        (("a:1", "b:2"), ("a:1", "b:2")),
    ],
)
def test_name_servers_are_separated(text: str | tuple[str, ...], addresses: tuple[str, ...]) -> None:
    assert name_servers(text) == addresses


@pytest.mark.parametrize("text", ["", ";", "a", "a:b", ":9876", "a:0", "a:65536", "a:" + "9" * 5000])
def test_an_invalid_name_server_is_refused(text: str) -> None:
    with pytest.raises(InvalidUse):
        name_servers(text)


def test_defaults_are_rocketmqs() -> None:
    producer, push, pull = ProducerConfig(), PushConfig(), PullConfig()
    assert (producer.send_timeout, producer.retries, producer.compress_over) == (3.0, 2, 4096)
    assert producer.retry_codes == {1, 14, 16, 17, 204, 205}
    assert (producer.route_interval, producer.heartbeat_interval, producer.default_topic_queues) == (30.0, 30.0, 4)
    assert (push.rebalance_interval, push.persist_interval, push.pull_batch, push.batch) == (20.0, 5.0, 32, 1)
    assert (push.queue_max_messages, push.queue_max_bytes, push.max_span) == (1000, 100 << 20, 2000)
    assert (push.threads, push.consume_timeout, push.suspend, push.poll_timeout) == (20, 900.0, 1.0, 15.0)
    assert (pull.auto_commit, pull.poll_timeout, pull.buffered_messages) == (True, 20.0, 10_000)
