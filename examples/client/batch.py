"""Many small messages in one request: python examples/client/batch.py

`split` divides a long list into batches that the broker accepts. The name server is NAMESRV_ADDR's, or 127.0.0.1:9876.
"""

from __future__ import annotations

from rocketlet import Message, Producer, split


def main() -> None:
    messages = [Message("Readings", b"%d" % number, tags="temperature") for number in range(1000)]
    with Producer("sensors") as producer:
        # 16 KiB per batch, only so that there are several; the limit is 4 MiB.
        for batch in split(messages, 16 << 10):
            result = producer.send_batch(batch)
            print(
                f"sent      {len(batch)} messages to queue {result.queue.queue_id} from offset {result.queue_offset} on"
            )


if __name__ == "__main__":
    main()
