"""RocketMQ's own decoder reads our frames: every recorded frame, rewritten by us, and our answers."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rocketlet.remoting.command import Command, HeaderType, Language
from rocketlet.remoting.frame_codec import FrameDecoder, encode, encode_answer
from tests.support.frames import recorded
from tests.support.java_programs import JavaPrograms

pytestmark = pytest.mark.interop

DECODER = Path(__file__).parent / "DecodeFrames.java"


def understood(java: JavaPrograms, frames: list[bytes]) -> list[dict[str, Any]]:
    """Java's reading of each frame."""
    command = ["java", "-cp", str(java.jar), str(DECODER)]
    done = subprocess.run(command, input=b"".join(frames), stdout=subprocess.PIPE, check=True, timeout=600)
    return [json.loads(line) for line in done.stdout.decode().splitlines()]


def test_java_reads_every_recorded_frame_rewritten_by_us_alike(java: JavaPrograms) -> None:
    originals = [frame.data for frame in recorded()]
    written = [encode(command) for data in originals for command in FrameDecoder().feed(data)]
    assert len(written) == len(originals)
    before, after = understood(java, originals), understood(java, written)
    assert len(before) == len(after) == len(originals)
    for frame, theirs, ours in zip(recorded(), before, after, strict=True):
        assert "problem" not in ours, frame.place
        assert _told(ours) == _told(theirs), frame.place


def test_java_reads_our_commands_and_answers(java: JavaPrograms) -> None:
    ext = {"topic": "Überall\u4e2d", "empty": "", "quote": '"\\\x01\x02'}
    frames, expected = [], []
    for header_type in (HeaderType.JSON, HeaderType.ROCKETMQ):
        command = Command(310, 7, 2, Language.PYTHON, 409, "why", ext, b"body", header_type)
        frames += [encode(command), b"".join(encode_answer(header_type, 8, 17, ext, [b"a", b"b"], "no\nroute"))]
        expected += [(310, 7, 2, "PYTHON", "why", b"body"), (17, 8, 1, "JAVA", "no\nroute", b"ab")]
    for found, want in zip(understood(java, frames), expected, strict=True):
        body = base64.b64decode(found["body"])
        assert (found["code"], found["opaque"], found["flag"], found["language"], found["remark"], body) == want
        assert found["version"] == 409
        # Since 4.9.4 Java reads an empty value of a binary header as null.
        assert {key: value or "" for key, value in found["ext"].items()} == ext


def _told(found: dict[str, Any]) -> dict[str, Any]:
    """An empty map and none are the same in a binary header."""
    return {**found, "ext": found["ext"] or None} if found.get("type") == "ROCKETMQ" else found
