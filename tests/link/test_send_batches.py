"""Finished batches sent to real brokers."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import ErrorCode, Refused
from penstock.link import blocking
from penstock.link.fetch_range import fetch_range
from penstock.link.offsets import end_offsets
from penstock.link.operation import request_of
from penstock.link.send_batches import send_batches
from penstock.link.settings import LinkSettings
from penstock.link.transactions import init_producer_id
from penstock.model import Offset, TopicPartition
from penstock.protocol.batch import iterate_headers
from penstock.protocol.messages.topics import CREATE_TOPICS, CreatableTopic, CreateTopicsRequest
from penstock.protocol.records import build_batch, read_records
from penstock.testing.embedded import EmbeddedBroker

if TYPE_CHECKING:
    from collections.abc import Callable


def values_of(shell: Any, place: TopicPartition) -> list[bytes | None]:
    end = shell.run(end_offsets([place]))[place]
    return [
        record.value
        for chunk in shell.stream(fetch_range(place, Offset(0), end))
        for position, header in iterate_headers(chunk.records)
        if not header.is_control
        for record in read_records(chunk.records, position)
    ]


def test_batches_go_to_their_partitions_in_order(
    shell: Any, make_topic: Callable[..., str], transactional_batch: Any
) -> None:
    topic, other = make_topic(3), make_topic()
    handle = shell.run(init_producer_id())
    assert handle.transactional_id is None
    places = [TopicPartition(topic, index) for index in range(3)] + [TopicPartition(other, 0)]
    batches = {
        place: [
            transactional_batch(handle, 2 * n, b"%d-%d" % (number, n), b"second") for n in range(20)
        ]
        for number, place in enumerate(places)
    }
    offsets = shell.run(send_batches(batches))
    assert offsets == {place: list(range(0, 40, 2)) for place in places}
    for number, place in enumerate(places):
        assert values_of(shell, place)[::2] == [b"%d-%d" % (number, n) for n in range(20)]
    again = {place: batches[place][-5:] for place in places}
    assert shell.run(send_batches(again)) == {place: offsets[place][-5:] for place in places}


def test_batches_without_a_producer_id_are_written_unchanged(
    shell: Any, make_topic: Callable[..., str]
) -> None:
    place = TopicPartition(make_topic(), 0)
    batches = [build_batch([(b"key", b"%d" % number)]) for number in range(7)]
    assert shell.run(send_batches({place: batches}, acks=1)) == {place: list(range(7))}
    assert shell.run(send_batches({place: batches[:1]}, acks=0)) == {place: [-1]}
    assert shell.run(send_batches({place: batches[:1]})) == {place: [8]}
    assert values_of(shell, place) == [b"%d" % number for number in (*range(7), 0, 0)]


def test_a_refused_batch_is_reported_with_partition_and_reason(
    shell: Any, make_topic: Callable[..., str], transactional_batch: Any
) -> None:
    place = TopicPartition(make_topic(max_message_bytes="1000"), 0)
    large = build_batch([(None, b"z" * 2_000)])
    with pytest.raises(Refused, match=f"produce to {place} at broker 127") as refused:
        shell.run(send_batches({place: [large]}))
    assert refused.value.code is ErrorCode.message_too_large
    corrupt = bytearray(build_batch([(None, b"value")]))
    corrupt[-1] ^= 1
    with pytest.raises(Refused, match="gave up after") as refused:
        shell.run(send_batches({place: [corrupt]}))
    assert refused.value.code is ErrorCode.corrupt_message
    handle = shell.run(init_producer_id())
    with pytest.raises(Refused) as refused:
        shell.run(send_batches({place: [transactional_batch(handle, 0, b"a")] * 1}, acks=5))
    assert refused.value.code is ErrorCode.invalid_required_acks
    with pytest.raises(Refused, match="-9 does not exist"):
        shell.run(send_batches({TopicPartition(place.topic, 9): [large]}))


def test_nothing_is_lost_or_duplicated_when_the_broker_is_killed(
    transactional_batch: Any,
) -> None:
    with EmbeddedBroker() as own:
        create_topic(own.bootstrap, "killed", 2)
        places = [TopicPartition("killed", index) for index in range(2)]
        cluster = blocking.BlockingCluster(own.bootstrap, LinkSettings(retry_timeout_ms=60_000))
        handle = cluster.run(init_producer_id())
        batches = {
            place: [transactional_batch(handle, n, b"%d" % n) for n in range(1_500)]
            for place in places
        }

        def disturb() -> None:
            for _ in range(2):
                own.kill()
                own.start()

        disturbance = threading.Timer(0.02, disturb)
        disturbance.start()
        offsets = cluster.run(send_batches(batches))
        disturbance.join()
        for place in places:
            assert values_of(cluster, place) == [b"%d" % n for n in range(1_500)]
            assert offsets[place] == list(range(1_500))
        cluster.close()


def create_topic(bootstrap: str, name: str, partitions: int) -> None:
    with blocking.BlockingCluster(bootstrap) as cluster:
        request = request_of(
            CREATE_TOPICS, CreateTopicsRequest([CreatableTopic(name, partitions, 1)])
        )
        cluster.run(lambda routes: routes.send_to_any(request))
