"""A request and its reply over topics: python examples/waiting/request_reply.py

Any consumer of the topic may reply; the reply goes to the requester. The name server is NAMESRV_ADDR's, or
127.0.0.1:9876.
"""

from __future__ import annotations

from rocketlet import ConsumeFrom, Message, Producer, PushConsumer, ReceivedMessage, RequestTimedOut

PRICES = {b"apple": b"3", b"pear": b"4"}


def main() -> None:
    with Producer("price-clerks") as clerk, Producer("price-askers") as asker:

        def answer(question: ReceivedMessage) -> None:
            if question.body in PRICES:
                clerk.reply(question, PRICES[question.body])

        asker.send(Message("Prices", b"open"))  # the topic exists from now on, so the consumer finds it at once
        with PushConsumer("price-clerks", answer, topics={"Prices": "*"}, consume_from=ConsumeFrom.FIRST_OFFSET):
            for fruit in (b"apple", b"pear"):
                reply = asker.request(Message("Prices", fruit), timeout=30)
                print(f"asked     {fruit.decode()}, answer {reply.body.decode()}")
            try:
                asker.request(Message("Prices", b"melon"), timeout=1)
            except RequestTimedOut:
                print("asked     melon, no answer")


if __name__ == "__main__":
    main()
