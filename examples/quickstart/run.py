"""`make quickstart`: a name server, a broker, a producer and a consumer, with an explanation of each step.

The two servers run as separate processes, as in production, with free ports and a directory that is removed at the end.
The producer and the consumer are the two files beside this one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
say = partial(print, flush=True)  # the started programs write to the same stream


@contextmanager
def server(module: str, *arguments: str) -> Iterator[str]:
    """Run one of the servers, yield its address, and stop it cleanly."""
    process = subprocess.Popen(
        [sys.executable, "-m", f"rocketlet.{module}", *arguments],
        cwd=HERE.parent.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    try:
        said = []
        for line in process.stdout:
            said.append(line)
            address = re.search(r"(?:listening on|clients are told) (\S+:\d+)", line)
            if address:
                yield address[1]
                return
        sys.exit(f"{module} did not start:\n{''.join(said)}")
    finally:
        process.terminate()
        process.communicate(timeout=30)


def main() -> None:
    began = time.perf_counter()
    with (
        tempfile.TemporaryDirectory(prefix="rocketlet-quickstart-") as directory,
        server("namesrv", "--listen-port", "0", "--kv-config-path", f"{directory}/kvConfig.json") as namesrv,
    ):
        say(f"name server at {namesrv}: it tells clients which broker serves which topic.")
        store = f"{directory}/store"
        with server("broker", "-n", namesrv, "--listen-port", "0", "--store-path-root-dir", store) as broker:
            say(f"broker at {broker}, which has registered there. It keeps its files in {store}.")
            os.environ["NAMESRV_ADDR"] = namesrv
            say("\nThe producer (examples/quickstart/producer.py) asks the name server for the topic, and sends:\n")
            subprocess.run([sys.executable, HERE / "producer.py"], check=True)
            say("\nThe broker appended them to its commit log and filed each under its queue. The consumer")
            say("(examples/quickstart/consumer.py) pulls from every queue, in the order of each:\n")
            subprocess.run([sys.executable, HERE / "consumer.py"], check=True)
            files = [path for path in sorted(Path(store).rglob("*")) if path.is_file()]
            say(f"\nOn disk, in RocketMQ's own format, are now {len(files)} files; the commit log has these bytes:\n")
            log = next(path for path in files if path.parent.name == "commitlog")
            say("  " + log.open("rb").read(160).hex(" ", 4)[:107] + " …")
    say(f"\nAll of it took {time.perf_counter() - began:.1f} s, and the servers are stopped again. What next:")
    say("  . .venv/bin/activate   and then   rocketlet up   starts servers that stay, until Ctrl-C;")
    say("  README.md has the ten lines of a program of your own.")


if __name__ == "__main__":
    main()
