"""confluent-kafka's messages and partitions in the words of this package."""

from collections.abc import Iterable

from confluent_kafka import Message
from confluent_kafka import TopicPartition as KafkaPartition

from penstock.client.flow_control import RECORD_OVERHEAD_BYTES
from penstock.model import Offset, TopicPartition


def partition_of(message: Message) -> TopicPartition:
    """The partition of a record that was read."""
    topic, partition = message.topic(), message.partition()
    assert topic is not None, "a record that was read has a topic"
    assert partition is not None, "and a partition"
    return TopicPartition(topic, partition)


def offset_of(message: Message) -> Offset:
    """The offset of a record that was read."""
    offset = message.offset()
    assert offset is not None, "a record that was read has an offset"
    return Offset(offset)


def own_partitions(partitions: Iterable[KafkaPartition]) -> list[TopicPartition]:
    """These partitions as ours."""
    return [TopicPartition(partition.topic, partition.partition) for partition in partitions]


def kafka_partitions(partitions: Iterable[TopicPartition]) -> list[KafkaPartition]:
    """These partitions as confluent-kafka's."""
    return [KafkaPartition(topic, partition) for topic, partition in partitions]


def message_bytes(message: Message) -> int:
    """What a record takes in memory, about."""
    return len(message.value() or b"") + len(message.key() or b"") + RECORD_OVERHEAD_BYTES


def size_bytes(messages: Iterable[Message]) -> int:
    """What records take in memory, about."""
    return sum(map(message_bytes, messages))
