"""Many events over the link beside librdkafka: order, settings, limits, refusals, lost brokers."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from penstock.client.column_settings import column_settings
from penstock.client.errors import ClosedError, DeliveryError
from penstock.client.producer import Producer, RoundRobin
from penstock.link.blocking import BlockingCluster
from penstock.link.fetch_once import fetch_once
from penstock.link.offsets import Isolation
from penstock.link.settings import IDEMPOTENT_PRODUCER
from penstock.model import Offset, TopicPartition
from penstock.protocol.batch import iterate_headers
from penstock.protocol.compression import Codec
from penstock.serde.errors import ClientError
from penstock.testing.platform import Platform
from tests.client.test_producer import read_all

MakeTopic = Callable[..., str]


def values(bootstrap: str, topic: str, partitions: int = 1) -> list[bytes | None]:
    return [message.value() for message in read_all(bootstrap, topic, partitions)]


def batch_headers(bootstrap: str, topic: str) -> list[Any]:
    partition = TopicPartition(topic, 0)
    with BlockingCluster(bootstrap) as cluster:
        (address,) = cluster.run(lambda routes: routes.by_leader([partition]))
        rows = cluster.run(
            fetch_once(
                address,
                {partition: Offset(0)},
                isolation=Isolation.READ_COMMITTED,
                bytes_max=1 << 20,
            )
        )
    return [header for _, header in iterate_headers(rows[partition].records)]


def test_events_of_one_partition_keep_their_order_across_both_ways_of_sending(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic, expected = make_topic(), []
    with Producer(bootstrap, topic) as producer:
        for turn in range(30):
            rows = [f"{turn}-{number}" for number in range(turn % 4)]
            if turn % 2:
                for row in rows:
                    producer.send(row)
            else:
                producer.send_many(rows)
            expected += rows
    assert values(bootstrap, topic) == [row.encode() for row in expected]


def test_batches_are_compressed_cut_and_stamped_as_the_settings_say(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    settings = {"compression.type": "zstd", "batch.size": 5_000, "linger.ms": 0}
    with Producer(bootstrap, topic, settings=settings) as producer:
        producer.send_many([b"x" * 400] * 50 + [b"y" * 9_000]).wait(30)
    headers = batch_headers(bootstrap, topic)
    assert {header.codec for header in headers} == {Codec.ZSTD}
    assert [header.record_count for header in headers] == [12] * 4 + [2, 1]
    assert len({header.producer_id for header in headers}) == 1
    assert [header.base_sequence for header in headers] == [0, 12, 24, 36, 48, 50]
    topic = make_topic()
    settings = {"enable.idempotence": False, "acks": 1}
    with Producer(bootstrap, topic, settings=settings) as producer:
        assert producer.send_many([b"x"]).wait(30) == 1
    assert [header.producer_id for header in batch_headers(bootstrap, topic)] == [-1]


def test_calls_within_the_linger_time_share_a_batch(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    with Producer(bootstrap, topic, settings={"linger.ms": 60_000}) as producer:
        calls = [producer.send_many([b"x"] * number) for number in range(1, 6)]
        assert producer.flush() == 0, "a flush does not linger"
        assert [call.wait(0) for call in calls] == [1, 2, 3, 4, 5]
        ends = [call.end_offsets[TopicPartition(topic, 0)] for call in calls]
    assert ends == [1, 3, 6, 10, 15]
    assert [header.record_count for header in batch_headers(bootstrap, topic)] == [15]


def test_a_refused_batch_fails_its_own_rows_and_no_others(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=2, **{"max.message.bytes": "20000"})
    rows = [b"%d" % number + b"." * 1_000 for number in range(120)]
    rows[50] = b"50" + b"." * 30_000
    with Producer(
        bootstrap, topic, partitioner=RoundRobin(), settings={"batch.size": 9_000}
    ) as producer:
        sent = producer.send_many(rows)
        with pytest.raises(DeliveryError, match=r"event 50 .*max\.message\.bytes"):
            sent.wait(30)
        (failure,) = sent.failures
        assert (failure.row, failure.retriable, sent.delivered) == (50, False, 119)
        producer.send_many([b"120"]).wait(30)
    kept = [number for number in range(121) if number != 50]
    read = values(bootstrap, topic, 2)
    assert [int((one or b"").rstrip(b".")) for one in read] == [
        *(number for number in kept if number % 2 == 0),
        *(number for number in kept if number % 2 == 1),
    ]


def test_an_event_too_large_for_any_batch_is_refused_before_its_neighbours_are_sent(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    with Producer(bootstrap, topic) as producer:
        with pytest.raises(ClientError, match=r"event 1 has .*max\.message\.bytes"):
            producer.send_many([b"x", b"y" * (2 << 20)])
        with pytest.raises(ClientError, match="chose partition 9"):
            Producer(bootstrap, topic, partitioner=lambda _key, _count: 9).send_many([b"x"])
    assert values(bootstrap, topic) == []


def test_events_without_a_key_stay_together_for_a_while(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=4)
    with Producer(bootstrap, topic) as producer:
        for start in range(0, 4_000, 250):
            producer.send_many([str(number) for number in range(start, start + 250)]).wait(30)
    by_partition: dict[int | None, list[int]] = {}
    for message in read_all(bootstrap, topic, 4):
        by_partition.setdefault(message.partition(), []).append(int(message.value() or b""))
    assert sorted(map(len, by_partition.values())) == [1_000] * 4
    for numbers in by_partition.values():
        for start in range(0, 1_000, 500):
            assert numbers[start : start + 500] == list(range(numbers[start], numbers[start] + 500))


def test_a_topic_is_created_as_librdkafka_would_create_it(
    penstock: Platform, bootstrap: str
) -> None:
    topic = penstock.name()
    with Producer(bootstrap, topic) as producer:
        assert producer.send_many([b"x"]).wait(30) == 1


@pytest.mark.slow
def test_nothing_is_lost_repeated_or_reordered_when_the_broker_is_killed() -> None:
    platform = Platform("sending").start()
    try:
        topic = platform.make_topic(partitions=2)
        with Producer(platform.bootstrap, topic, partitioner=RoundRobin()) as producer:
            done = threading.Event()

            def kill() -> None:
                while not done.wait(0.4):
                    platform.kill()
                    platform.restart()

            killer = threading.Thread(target=kill)
            killer.start()
            calls = []
            for start in range(0, 20_000, 500):
                rows = [b"%d" % number for number in range(start, start + 500)]
                calls.append(producer.send_many(rows))
                if start % 5_000 == 0:
                    calls[-1].wait(60)
            done.set()
            killer.join()
            assert [call.wait(60) for call in calls] == [500] * 40
        read = values(platform.bootstrap, topic, 2)
        evens, odds = range(0, 20_000, 2), range(1, 20_000, 2)
        assert [int(one or b"") for one in read] == [*evens, *odds]
    finally:
        platform.stop()


def test_a_full_queue_waits_until_there_is_room(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    settings = {"queue.buffering.max.kbytes": 64}
    with Producer(bootstrap, topic, settings=settings) as producer:
        calls = [producer.send_many([b"x" * 500] * 100) for _ in range(30)]
        producer.flush()
        assert sum(call.wait(30) for call in calls) == 3_000


def test_a_closed_producer_fails_what_it_could_not_send() -> None:
    producer = Producer("127.0.0.1:1", "t", settings={"linger.ms": 60_000})
    sent = producer.send_many([b"x"])
    producer.close(timeout_s=0.0)
    with pytest.raises(ClosedError):
        producer.send_many([b"x"])
    with pytest.raises(DeliveryError):
        sent.wait(30)


@pytest.mark.parametrize(
    "setting",
    [
        {"partitioner": "consistent"},
        {"sasl.oauthbearer.config": "x"},
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"},
        {"enable.gapless.guarantee": True},
    ],
)
def test_a_setting_that_the_link_does_not_have_leaves_sending_to_librdkafka(
    setting: dict[str, Any],
) -> None:
    assert column_settings(IDEMPOTENT_PRODUCER) is not None
    assert column_settings({**IDEMPOTENT_PRODUCER, **setting}) is None


def test_settings_have_their_aliases_and_a_time_without_end() -> None:
    settings = column_settings(
        {"request.required.acks": "0", "compression.codec": "gzip", "message.timeout.ms": 0}
    )
    assert settings is not None
    assert (settings.acks, settings.framing.codec) == (0, Codec.GZIP)
    assert settings.link.retry_timeout_ms > 10**9
    assert not settings.is_idempotent


def test_an_unknown_topic_fails_every_row_with_the_reason(bootstrap: str) -> None:
    with Producer(bootstrap, "no such name!", settings={"message.timeout.ms": 500}) as producer:
        sent = producer.send_many([b"x", b"y"])
        with pytest.raises(DeliveryError, match="invalid"):
            sent.wait(30)
        assert [failure.row for failure in sent.failures] == [0, 1]
