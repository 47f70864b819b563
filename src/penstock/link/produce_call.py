"""The produce request, written by hand around batches that are not copied.

One batch for each partition, as brokers demand it. Flexible versions only (9 and later); topics
are named by id from version 13 on.
"""

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Final, NamedTuple

from penstock.link.apis import Api
from penstock.link.request import Parts, Request
from penstock.model import TopicId
from penstock.protocol.answers.dialect import FLEXIBLE
from penstock.protocol.messages import response_reader
from penstock.protocol.primitives import Buffer

LEAST_VERSION: Final = 9
TRANSACTIONS_FROM: Final = 12  # a transactional batch adds its own partition to the transaction
TOPIC_IDS_FROM: Final = 13

_ACKS_AND_TIMEOUT: Final = Struct(
    ">"
    "h"  # acks        0 none, 1 the leader, -1 every in-sync replica
    "i"  # timeout_ms  how long the leader waits for them
)
_PARTITION: Final = Struct(">i")


class ProducedTopic(NamedTuple):
    """What one topic is to be given: a batch for each of some partitions."""

    name: str
    topic_id: TopicId | None
    batches: Mapping[int, Buffer]


def produce_request(
    topics: Sequence[ProducedTopic], *, acks: int, timeout_ms: int, transactional_id: str | None
) -> Request:
    """A request in whatever version the broker speaks."""

    def write(version: int) -> Parts:
        parts: list[Buffer] = [
            FLEXIBLE.string(transactional_id),
            _ACKS_AND_TIMEOUT.pack(acks, timeout_ms),
            FLEXIBLE.count(len(topics)),
        ]
        for topic in topics:
            if version >= TOPIC_IDS_FROM:
                assert topic.topic_id is not None
                parts.append(topic.topic_id.bytes)
            else:
                parts.append(FLEXIBLE.string(topic.name))
            parts.append(FLEXIBLE.count(len(topic.batches)))
            for partition, batch in topic.batches.items():
                parts += (_PARTITION.pack(partition) + FLEXIBLE.size(len(batch)), batch, b"\0")
            parts.append(b"\0")
        parts.append(b"\0")
        return parts

    has_ids = all(topic.topic_id is not None for topic in topics)
    return Request(
        int(Api.PRODUCE),
        write,
        lambda version: response_reader(int(Api.PRODUCE), version),
        least=LEAST_VERSION if transactional_id is None else TRANSACTIONS_FROM,
        last=TOPIC_IDS_FROM if has_ids else TOPIC_IDS_FROM - 1,
        is_answered=acks != 0,
    )
