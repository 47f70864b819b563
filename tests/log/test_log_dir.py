"""A log directory: its owner, clean and unclean stops, and the checkpoints of its partitions."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from penstock.log import (
    LogDirectory,
    LogDirectoryError,
    LogDirectoryIdentity,
    OpenFiles,
    PartitionLog,
    Segment,
    checkpoints,
    crash_recovery,
    partition_log,
)
from penstock.log import recovery as recovery_of_a_log
from penstock.log.checkpoints import (
    HIGH_WATERMARKS,
    RECOVERY_POINTS,
    START_OFFSETS,
    read_offsets,
    read_rows,
    write_offsets,
)
from penstock.log.log_dir import CLEAN_SHUTDOWN
from penstock.log.log_dir_identity import load_identity, load_topic_id, save_topic_id
from penstock.log.scan import DamagedLogError
from penstock.model import Millis, NodeId, Offset, TopicId, TopicPartition
from tests.support.settings import default_log_settings

ORDERS = TopicPartition("orders", 0)
DASHED = TopicPartition("a-b-c.d", 12)
TOPIC_ID = TopicId(UUID("12345678-1234-5678-1234-567812345678"))
OWNER = LogDirectoryIdentity("cluster-one", NodeId(1), UUID(int=7))

Fill = Callable[..., None]


def opened(path: Path) -> LogDirectory:
    return LogDirectory.open(path, OpenFiles(8), identity=OWNER)


def partition(folder: LogDirectory, name: TopicPartition = ORDERS) -> PartitionLog:
    return folder.open_partition(name, default_log_settings(), topic_id=TOPIC_ID, now=Millis(0))


def test_a_clean_stop_is_known_at_the_next_start_only(tmp_path: Path, fill: Fill) -> None:
    folder = opened(tmp_path)
    assert not folder.was_clean
    fill(partition(folder), 10)
    folder.close()
    assert (tmp_path / CLEAN_SHUTDOWN).exists()
    again = opened(tmp_path)
    assert again.was_clean
    assert not (tmp_path / CLEAN_SHUTDOWN).exists()
    log = partition(again)
    assert (log.end_offset, log.high_watermark, log.recovery_point) == (10, 10, 10)
    again.release()  # as a kill would
    assert not opened(tmp_path).was_clean


def test_a_large_log_is_recovered_before_it_is_opened(
    tmp_path: Path, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = opened(tmp_path)
    log = partition(folder)
    fill(log, 10)
    log.flush()
    fill(log, 10)
    fill(partition(folder, DASHED), 10)
    folder.plan_checkpoint().run()
    folder.release()  # as a kill would
    path = tmp_path / "orders-0" / "00000000000000000000.log"
    whole_bytes = path.stat().st_size
    with path.open("ab") as file:
        file.write(bytes(100))  # a batch that was not written completely
    monkeypatch.setattr(crash_recovery, "CHECKED_BYTES_MIN", whole_bytes)
    monkeypatch.setattr(partition_log, "_SMALL_BYTES", 0)
    again = opened(tmp_path)
    recovery = again.plan_recovery(lambda _name: default_log_settings(), Millis(0))
    recovery.run()
    assert set(recovery.checked) == {ORDERS}
    assert path.stat().st_size == whole_bytes
    monkeypatch.setattr(recovery_of_a_log, "_index_batches", None)  # it scans nothing again
    log = partition(again)
    assert (log.end_offset, log.recovery_point) == (20, 10)
    again.release()


def test_a_log_that_cannot_be_recovered_is_reported_when_it_is_opened(
    tmp_path: Path, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = opened(tmp_path)
    log = partition(folder)
    fill(log, 10)
    log.flush()
    folder.plan_checkpoint().run()
    folder.release()
    (tmp_path / "orders-0" / "00000000000000000000.log").write_bytes(b"")
    monkeypatch.setattr(crash_recovery, "CHECKED_BYTES_MIN", 0)
    again = opened(tmp_path)
    recovery = again.plan_recovery(lambda _name: default_log_settings(), Millis(0))
    recovery.run()
    assert recovery.checked == {}
    with pytest.raises(DamagedLogError, match="was on disk up to 10"):
        partition(again)
    again.release()


def test_truncations_that_are_planned_together_write_the_checkpoints_once(
    tmp_path: Path, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = opened(tmp_path)
    logs = [partition(folder), partition(folder, DASHED)]
    for log in logs:
        fill(log, 10)
        log.flush()
        log.set_high_watermark(Offset(10))
    folder.plan_checkpoint().run()
    written: list[str] = []
    write = checkpoints.write_offsets

    def note(path: Path, offsets: dict[TopicPartition, Offset]) -> None:
        written.append(path.name)
        write(path, offsets)

    monkeypatch.setattr(checkpoints, "write_offsets", note)
    truncations = [log.plan_truncation(Offset(4)) for log in logs]
    for truncation in truncations:
        assert truncation is not None
        truncation.run()
    assert sorted(written) == sorted([START_OFFSETS, RECOVERY_POINTS, HIGH_WATERMARKS])
    assert read_offsets(tmp_path / RECOVERY_POINTS) == {ORDERS: 4, DASHED: 4}
    folder.release()


def test_partitions_are_found_with_their_topic_ids(tmp_path: Path) -> None:
    folder = opened(tmp_path)
    partition(folder)
    partition(folder, DASHED)
    (tmp_path / "not a partition").mkdir()
    assert sorted(folder.partitions_on_disk()) == [DASHED, ORDERS]
    assert load_topic_id(tmp_path / "orders-0") == TOPIC_ID
    text = (tmp_path / "orders-0" / "partition.metadata").read_text()
    assert text == "version: 0\ntopic_id: EjRWeBI0VngSNFZ4EjRWeA"
    folder.close()


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    folder = opened(tmp_path)
    with pytest.raises(LogDirectoryError, match="in use by another broker"):
        opened(tmp_path)
    folder.close()
    opened(tmp_path).close()


def test_the_directory_of_another_broker_is_refused(tmp_path: Path) -> None:
    opened(tmp_path).close()
    assert load_identity(tmp_path) == OWNER
    stranger = OWNER._replace(node_id=NodeId(2))
    with pytest.raises(LogDirectoryError, match="belongs to node 1"):
        LogDirectory.open(tmp_path, OpenFiles(8), identity=stranger)
    opened(tmp_path).close()


def test_checkpoints_have_kafkas_format_and_keep_closed_partitions(
    tmp_path: Path, fill: Fill
) -> None:
    folder = opened(tmp_path)
    log = partition(folder)
    fill(log, 10)
    log.advance_start_offset(Offset(4), Millis(0))
    log.flush()
    fill(log, 1)
    folder.plan_checkpoint().run()
    assert (tmp_path / RECOVERY_POINTS).read_text() == "0\n1\norders 0 10\n"
    assert (tmp_path / START_OFFSETS).read_text() == "0\n1\norders 0 4\n"
    assert (tmp_path / HIGH_WATERMARKS).read_text() == "0\n1\norders 0 11\n"
    folder.release()
    other = opened(tmp_path)
    partition(other, DASHED)
    other.plan_checkpoint().run()
    assert read_offsets(tmp_path / START_OFFSETS) == {ORDERS: 4}
    assert partition(other).start_offset == 4
    other.close()


def test_a_stop_is_not_clean_while_partitions_wait_for_recovery(tmp_path: Path, fill: Fill) -> None:
    folder = opened(tmp_path)
    fill(partition(folder), 3)
    folder.release()
    unclean = opened(tmp_path)
    unclean.close()
    assert not opened(tmp_path).was_clean


def test_a_deleted_partition_is_renamed_and_removed_later(tmp_path: Path, fill: Fill) -> None:
    folder = opened(tmp_path)
    log = partition(folder)
    fill(log, 10)
    view = log.read(Offset(0), max_bytes=10_000).view
    folder.delete_partition(ORDERS, token="0" * 32, now=Millis(0))
    assert folder.partitions_on_disk() == []
    assert (tmp_path / f"orders-0.{'0' * 32}-delete").is_dir()
    assert partition(folder).end_offset == 0, "the name is free"
    assert folder.remove_deleted(Millis(59_999)) == 0
    assert folder.remove_deleted(Millis(60_000)) == 1
    assert len(list(tmp_path.glob("*-delete"))) == 0
    assert len(view) > 0
    folder.close()


def test_a_start_completes_deletions(tmp_path: Path) -> None:
    (tmp_path / "orders-0.abc-delete").mkdir()
    opened(tmp_path).close()
    assert not list(tmp_path.glob("*-delete"))


@pytest.mark.parametrize("is_made_before_the_kill", [True, False])
def test_a_partition_gets_nothing_from_a_deleted_one_of_the_same_name(
    tmp_path: Path, fill: Fill, is_made_before_the_kill: bool
) -> None:
    folder = opened(tmp_path)
    log = partition(folder)
    fill(log, 100)
    log.advance_start_offset(Offset(80), Millis(0))
    folder.plan_checkpoint().run()
    folder.delete_partition(ORDERS, token="0" * 32, now=Millis(0))
    if is_made_before_the_kill:
        fill(partition(folder), 50)
    folder.release()
    again = partition(opened(tmp_path))
    if not is_made_before_the_kill:
        fill(again, 50)
    assert (again.start_offset, again.end_offset) == (0, 50)


def test_a_partition_whose_deletion_failed_is_not_opened_as_its_successor(
    tmp_path: Path, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: object, target: object) -> None:
        raise OSError(errno.EIO, "no")

    folder = opened(tmp_path)
    fill(partition(folder), 10)
    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", refuse)
        with pytest.raises(OSError, match="no"):
            folder.delete_partition(ORDERS, token="0" * 32, now=Millis(0))
        with pytest.raises(OSError, match="no"):
            partition(folder)
    assert partition(folder).end_offset == 0
    folder.close()


def test_a_folder_of_another_topic_of_that_name_is_not_touched(tmp_path: Path, fill: Fill) -> None:
    """As when the controller's log was lost, and clients created their topics again."""
    folder = opened(tmp_path)
    fill(partition(folder), 3)
    folder.close()
    again, other_id = opened(tmp_path), TopicId(UUID(int=6))
    with pytest.raises(OSError, match="move the folder away"):
        again.open_partition(ORDERS, default_log_settings(), topic_id=other_id, now=Millis(0))
    (tmp_path / "orders-0").rename(tmp_path / "aside")
    log = again.open_partition(ORDERS, default_log_settings(), topic_id=other_id, now=Millis(0))
    assert log.end_offset == 0
    assert load_topic_id(tmp_path / "aside") == TOPIC_ID


@pytest.mark.parametrize("content", [None, b"", b"version: 0\ntopic_id: AAAA"])
def test_a_partition_whose_topic_id_was_lost_gets_it_back(
    tmp_path: Path, fill: Fill, content: bytes | None
) -> None:
    folder = opened(tmp_path)
    fill(partition(folder), 3)
    folder.close()
    path = tmp_path / "orders-0" / "partition.metadata"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    assert partition(opened(tmp_path)).end_offset == 3
    assert load_topic_id(path.parent) == TOPIC_ID


def test_a_log_that_cannot_be_closed_is_recovered_and_the_others_are_closed(
    tmp_path: Path, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Segment) -> None:
        if "orders" in self.folder:
            raise OSError(errno.ENOSPC, "no headroom")
        write_indexes(self)

    folder = opened(tmp_path)
    for name in (ORDERS, DASHED):
        fill(partition(folder, name), 100, size=1000)
    write_indexes = Segment.write_indexes
    with monkeypatch.context() as patched:
        patched.setattr(Segment, "write_indexes", refuse)
        folder.close()
    assert read_offsets(tmp_path / RECOVERY_POINTS) == {DASHED: 100}
    again = opened(tmp_path)
    assert not again.was_clean
    assert partition(again).end_offset == partition(again, DASHED).end_offset == 100
    again.close()


@pytest.mark.parametrize(
    "text", ["", "0\n", "1\n0\n", "0\n2\norders 0 1\n", "0\n1\nrubbish\n", "\xff"]
)
def test_a_damaged_checkpoint_counts_as_absent(tmp_path: Path, text: str) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(text.encode("latin-1"))
    assert read_offsets(path) == {}


def test_checkpoints_come_back_as_written(tmp_path: Path) -> None:
    offsets = {ORDERS: Offset(1 << 40), DASHED: Offset(0)}
    write_offsets(tmp_path / "checkpoint", offsets)
    assert read_offsets(tmp_path / "checkpoint") == offsets
    assert read_rows(tmp_path / "missing") is None


def test_a_damaged_topic_id_counts_as_absent(tmp_path: Path) -> None:
    save_topic_id(tmp_path, TopicId(UUID(int=5)))
    assert load_topic_id(tmp_path) == TopicId(UUID(int=5))
    (tmp_path / "partition.metadata").write_text("version: 0\ntopic_id: AAAA")
    assert load_topic_id(tmp_path) is None


def test_a_partition_whose_folder_was_removed_is_refused_until_it_is_restored(
    tmp_path: Path, fill: Fill
) -> None:
    folder = opened(tmp_path)
    fill(partition(folder), 3)
    folder.close()
    aside = (tmp_path / "orders-0").rename(tmp_path / "aside")
    again = opened(tmp_path)
    for _ in range(2):  # at the start, and when it is tried again later
        with pytest.raises(OSError, match="is missing, and had records up to offset 3"):
            partition(again)
        again.started()
    assert not (tmp_path / "orders-0").exists()
    aside.rename(tmp_path / "orders-0")
    assert partition(again).end_offset == 3
    again.close()


def test_a_topic_that_was_created_again_does_not_need_a_removed_folder(
    tmp_path: Path, fill: Fill
) -> None:
    folder = opened(tmp_path)
    fill(partition(folder), 3)
    folder.close()
    (tmp_path / "orders-0").rename(tmp_path / "aside")
    again = opened(tmp_path)
    with pytest.raises(OSError, match="is missing"):
        partition(again)
    again.started()
    other_id = TopicId(UUID(int=6))
    log = again.open_partition(ORDERS, default_log_settings(), topic_id=other_id, now=Millis(0))
    assert log.end_offset == 0


def test_setting_the_offsets_of_a_removed_partition_to_zero_starts_it_empty(
    tmp_path: Path, fill: Fill
) -> None:
    folder = opened(tmp_path)
    fill(partition(folder), 3)
    folder.close()
    (tmp_path / "orders-0").rename(tmp_path / "aside")
    for name in (RECOVERY_POINTS, HIGH_WATERMARKS):
        (tmp_path / name).write_text("0\n1\norders 0 0\n")
    assert partition(opened(tmp_path)).end_offset == 0


def test_a_first_segment_that_was_removed_after_a_clean_stop_is_reported(
    tmp_path: Path, fill: Fill
) -> None:
    settings = default_log_settings(segment_bytes=2_000)
    folder = opened(tmp_path)
    log = folder.open_partition(ORDERS, settings, topic_id=TOPIC_ID, now=Millis(0))
    fill(log, 60)
    log.advance_start_offset(Offset(1), Millis(0))
    first = log.segments[0].paths()
    folder.close()
    for path in first:
        Path(path).unlink(missing_ok=True)
    with pytest.raises(OSError, match="instead of 1: restore it from a copy"):
        partition(opened(tmp_path))


def test_checkpoints_of_a_renamed_folder_do_not_apply_to_its_successor(
    tmp_path: Path, fill: Fill
) -> None:
    folder = opened(tmp_path)
    fill(partition(folder), 3)
    folder.close()
    again = opened(tmp_path)
    again.set_aside(ORDERS, "0" * 32)
    again.release()
    assert partition(opened(tmp_path)).end_offset == 0


@pytest.mark.parametrize("topic", ["orders", "a" * 249])
def test_a_deleted_partition_is_not_reported_as_missing_after_a_kill(
    tmp_path: Path, fill: Fill, topic: str
) -> None:
    name = TopicPartition(topic, 0)
    folder = opened(tmp_path)
    fill(partition(folder, name), 3)
    folder.plan_checkpoint().run()
    folder.delete_partition(name, token="0" * 32, now=Millis(0))
    assert folder.has_deleted_rows
    removable = folder.take_deleted(Millis(60_000))  # before a checkpoint could be written
    folder.remove_folders(removable, keep_names=folder.has_deleted_rows)
    assert [list(path.iterdir()) for path in tmp_path.glob("*-delete")] == [[]]
    folder.release()
    again = opened(tmp_path)
    assert not list(tmp_path.glob("*-delete"))
    assert partition(again, name).end_offset == 0
    again.close()
