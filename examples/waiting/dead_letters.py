"""A message that fails repeatedly becomes a dead letter: python examples/waiting/dead_letters.py

By default a failed message is retried sixteen times, after 10 s, 30 s, 1 min ... 2 h. This listener does not want to
wait that long: it asks for the shortest delay, and gives up after two retries. Dead letters are in the topic
%DLQ%<group>; `rocketlet dead-letters resend retry-consumers --all` would send it to the group again. The name server is
NAMESRV_ADDR's, or 127.0.0.1:9876.
"""

from __future__ import annotations

import queue

from rocketlet import ConsumeFrom, Later, LitePullConsumer, Message, Producer, PushConsumer, ReceivedMessage

GROUP = "retry-consumers"
tries: queue.Queue[tuple[bytes, int]] = queue.Queue()


def listener(message: ReceivedMessage) -> Later | None:
    tries.put((message.body, message.reconsume_times))
    if message.body == b"poison":
        return Later(delay_level=1)
    return None


def main() -> None:
    with Producer("retry-producers") as producer:
        for body in (b"good", b"poison"):
            producer.send(Message("Retries", body))
    settings = {"consume_from": ConsumeFrom.FIRST_OFFSET, "max_reconsume_times": 2}
    with PushConsumer(GROUP, listener, topics={"Retries": "*"}, **settings):
        for _ in range(4):
            body, reconsume_times = tries.get(timeout=60)
            print(f"listener  got {body.decode()!r}, retry {reconsume_times}")
        letters = LitePullConsumer("undertakers", topics={f"%DLQ%{GROUP}": "*"}, consume_from=ConsumeFrom.FIRST_OFFSET)
        with letters:
            for letter in letters:
                origin = letter.properties["RETRY_TOPIC"]
                print(f"dead      {letter.body.decode()!r} of topic {origin}, after {letter.reconsume_times} tries")
                break


if __name__ == "__main__":
    main()
