"""A message and a local transaction, both or neither: python examples/waiting/transaction.py

Three bookings: one succeeds, one fails, and one is still undecided when the transaction ends. The broker asks the
checker later, after transactionTimeOut and at the next transactionCheckInterval, a minute by default.

The name server is NAMESRV_ADDR's, or 127.0.0.1:9876.
"""

from __future__ import annotations

from rocketlet import (
    ConsumeFrom,
    LitePullConsumer,
    Message,
    ReceivedMessage,
    Transaction,
    TransactionProducer,
    TransactionState,
)

booked: set[str] = set()  # stands for a database table that records how the local transaction ended


def execute(transaction: Transaction) -> TransactionState:
    """The local transaction. Its outcome is recorded with it, under the transaction's id."""
    guest: str = transaction.argument
    if guest == "mallory":
        return TransactionState.ROLLBACK
    booked.add(transaction.transaction_id)
    return TransactionState.COMMIT if guest == "alice" else TransactionState.UNKNOWN


def check(message: ReceivedMessage) -> TransactionState:
    """The broker asks for the outcome. It may ask another process of the group, so look into the database."""
    print(f"checker   is asked about {message.body.decode()}")
    return TransactionState.COMMIT if message.message_id in booked else TransactionState.ROLLBACK


def main() -> None:
    with TransactionProducer("booking-producers", check) as producer:
        for guest in ("alice", "mallory", "bob"):
            result = producer.send_in_transaction(Message("Bookings", guest.encode()), execute, guest)
            assert result.state is not None
            print(f"sent      {guest}: {result.state.name}")
        consumer = LitePullConsumer(
            "booking-consumers", topics={"Bookings": "*"}, consume_from=ConsumeFrom.FIRST_OFFSET
        )
        with consumer:
            for count, message in enumerate(consumer, 1):
                print(f"consumed  {message.body.decode()}")
                if count == 2:
                    break


if __name__ == "__main__":
    main()
