"""Producer, consumer and registry in an asyncio program; and all counts as metrics."""

import asyncio
import json
from collections.abc import Callable

from prometheus_client import CollectorRegistry, generate_latest

from penstock.client.aio import AsyncConsumer, AsyncProducer, AsyncRegistry
from penstock.client.commit_tracker import Commits
from penstock.client.delivery import Outgoing
from penstock.client.metrics import ClientMetrics
from penstock.client.registry import Registry
from penstock.schemas.model import SchemaText, SchemaType
from penstock.serde.contract import Contract

ORDER = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})


def test_events_go_through_an_event_loop(
    bootstrap: str, registry: Registry, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()
    told: list[str] = []

    async def work() -> list[int]:
        contract = Contract(ORDER)
        async with AsyncProducer(bootstrap, topic, registry=registry, value=contract) as producer:
            placed = await asyncio.gather(*(producer.send({"id": n}) for n in range(3)))
            assert sorted(one.offset for one in placed) == [0, 1, 2]
            sent = await producer.send_many({"id": n} for n in range(3, 6))
            assert (sent.delivered, sent.failures) == (3, [])
            outbox = producer.producer._outbox  # noqa: SLF001 - the only way past the contract
            await asyncio.wrap_future(outbox.send(Outgoing(topic, None, b"rubbish")))
        seen: list[int] = []
        async with AsyncConsumer(bootstrap, topic, topic, registry=registry) as consumer:
            async for event in consumer:
                seen.append(event.value["id"])
                if len(seen) == 6:
                    break
            while not consumer.consumer.quarantined:
                await consumer.take(wait_s=0.1)
            await consumer.commit()
            metrics = CollectorRegistry()
            metrics.register(ClientMetrics(registry, consumers=[consumer.consumer]))
            told.append(generate_latest(metrics).decode())
        return seen

    assert sorted(asyncio.run(work())) == list(range(6))
    subject = f'subject="{topic}-value"'
    assert (
        f'penstock_client_deserialize_errors_total{{reason="not_framed",{subject}}} 1.0' in told[0]
    )
    assert f'penstock_client_serde_events_total{{direction="read",{subject}}} 6.0' in told[0]
    assert "penstock_client_registry_requests_total" in told[0]
    assert "penstock_client_quarantined_total 1.0" in told[0]


def test_a_transaction_in_an_event_loop_is_all_or_nothing(
    bootstrap: str, make_topic: Callable[..., str]
) -> None:
    source, target = make_topic(), make_topic()

    async def work() -> list[bytes]:
        async with AsyncProducer(bootstrap, source) as producer:
            await producer.send_many([b"1", b"2", b"3"])
        fails = iter([True])
        settings = {"commits": Commits.EXACTLY_ONCE}
        async with (
            AsyncConsumer(bootstrap, source, source, **settings) as consumer,
            AsyncProducer(bootstrap, target, transactional_id=source) as producer,
        ):
            seen = 0
            while seen < 3:
                batch = await consumer.take(records_max=2, wait_s=20)
                try:
                    async with producer.transaction(consumer):
                        await asyncio.gather(*(producer.send(event.value) for event in batch))
                        if next(fails, False):
                            raise ArithmeticError
                except ArithmeticError:
                    continue
                seen += len(batch)
        found: list[bytes] = []
        async with AsyncConsumer(bootstrap, target, target) as look:
            while len(found) < 3:
                found += [event.value for event in await look.take(wait_s=20)]
        return found

    assert asyncio.run(work()) == [b"1", b"2", b"3"]


def test_the_registry_is_asked_off_the_loop(registry: Registry, topic: str) -> None:
    async def work() -> None:
        asked = AsyncRegistry(registry)
        registered = await asked.register(topic, SchemaText(SchemaType.AVRO, ORDER))
        assert (await asked.schema(registered.id)).guid == registered.guid
        assert (await asked.latest(topic)).version == 1

    asyncio.run(work())
