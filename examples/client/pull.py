"""Read a topic yourself, queue by queue, with your own offsets: python examples/client/pull.py

For jobs that read everything once, or again from some point. The name server is NAMESRV_ADDR's, or 127.0.0.1:9876.
"""

from __future__ import annotations

from rocketlet import Message, Producer, PullConsumer, PullStatus


def main() -> None:
    with Producer("pull-producers") as producer:
        for number in range(10):
            producer.send(Message("Pulled", b"%d" % number))
    with PullConsumer("pull-readers") as consumer:
        read = []
        for queue in consumer.queues("Pulled"):
            offset = consumer.min_offset(queue)
            while (found := consumer.pull(queue, offset)).status is PullStatus.FOUND:
                read += [int(message.body) for message in found.messages]
                offset = found.next_offset
            print(f"read      queue {queue.queue_id} up to offset {offset}")
        print(f"read      {sorted(read)}")


if __name__ == "__main__":
    main()
