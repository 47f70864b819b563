"""Producer, consumer and registry in an asyncio program; and all counts as metrics."""

import asyncio
import inspect
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from penstock.client.aio import AsyncConsumer, AsyncProducer, AsyncRegistry
from penstock.client.commit_tracker import CommitMode
from penstock.client.consumer import Consumer
from penstock.client.event import Event
from penstock.client.metrics import ClientMetrics
from penstock.client.producer import Producer
from penstock.client.registry import Registry
from penstock.model import TopicPartition
from penstock.schemas.model import SchemaText, SchemaType
from penstock.serde.contract import Contract

MakeTopic = Callable[..., str]
ORDER = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})
PAIRS: list[tuple[type[Any], type[Any]]] = [
    (Producer, AsyncProducer),
    (Consumer, AsyncConsumer),
    (Registry, AsyncRegistry),
]
# Parts of the blocking classes that their asyncio versions use, and programs need not.
INTERNAL = {"values", "keys", "uncommitted", "events_per_step", "put_back_taken", "api"}


def public_members(cls: type[Any]) -> dict[str, Any]:
    return {
        name: member
        for name, member in inspect.getmembers(cls)
        if not name.startswith("_") and name not in INTERNAL
    }


@pytest.mark.parametrize(("blocking", "asynchronous"), PAIRS)
def test_an_asyncio_class_has_the_methods_and_properties_of_the_blocking_one(
    blocking: type[Any], asynchronous: type[Any]
) -> None:
    assert public_members(blocking).keys() <= public_members(asynchronous).keys()


@pytest.mark.parametrize(("blocking", "asynchronous"), PAIRS)
def test_methods_take_the_same_arguments_with_the_same_types_and_defaults(
    blocking: type[Any], asynchronous: type[Any]
) -> None:
    names = [name for name, member in public_members(blocking).items() if callable(member)]
    if asynchronous is not AsyncRegistry:  # which wraps a registry that may be shared
        names.append("__init__")
    for name in names:
        theirs = inspect.signature(getattr(blocking, name)).parameters
        ours = inspect.signature(getattr(asynchronous, name)).parameters
        if name == "transaction":  # takes the consumer of its kind
            assert list(ours) == list(theirs)
        else:
            assert ours == theirs, name


@pytest.mark.parametrize(("blocking", "asynchronous"), PAIRS)
def test_no_argument_or_result_is_untyped(blocking: type[Any], asynchronous: type[Any]) -> None:
    for cls in (blocking, asynchronous):
        for name, member in {**public_members(cls), "__init__": cls.__init__}.items():
            if callable(member):
                signature = inspect.signature(member)
                annotations = [one.annotation for one in signature.parameters.values()][1:]
                assert inspect.Signature.empty not in (*annotations, signature.return_annotation), (
                    name
                )


def test_events_are_produced_and_consumed_on_an_event_loop(
    bootstrap: str, registry: Registry, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    exposed: list[str] = []

    async def work() -> list[int]:
        contract = Contract(ORDER)
        async with AsyncProducer(bootstrap, topic, registry=registry, value=contract) as producer:
            sent = await asyncio.gather(*(producer.send({"id": n}) for n in range(3)))
            assert sorted(metadata.offset for metadata in sent) == [0, 1, 2]
            deliveries = await producer.send_many({"id": n} for n in range(3, 6))
            assert (deliveries.delivered, deliveries.failures) == (3, [])
            assert await producer.flush() == 0
        async with AsyncProducer(bootstrap, topic) as producer:
            await producer.send(b"unreadable")
        ids: list[int] = []
        async with AsyncConsumer(bootstrap, topic, topic, registry=registry) as consumer:
            async for event in consumer:
                ids.append(event.value["id"])
                if len(ids) == 6:
                    break
            while not consumer.quarantined:
                await consumer.take(wait_s=0.1)
            await consumer.commit()
            metrics = CollectorRegistry()
            metrics.register(ClientMetrics(registry, consumers=[consumer.consumer]))
            exposed.append(generate_latest(metrics).decode())
        return ids

    assert sorted(asyncio.run(work())) == list(range(6))
    subject = f'subject="{topic}-value"'
    errors = f'penstock_client_deserialize_errors_total{{reason="not_framed",{subject}}} 1.0'
    assert errors in exposed[0]
    assert f'penstock_client_serde_events_total{{direction="read",{subject}}} 6.0' in exposed[0]
    assert "penstock_client_registry_requests_total" in exposed[0]
    assert "penstock_client_quarantined_total 1.0" in exposed[0]


def test_an_iteration_ends_when_nothing_came_for_the_idle_time(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()

    async def work() -> tuple[list[bytes], list[bytes]]:
        async with AsyncProducer(bootstrap, topic) as producer:
            await producer.send_many([b"1", b"2", b"3"])
        async with AsyncConsumer(bootstrap, topic, topic) as consumer:
            first = [event.value async for event in consumer.events(idle_s=3)]
            await consumer.seek(TopicPartition(topic, 0), 1)
            batches = [batch async for batch in consumer.batches(idle_s=3)]
        return first, [event.value for batch in batches for event in batch]

    assert asyncio.run(work()) == ([b"1", b"2", b"3"], [b"2", b"3"])


def report_start_of_take(consumer: Consumer) -> threading.Event:
    started, take = threading.Event(), consumer.take

    def reporting_take(records_max: int = 500, wait_s: float | None = 1.0) -> list[Event]:
        started.set()
        return take(records_max, wait_s)

    consumer.take = reporting_take  # type: ignore[method-assign]  # to cancel it at that moment
    return started


def test_events_of_a_cancelled_take_come_again(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()

    async def work() -> list[bytes]:
        async with (
            AsyncConsumer(bootstrap, topic, topic) as consumer,
            AsyncProducer(bootstrap, topic) as producer,
        ):
            await producer.send(b"1")
            (first,) = await consumer.take(wait_s=30)
            assert first.value == b"1"
            started = report_start_of_take(consumer.consumer)
            taking = asyncio.create_task(consumer.take(wait_s=30))
            await asyncio.to_thread(started.wait)
            taking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await taking
            await producer.send(b"2")  # the thread that still waits takes it
            await consumer.commit()
            again = await consumer.take(wait_s=30)
            return [event.value for event in again]

    assert asyncio.run(work()) == [b"2"]


def test_a_transaction_on_an_event_loop_is_all_or_nothing(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    source, target = make_topic(), make_topic()

    async def work() -> list[bytes]:
        async with AsyncProducer(bootstrap, source) as producer:
            await producer.send_many([b"1", b"2", b"3"])
        fails = iter([True])
        async with (
            AsyncConsumer(
                bootstrap, source, source, commit_mode=CommitMode.EXACTLY_ONCE
            ) as consumer,
            AsyncProducer(bootstrap, target, transactional_id=source) as producer,
        ):
            handled = 0
            while handled < 3:
                batch = await consumer.take(records_max=2, wait_s=20)
                try:
                    async with producer.transaction(consumer):
                        await asyncio.gather(*(producer.send(event.value) for event in batch))
                        if next(fails, False):
                            raise ArithmeticError
                except ArithmeticError:
                    continue
                handled += len(batch)
        copied: list[bytes] = []
        async with AsyncConsumer(bootstrap, target, target) as reader:
            while len(copied) < 3:
                copied += [event.value for event in await reader.take(wait_s=20)]
        return copied

    assert asyncio.run(work()) == [b"1", b"2", b"3"]


def test_the_registry_is_used_off_the_loop(registry: Registry, topic: str) -> None:
    async def work() -> None:
        schemas = AsyncRegistry(registry)
        source = SchemaText(SchemaType.AVRO, ORDER)
        registered = await schemas.register(topic, source)
        assert (await schemas.schema(registered.id)).guid == registered.guid
        assert (await schemas.latest(topic, fresh=True)).version == 1
        assert (await schemas.version(topic, 1)).id == registered.id
        assert await schemas.look_up(topic, source) == registered
        assert (await schemas.parse(source)).name == "Order"

    asyncio.run(work())
