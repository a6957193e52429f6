"""The cost of a signature for a send: a broker without access control and one with it, in turns.

    python -m benchmarks.access_cost [--count 100000] [--rounds 5] [--header json|binary]

The sends differ only in the two fields of the signature, which covers all fields and the body of 1 KiB: hashing alone
takes a third of the cost. Signed sends are served one by one, others together where many come at once.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.raw_sender import TOPIC
from benchmarks.support.frames import send_frame
from benchmarks.support.pipeline import ONE_BY_ONE, pipelined
from benchmarks.support.processes import scratch, stack
from rocketlet.remoting.frame_codec import FrameDecoder, encode
from rocketlet.remoting.signing import Signer

KEY, SECRET = "benchmark", "correct-horse"
ACCOUNTS = f"""\
accounts:
- accessKey: operator
  secretKey: {SECRET}
  admin: true
- accessKey: {KEY}
  secretKey: {SECRET}
  topicPerms:
  - {TOPIC}=PUB
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU a send in µs, medians; `more` is the median of the rounds' differences."""

    plain: float
    signed: float
    more: float


def measure(count: int, rounds: int, header: str = "json") -> Cost:
    """Sends of 1 KiB, so few in flight that those without a signature are not served together either."""
    plain_frame = send_frame(header, TOPIC, 2, bytes(1024))
    signed_frame = signed(plain_frame)
    runs: list[tuple[float, float]] = []
    with scratch() as folder, stack() as (_, plain), guarded(folder) as guarded_port:
        for port, frame in ((plain.port, plain_frame), (guarded_port, signed_frame)):
            pipelined(port, frame, ONE_BY_ONE, 10_000)  # creates the topic, touches the files
        for _ in range(rounds):
            runs.append(
                (
                    pipelined(plain.port, plain_frame, ONE_BY_ONE, count).cpu_micros,
                    pipelined(guarded_port, signed_frame, ONE_BY_ONE, count).cpu_micros,
                )
            )
    without, with_it = (statistics.median(column) for column in zip(*runs, strict=True))
    return Cost(without, with_it, statistics.median(after - before for before, after in runs))


def signed(frame: bytes) -> bytes:
    """The same request with a signature."""
    (command,) = FrameDecoder().feed(frame)
    Signer(KEY, SECRET).before("", command)
    return encode(command)


@contextmanager
def guarded(folder: Path) -> Iterator[int]:
    """A stack whose broker has access control; its port."""
    (folder / "plain_acl.yml").write_text(ACCOUNTS)
    with stack(aclEnable="true", aclConfigDir=str(folder)) as (_, server):
        yield server.port


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--header", choices=("json", "binary"), default="json")
    options = parser.parse_args()
    cost = measure(options.count, options.rounds, options.header)
    print(f"without access control {cost.plain:6.2f} µs of CPU a send")
    print(f"signed and checked     {cost.signed:6.2f} µs, {cost.more:.2f} µs more")


if __name__ == "__main__":
    main()
