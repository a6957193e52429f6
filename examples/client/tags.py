"""Only the messages with certain tags: python examples/client/tags.py

The broker skips what nobody in the group wants. The name server is NAMESRV_ADDR's, or 127.0.0.1:9876.
"""

from __future__ import annotations

from rocketlet import ConsumeFrom, LitePullConsumer, Message, Producer

NEWS = [("sports", "1:0"), ("weather", "rain"), ("politics", "talks"), ("weather", "more rain"), ("sports", "2:0")]
WANTED = "sports || weather"


def main() -> None:
    with Producer("newsroom") as producer:
        for tag, text in NEWS:
            producer.send(Message("News", text.encode(), tags=tag, sharding_key="one queue, so that order is kept"))
    with LitePullConsumer("readers", topics={"News": WANTED}, consume_from=ConsumeFrom.FIRST_OFFSET) as consumer:
        for count, message in enumerate(consumer, 1):
            print(f"consumed  {message.tags}: {message.body.decode()}")
            if count == 4:
                break


if __name__ == "__main__":
    main()
