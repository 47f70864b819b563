"""Moves records from one topic to another, exactly once: consume, produce and commit in one
transaction. Prints `committed <records>` after each; ends when all are moved. Crashes on any
failure, to be started again.

    python move_records.py <bootstrap> <source> <target> <total> <records per transaction>
"""

import sys
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

SECONDS_MAX = 20.0
COMMON = {
    # when its only broker goes away librdkafka 2.16 starts over with its list of brokers, but not
    # with its cached group coordinator: offsets would then never be sent to the transaction
    "metadata.recovery.strategy": "none",
    "log_level": 0,
}


def main(bootstrap: str, source: str, target: str, total: int, batch: int) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"move-{source}",
            "group.instance.id": "the-one",  # a restart is not a new member: no rebalance
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            **COMMON,
        }
    )
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": f"move-{source}",
            "transaction.timeout.ms": 10_000,
            **COMMON,
        }
    )
    producer.init_transactions(SECONDS_MAX)
    consumer.subscribe([source])
    topic = consumer.list_topics(source, timeout=SECONDS_MAX).topics[source]
    everywhere = [TopicPartition(source, index) for index in topic.partitions]
    while moved(consumer, everywhere) < total:
        messages = [m for m in consumer.consume(batch, 0.5) if fine(m)]
        if messages:
            move(producer, consumer, messages, target)
            print(f"committed {len(messages)}", flush=True)  # noqa: T201 - for the test that runs it
    consumer.close()


def fine(message: Any) -> bool:
    error = message.error()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - the library's public constant has that name
        raise RuntimeError(error)
    return error is None


def move(producer: Any, consumer: Any, messages: list[Any], target: str) -> None:
    producer.begin_transaction()
    for message in messages:
        producer.produce(target, message.value(), partition=message.partition())
    ends = {message.partition(): message.offset() + 1 for message in messages}
    source = messages[0].topic()
    producer.send_offsets_to_transaction(
        [TopicPartition(source, partition, offset) for partition, offset in ends.items()],
        consumer.consumer_group_metadata(),
        SECONDS_MAX,
    )
    producer.commit_transaction(SECONDS_MAX)


def moved(consumer: Any, everywhere: list[TopicPartition]) -> int:
    """How many records the group has committed, by its offsets."""
    return sum(max(each.offset, 0) for each in consumer.committed(everywhere, SECONDS_MAX))


if __name__ == "__main__":
    _, bootstrap, source, target, total, batch = sys.argv
    main(bootstrap, source, target, int(total), int(batch))
