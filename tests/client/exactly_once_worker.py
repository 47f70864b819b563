"""One member of a group that copies events in transactions, as a process that can be killed.

    python exactly_once_worker.py BOOTSTRAP SOURCE TARGET NAME

Prints `ready` once it has partitions, then `copied N` after each transaction; ends with its stdin.
"""

import sys
import threading

from penstock.client.commit_tracker import CommitMode
from penstock.client.consumer import Consumer
from penstock.client.producer import Producer
from penstock.client.transaction import TransactionAbortedError

SETTINGS = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 300}
RECORDS_MAX = 7  # small, so that a kill falls into a transaction
PACE_S = 0.01


def main(bootstrap: str, source: str, target: str, name: str) -> None:
    stop = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    consumer = Consumer(
        bootstrap, source, source, commit_mode=CommitMode.EXACTLY_ONCE, settings=SETTINGS
    )
    producer = Producer(
        bootstrap, target, transactional_id=name, settings={"transaction.timeout.ms": 5000}
    )
    copied = 0
    with consumer, producer:
        while not consumer.assignment and not stop.is_set():
            stop.wait(0.05)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while not stop.is_set():
            batch = consumer.take(records_max=RECORDS_MAX, wait_s=0.2)
            if not batch:
                continue
            try:
                with producer.transaction(consumer):
                    for event in batch:
                        producer.send(event.value, partition=event.partition)
                        stop.wait(PACE_S)
            except TransactionAbortedError:
                continue
            copied += len(batch)
            sys.stdout.write(f"copied {copied}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
