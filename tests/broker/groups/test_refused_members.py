"""Members of librdkafka go on after a coordinator that refused them for a while."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest

from penstock.coordination.groups.commands import (
    CommitOffsets,
    ConsumerHeartbeat,
    FetchOffsets,
    Join,
    Sync,
)
from penstock.errors import ErrorCode, Refused
from penstock.machine import NO_CALLER
from tests.support.wire import batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.coordination.groups.commands import Command
    from penstock.machine import CallerId
    from tests.broker.conftest import RunningBroker
    from tests.support.wire import Wire

RECORDS = 20
REFUSALS = 3  # of each kind of request
WITHIN_S = 30.0


def refuse_first(broker: RunningBroker, kind: type, code: ErrorCode) -> list[ErrorCode]:
    """Refuse the first requests of a kind; returns the list of refusals, which grows."""
    refused: list[ErrorCode] = []
    groups = broker.broker.groups
    submit = groups.submit

    def refuse(group_id: str, command: Callable[[CallerId], Command]) -> object:
        if isinstance(command(NO_CALLER), kind) and len(refused) < REFUSALS:
            refused.append(code)
            return Refused(code, "for the test")
        return submit(group_id, command)

    groups.submit = refuse  # type: ignore[method-assign]  # until the broker of this test ends
    return refused


def read_all(broker: RunningBroker, protocol: str) -> int:
    consumer: Any = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "readers",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.subscribe(["t"])
    count, give_up_at = 0, time.monotonic() + WITHIN_S
    is_committed = False
    while (count < RECORDS or not is_committed) and time.monotonic() < give_up_at:
        count += sum(message.error() is None for message in consumer.consume(RECORDS, 0.2))
        if count >= RECORDS:
            try:
                rows = consumer.commit(asynchronous=False)
            except confluent_kafka.KafkaException:
                continue
            is_committed = all(row.error is None for row in rows)
    consumer.close()
    assert is_committed
    return count


MOVED = (ErrorCode.coordinator_not_available, ErrorCode.not_coordinator)
LOADING = ErrorCode.coordinator_load_in_progress


@pytest.mark.parametrize(
    ("protocol", "kind", "code"),
    [
        (protocol, kind, code)
        for protocol, kinds in (
            ("consumer", (ConsumerHeartbeat, FetchOffsets)),
            ("classic", (Join, Sync, FetchOffsets)),
        )
        for kind in kinds
        for code in (LOADING, *MOVED)
    ]
    # After MOVED, librdkafka sends a commit again before it is connected to the coordinator, gives
    # the coordinator up for that, and so on until chance lets the connection be faster.
    + [("consumer", CommitOffsets, LOADING), ("classic", CommitOffsets, LOADING)],
)
def test_a_member_reads_and_commits_everything_after_refusals(
    broker: RunningBroker, wire: Wire, protocol: str, kind: type, code: ErrorCode
) -> None:
    broker.create_topic("t")
    for number in range(RECORDS):
        wire.produce("t", batch((b"%d" % number, b"value")))
    refused = refuse_first(broker, kind, code)
    assert read_all(broker, protocol) == RECORDS
    assert len(refused) == REFUSALS
