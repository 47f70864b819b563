"""A consumer that declares what it reads: declared, renewed, and never in the way."""

import json
import threading
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path

import pytest

from penstock.client.consumer import Consumer
from penstock.client.producer import Producer
from penstock.client.reader_lease import ReaderLease, today_utc
from penstock.client.registry import Registry
from penstock.gate.registry_contracts import RegistryContracts
from penstock.schemas.model import SchemaText, SchemaType
from penstock.schemas.readers import Reader
from penstock.serde.contract import Contract, SubjectNames
from penstock.serde.errors import ClientError, RegistryRefusedError

MakeTopic = Callable[..., str]
WITH_COUPON = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "coupon", "type": ["null", "string"], "default": None},
    ],
}
WITHOUT = {**WITH_COUPON, "fields": WITH_COUPON["fields"][:1]}
FRAUD = Reader("fraud-scorer", "7", "risk team", fields=("coupon",))
DAY = date(2026, 6, 1)


def source(document: object) -> SchemaText:
    return SchemaText(SchemaType.AVRO, json.dumps(document))


def readers(registry: Registry, subject: str) -> list[Reader]:
    return RegistryContracts(registry.api).readers(subject)


def wait_until(holds: Callable[[], object]) -> None:
    while not holds():
        threading.Event().wait(0.02)


@pytest.mark.timeout(60)
def test_a_field_that_a_running_consumer_uses_cannot_be_removed(
    bootstrap: str, registry: Registry, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    subject = f"{topic}-value"
    registry.register(subject, source(WITH_COUPON))
    with Consumer(bootstrap, topic, topic, registry=registry, reader=FRAUD) as consumer:
        wait_until(lambda: readers(registry, subject))
        (reader,) = readers(registry, subject)
        assert (reader.title, reader.owner, reader.fields) == (
            "fraud-scorer 7",
            "risk team",
            ("coupon",),
        )
        assert reader.last_day == today_utc() + timedelta(days=30)
        contract = Contract(json.dumps(WITHOUT))
        with (
            Producer(bootstrap, topic, registry=registry, value=contract) as producer,
            pytest.raises(RegistryRefusedError, match="removing `coupon` breaks fraud-scorer 7"),
        ):
            producer.send({"id": 1})
        assert consumer.quarantined == 0


def test_a_lease_is_renewed_when_half_of_it_is_over(registry: Registry, topic: str) -> None:
    subject = f"{topic}-value"
    registry.register(subject, source(WITH_COUPON))
    days = [DAY]
    lease = ReaderLease(registry, [topic, "^all-.*"], FRAUD, today=lambda: days[-1])
    wait_until(lambda: readers(registry, subject))
    lease.close()
    for later, last_day in ((14, 30), (15, 45)):
        days.append(DAY + timedelta(days=later))
        lease.renew()
        (reader,) = readers(registry, subject)
        assert reader.last_day == DAY + timedelta(days=last_day)
    assert reader.only_fields, "it reads with the latest version, and depends on these fields only"


def test_a_reader_declares_its_own_schema(registry: Registry, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "reader.avsc"
    path.write_text(json.dumps(WITHOUT))
    contract = Contract(path, names=SubjectNames.TOPIC_RECORD)
    lease = ReaderLease(registry, [topic], Reader("r"), contract)
    wait_until(lambda: readers(registry, f"{topic}-Order"))
    lease.close()
    (reader,) = readers(registry, f"{topic}-Order")
    assert reader.schema is not None
    assert reader.schema.canonical == registry.parse(source(WITHOUT)).canonical
    assert not reader.only_fields


def test_a_declaration_is_retried_while_the_registry_is_down(
    bootstrap: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Registry("http://127.0.0.1:1", attempts=1) as down:
        lease = ReaderLease(down, [topic], FRAUD, retry_s=0.01)
        wait_until(lambda: caplog.text.count("cannot declare the reader fraud-scorer 7") >= 2)
        lease.close()
    with pytest.raises(ClientError, match="registry="):
        Consumer(bootstrap, topic, topic, reader=FRAUD)
