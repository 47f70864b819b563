"""A transaction left open in a compacted topic delays its compaction until it ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from penstock.errors import ErrorCode
from penstock.protocol.batch import iterate_headers
from penstock.protocol.records import read_records

Batch = Callable[..., bytearray]


def keys_in(wire: Any, topic: str) -> list[bytes | None]:
    """The keys of every data record in the log, committed or not."""
    keys: list[bytes | None] = []
    offset = 0
    while records := bytes(wire.fetch(topic, offset).records or b""):  # a segment at a time
        for position, header in iterate_headers(records):
            offset = header.end_offset
            if not header.is_control:
                keys += [record.key for record in read_records(records, position)]
    return keys


def test_an_abandoned_transaction_blocks_a_compacted_topic_until_its_timeout(
    start_broker: Any, reader_of: Any, make_handle: Any, make_batch: Batch
) -> None:
    broker = start_broker(log_cleaner_backoff_ms="50", log_retention_check_interval_ms="50")
    broker.create_internal_topic("__transaction_state")
    broker.create_topic(
        "c", cleanup_policy="compact", segment_ms="20", min_cleanable_dirty_ratio="0.01"
    )
    wire = broker.connect()
    reader = reader_of(wire)
    abandoned = make_handle(wire, "abandoned")
    assert abandoned.init(timeout_ms=4_000) == ErrorCode.none
    assert abandoned.produce(make_batch, "x", topic="c", key=b"deleted") == ErrorCode.none
    for number in range(25):
        time.sleep(0.03)  # each in a segment of its own
        wire.produce("c", make_batch((b"k", str(number).encode())))
    assert reader.state("abandoned")[1] == "Ongoing"
    assert keys_in(wire, "c") == [b"deleted", *[b"k"] * 25], "compacted past an open transaction"
    while reader.state("abandoned")[1] != "CompleteAbort":
        time.sleep(0.05)
    while len(keys_in(wire, "c")) > 5:
        time.sleep(0.03)
        wire.produce("c", make_batch((b"k", b"more")))  # rolls the active segment
    assert b"deleted" not in keys_in(wire, "c")
    wire.close()
