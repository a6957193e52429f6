"""A consumer as an iterator that seeks back and reads again: python examples/client/iterate.py

The name server is NAMESRV_ADDR's, or 127.0.0.1:9876.
"""

from __future__ import annotations

from rocketlet import ConsumeFrom, LitePullConsumer, Message, Producer


def main() -> None:
    with Producer("iterate-producers") as producer:
        for word in ("one", "two", "three"):
            producer.send(Message("Words", word.encode(), sharding_key="same queue"))
    with LitePullConsumer("iterate", topics={"Words": "*"}, consume_from=ConsumeFrom.FIRST_OFFSET) as consumer:
        again = True
        for count, message in enumerate(consumer, 1):
            print(f"consumed  {message.body.decode()}")
            if count == 3 and again:
                print("back to the begin")
                consumer.seek_to_begin(message.queue)
                again = False
            if count == 6:
                break


if __name__ == "__main__":
    main()
