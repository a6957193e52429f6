"""Many sends in flight at once, and many messages in one: python examples/client/many_in_flight.py

The name server is NAMESRV_ADDR's, or 127.0.0.1:9876.
"""

from __future__ import annotations

import time

from rocketlet import Message, PendingSend, Producer, split


def main() -> None:
    with Producer("many-in-flight") as producer:
        producer.send(Message("ManyInFlight", b"the first one makes the topic"))

        began = time.perf_counter()
        pending = [producer.send_soon(Message("ManyInFlight", b"%d" % number)) for number in range(2000)]
        results = [each.result() for each in pending]
        took = time.perf_counter() - began
        print(f"{len(results)} single sends stored, {len(results) / took:,.0f} a second")

        def done(sent: PendingSend) -> None:
            print(f"the callback knows too: {sent.result().status.name}")

        producer.send_soon(Message("ManyInFlight", b"with a callback"), done).result()

        began = time.perf_counter()
        messages = [Message("ManyInFlight", b"%d" % number) for number in range(20_000)]
        batches = [producer.send_batch(batch) for batch in split(messages)]
        took = time.perf_counter() - began
        print(f"{len(messages)} messages stored in {len(batches)} batches, {len(messages) / took:,.0f} a second")


if __name__ == "__main__":
    main()
