"""Sends batches as fast as it can; flags and lines of RocketMQ's benchmark batch producer.

python -m benchmarks.batch_producer -n 127.0.0.1:9876 [-b 16] [-w 64] [-s 128] [--seconds 60]
"""

from __future__ import annotations

import threading
import time

from benchmarks.producer import flags, message_of
from benchmarks.support.counters import Counters, Load
from rocketlet import Producer
from rocketlet.client.errors import ClientError, Refused


def main() -> None:
    parser = flags(__doc__ or "")
    parser.add_argument("-b", "--batchSize", type=int, default=16)
    options = parser.parse_args()
    with Producer("benchmark_batch_producer", namesrv=options.namesrvAddr) as producer:

        def work(counters: Counters, stop: threading.Event) -> None:
            number = 0
            while not stop.is_set():
                batch = [message_of(options, number + i) for i in range(options.batchSize)]
                number += options.batchSize
                start_time = time.perf_counter()
                try:
                    producer.send_batch(batch)
                except Refused:
                    counters.refused += 1
                except ClientError:
                    counters.failed += 1
                else:
                    counters.add(time.perf_counter() - start_time)

        Load(messages_each=options.batchSize).run(work, options.threadCount, options.seconds)


if __name__ == "__main__":
    main()
