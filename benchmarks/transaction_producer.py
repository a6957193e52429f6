"""Sends transactional messages as fast as it can; flags and lines of RocketMQ's benchmark transaction producer.

    python -m benchmarks.transaction_producer -n 127.0.0.1:9876 [-w 32] [-s 2048] [-sr 0.1] [-su 0.1] [-cr 0] [-cu 0]

-sr and -su are the rates at which the local transaction rolls back or stays unknown, -cr and -cu those of the checker.
"""

from __future__ import annotations

import random
import threading
import time

from benchmarks.producer import flags, message_of
from benchmarks.support.counters import Counters, Load
from rocketlet import ReceivedMessage, Transaction, TransactionProducer, TransactionState
from rocketlet.client.errors import ClientError, Refused


def decide(chance: random.Random, rollback: float, unknown: float) -> TransactionState:
    """A state by its rate."""
    drawn = chance.random()
    if drawn < rollback:
        return TransactionState.ROLLBACK
    return TransactionState.UNKNOWN if drawn < rollback + unknown else TransactionState.COMMIT


def main() -> None:
    parser = flags(__doc__ or "", threads=32, size=2048)
    parser.add_argument("-sr", "--sendRollbackRate", type=float, default=0.0)
    parser.add_argument("-su", "--sendUnknownRate", type=float, default=0.0)
    parser.add_argument("-cr", "--checkRollbackRate", type=float, default=0.0)
    parser.add_argument("-cu", "--checkUnknownRate", type=float, default=0.0)
    parser.add_argument("-i", "--sendInterval", type=int, default=0, help="ms between the sends of a thread")
    options = parser.parse_args()
    chance = random.Random()
    checks = 0

    def check(message: ReceivedMessage) -> TransactionState:
        nonlocal checks
        checks += 1
        return decide(chance, options.checkRollbackRate, options.checkUnknownRate)

    def execute(transaction: Transaction) -> TransactionState:
        return decide(chance, options.sendRollbackRate, options.sendUnknownRate)

    with TransactionProducer("benchmark_transaction_producer", check, namesrv=options.namesrvAddr) as producer:

        def work(counters: Counters, stop: threading.Event) -> None:
            number = 0
            while not stop.is_set():
                number += 1
                start_time = time.perf_counter()
                try:
                    producer.send_in_transaction(message_of(options, number), execute)
                except Refused:
                    counters.refused += 1
                except ClientError:
                    counters.failed += 1
                else:
                    counters.add(time.perf_counter() - start_time)
                if options.sendInterval and stop.wait(options.sendInterval / 1000):
                    return

        Load(extra=lambda: f" | transaction checks: {checks}").run(work, options.threadCount, options.seconds)


if __name__ == "__main__":
    main()
