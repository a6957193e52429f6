"""Only the messages that match a condition: python examples/waiting/sql_filter.py

The broker evaluates the condition on the properties of each message; only matches are sent. The name server is
NAMESRV_ADDR's, or 127.0.0.1:9876.
"""

from __future__ import annotations

from rocketlet import ConsumeFrom, LitePullConsumer, Message, Producer, Refused, Sql

OFFERS = [("anvil", "250", "eu"), ("feather", "1", "eu"), ("piano", "900", "us"), ("safe", "700", "eu")]
WANTED = Sql("price BETWEEN 100 AND 800 AND region IN ('eu', 'uk')")


def main() -> None:
    with Producer("offer-producers") as producer:
        for name, price, region in OFFERS:
            producer.send(Message("Offers", name.encode(), properties={"price": price, "region": region}))
    with LitePullConsumer(
        "bargain-hunters", topics={"Offers": WANTED}, consume_from=ConsumeFrom.FIRST_OFFSET
    ) as consumer:
        for count, message in enumerate(consumer, 1):
            print(f"consumed  {message.body.decode()} for {message.properties['price']}")
            if count == 2:
                break
    try:
        with LitePullConsumer("bargain-hunters", topics={"Offers": Sql("price != 250")}):
            pass
    except Refused as refused:
        print(f"refused   {refused}")


if __name__ == "__main__":
    main()
