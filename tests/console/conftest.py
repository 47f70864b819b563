"""What tests of the console's routes share: the platform of the run, and records in it."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import httpx
import pytest
from confluent_kafka import Producer

from penstock.client.quarantine import DecodeFailure, OriginalRecord
from penstock.client.quarantine_writer import QuarantineWriter
from penstock.model import Millis, Offset
from penstock.serde.errors import Reason
from penstock.serde.frame import Side
from penstock.testing.platform import Platform

Row: TypeAlias = tuple[str | bytes | None, str | bytes | None]
Write: TypeAlias = Callable[..., None]


@pytest.fixture
def http(penstock: Platform) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=penstock.registry_url, timeout=30) as client:
        yield client


@pytest.fixture
def write(penstock: Platform) -> Write:
    """Writes keys and values to a partition, with times that count up."""

    def write_rows(
        topic: str,
        rows: Sequence[Row],
        partition: int = 0,
        start_ms: int = 1_700_000_000_000,
        step_ms: int = 1_000,
        headers: dict[str, bytes] | None = None,
    ) -> None:
        producer = Producer({"bootstrap.servers": penstock.bootstrap, "log_level": 0})
        for number, (key, value) in enumerate(rows):
            producer.produce(
                topic,
                key=key,
                value=value,
                partition=partition,
                timestamp=start_ms + number * step_ms,
                headers=dict(headers or {}),
            )
        assert producer.flush(20) == 0

    return write_rows


def quarantine(
    bootstrap: str,
    topic: str,
    events: Sequence[tuple[Reason, bytes]],
    *,
    detail: str = "why",
    group: str = "billing",
) -> None:
    """Write events that a group could not read; all have another key."""
    writer = QuarantineWriter(bootstrap)
    for number, (reason, value) in enumerate(events):
        key, at = b"k%d" % number, Millis(1_700_000_000_000)
        origin = OriginalRecord(topic, 0, Offset(number), at, key, value)
        failure = DecodeFailure(reason, detail, Side.VALUE, client=group, at=Millis(5))
        writer.write(origin, failure)
    writer.wait()
    writer.close()
