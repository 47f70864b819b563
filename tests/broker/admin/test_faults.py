"""A controller whose log cannot be written refuses changes, and recovers."""

import errno
import time
from typing import Any

import pytest

from penstock.errors import ErrorCode

REQUESTED = {"topics": [{"name": "a", "num_partitions": 1, "replication_factor": 1}]}


def test_a_full_disk_refuses_changes_until_there_is_space(
    wire: Any, broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("before")
    log = broker.broker.quorum.log

    def full(*args: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(log, "append_records", full)
        (refused,) = wire.call(19, 7, **REQUESTED).topics
        assert refused.error_code == ErrorCode.not_controller
        assert [topic.name for topic in wire.call(3, 12, topics=None).topics] == ["before"]
    give_up_at = time.monotonic() + 20
    while True:
        (created,) = wire.call(19, 7, **REQUESTED).topics
        if created.error_code == ErrorCode.none or time.monotonic() > give_up_at:
            break
        time.sleep(0.1)
    assert created.error_code == ErrorCode.none
    assert {topic.name for topic in wire.call(3, 12, topics=None).topics} == {"before", "a"}


def test_a_partition_that_cannot_be_opened_leaves_the_others_serving(
    wire: Any, broker: Any, monkeypatch: pytest.MonkeyPatch, make_batch: Any
) -> None:
    store = broker.partitions._store  # noqa: SLF001 - the broken disk behind the table
    opened = store.open

    def broken(topic_partition: Any, *args: Any) -> Any:
        if topic_partition.partition == 1:
            raise OSError(errno.EIO, "input/output error")
        return opened(topic_partition, *args)

    monkeypatch.setattr(store, "open", broken)
    broker.create_topic("a", 2)
    assert wire.produce("a", make_batch()).error_code == ErrorCode.none
    assert wire.produce("a", make_batch(), partition=1).error_code != ErrorCode.none
    monkeypatch.setattr(store, "open", opened)  # the disk works again
    give_up_at = time.monotonic() + 20
    while wire.produce("a", make_batch(), partition=1).error_code != ErrorCode.none:
        assert time.monotonic() < give_up_at, "the partition stays offline"
        time.sleep(0.05)
