"""The table of messages: the bytes are protobuf's, the types for mypy are up to date, and nothing is registered
twice."""

from __future__ import annotations

import subprocess
import sys

import pytest
from google.protobuf import descriptor_pool

from rocketlet.proxy.wire import messages as m
from scripts import grpc_stubs


def test_the_stub_types_match_the_table() -> None:
    assert grpc_stubs.TARGET.read_text("utf-8") == grpc_stubs.stubs(), "run: make stubs"


def test_the_descriptor_pool_of_clients_is_left_alone() -> None:
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindFileByName("rocketlet/proxy.proto")


def test_a_message_is_encoded_by_its_field_numbers() -> None:
    sent = m.SendMessageRequest(
        messages=[
            m.Message(
                topic=m.Resource(name="T"),
                user_properties={"k": "v"},
                system_properties=m.SystemProperties(message_id="01", queue_offset=0),
                body=b"b",
            )
        ]
    )
    #      messages   topic          name       properties      k          v         system   id        offset   body
    wanted = "0a18" "0a03" "120154" "1206" "0a016b" "120176" "1a06" "1a023031" "7000" "220162"  # fmt: skip
    assert sent.SerializeToString(deterministic=True).hex() == wanted


def test_presence_distinguishes_an_empty_value_from_none() -> None:
    assert m.SystemProperties(tag="").HasField("tag")
    assert not m.SystemProperties().HasField("tag")
    settings = m.TelemetryCommand(settings=m.Settings(publishing=m.Publishing(max_body_size=5)))
    again = m.TelemetryCommand.FromString(settings.SerializeToString())
    assert again.WhichOneof("command") == "settings"
    assert again.settings.WhichOneof("pub_sub") == "publishing"
    assert not again.HasField("status")


def test_unknown_fields_of_newer_clients_are_ignored() -> None:
    newer = m.Status(code=20000, message="OK").SerializeToString() + b"\xba\x06\x03new"
    assert m.Status.FromString(newer).code == 20000


@pytest.mark.process
def test_a_process_without_grpc_does_not_import_protobuf() -> None:
    program = "import sys, rocketlet.tools.local; print('google.protobuf' in sys.modules, 'hpack' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False False"
