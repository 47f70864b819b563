"""Apache Kafka's dump tool reads our `__transaction_state`."""

from pathlib import Path
from typing import Final

import pytest

from penstock.coordination.transactions.codec import write_event
from penstock.coordination.transactions.events import (
    Event,
    TransactionalIdExpired,
    TransactionSet,
)
from penstock.coordination.transactions.transaction_moves import (
    Transaction,
    TransactionState,
    completed,
    initialized,
    prepared,
    with_partitions,
)
from penstock.log import PartitionLog
from penstock.log.files import OpenFiles
from penstock.model import (
    NO_PRODUCER_EPOCH,
    LeaderEpoch,
    Millis,
    Moment,
    Offset,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)
from penstock.protocol.records import Record, build_batch
from tests.support.apache_kafka import run_tool
from tests.support.appending import append_batch
from tests.support.settings import default_log_settings

NOW: Final = Millis(1_700_000_000_000)


def after(span_ms: int) -> Moment:
    return Moment(Millis(span_ms), Millis(NOW + span_ms))


def history() -> list[Event]:
    """One transactional id from its first day to its last."""
    fresh = Transaction(
        "orders-1",
        ProducerId(4000),
        NO_PRODUCER_EPOCH,
        Millis(60_000),
        TransactionState.EMPTY,
        frozenset(),
        updated_at=NOW,
    )
    empty = initialized(
        fresh,
        producer_epoch=ProducerEpoch(0),
        last_producer_epoch=NO_PRODUCER_EPOCH,
        timeout_ms=Millis(60_000),
        now=after(0),
    )
    where = frozenset((TopicPartition("orders", 3), TopicPartition("bills", 1)))
    ongoing = with_partitions(empty, where, 2, after(1))
    preparing = prepared(
        ongoing,
        commit=True,
        raises_epoch=True,
        next_producer_id=ProducerId(5000),
        now=after(2),
    )
    done = completed(preparing, after(3))
    assert done.last_producer_epoch != NO_PRODUCER_EPOCH, "a tag that Apache Kafka does not know"
    return [
        *(TransactionSet(each) for each in (empty, ongoing, preparing, done)),
        TransactionalIdExpired("orders-1"),
    ]


@pytest.mark.interop
def test_the_dump_tool_reads_every_state(tmp_path: Path, kafka_libs: Path) -> None:
    folder = tmp_path / "__transaction_state-7"
    log = PartitionLog.open(folder, default_log_settings(), OpenFiles(16), now=NOW, clean=True)
    for event in history():
        record = write_event(event)
        batch = build_batch([Record(Offset(0), NOW, record.key, record.value, ())])
        append_batch(log, bytearray(batch), leader_epoch=LeaderEpoch(0), now=NOW, origin="internal")
    log.close()
    said = run_tool(
        kafka_libs,
        "org.apache.kafka.tools.DumpLogSegments",
        "--transaction-log-decoder",
        "--files",
        str(folder / "00000000000000000000.log"),
    )
    payloads = [line.split("payload: ")[1] for line in said.splitlines() if "payload: " in line]
    assert said.count('"transactionalId":"orders-1"') == 5
    assert len(payloads) == 5
    for state, payload in zip((0, 1, 2, 4), payloads, strict=False):
        assert f'"transactionStatus":{state}' in payload
    assert '"producerId":4000' in payloads[1]
    assert '"clientTransactionVersion":2' in payloads[1]
    assert '{"topic":"orders","partitionIds":[3]}' in payloads[1]
    assert '{"topic":"bills","partitionIds":[1]}' in payloads[1]
    assert '"nextProducerId":5000' in payloads[2]
    assert '"previousProducerId":4000' in payloads[3]
    assert '"producerId":5000' in payloads[3]
    assert payloads[4] == "<DELETE>"
