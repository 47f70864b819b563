"""The metadata log as the Raft core sees it."""

import errno
from pathlib import Path

import pytest

from penstock.broker.quorum.metadata_log import MetadataLog
from penstock.consensus.raft import OffsetAndEpoch
from penstock.log import LogDirectory, OpenFiles
from penstock.machine import JournalRecord
from penstock.model import LeaderEpoch, Millis, TopicPartition
from tests.support.settings import default_log_settings

METADATA = TopicPartition("__cluster_metadata", 0)
RECORD = JournalRecord(b"key", b"value")


def refuse(_descriptor: int, _data: object, _position: int) -> int:
    raise OSError(errno.ENOSPC, "no space left on device")


def test_an_epoch_without_a_record_is_not_the_last_one_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would win elections against logs with more records, and never agree with a leader."""
    directory = LogDirectory.open(tmp_path, OpenFiles(8))
    log = MetadataLog(directory.open_partition(METADATA, default_log_settings(), now=Millis(0)))
    log.append_records([RECORD], LeaderEpoch(2), Millis(0))
    with monkeypatch.context() as patch:
        patch.setattr(OpenFiles, "write", staticmethod(refuse))
        with pytest.raises(OSError, match="no space"):
            log.append_records([RECORD], LeaderEpoch(3), Millis(0))
    assert (log.end_offset, log.last_epoch) == (1, 2)
    assert log.end_offset_for(LeaderEpoch(5)) == OffsetAndEpoch(log.end_offset, LeaderEpoch(2))
    log.append_records([RECORD], LeaderEpoch(4), Millis(0))
    assert log.last_epoch == LeaderEpoch(4)
    assert log.end_offset_for(LeaderEpoch(3)).epoch == LeaderEpoch(2)
    assert log.end_offset_for(LeaderEpoch(3)).offset == 1
    directory.close()
