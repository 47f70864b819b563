"""Apache Kafka's own DumpLogSegments reads every file of our log and finds nothing to say."""

import re
from pathlib import Path

import pytest

from penstock.log import OpenFiles, PartitionLog
from penstock.model import LeaderEpoch, Millis, Offset, ProducerEpoch, ProducerId, SequenceNumber
from penstock.protocol.control_records import build_marker
from penstock.protocol.records import build_batch
from tests.support.apache_kafka import run_tool
from tests.support.appending import append_batch
from tests.support.settings import default_log_settings

pytestmark = [pytest.mark.interop, pytest.mark.slow]

TOOL = "org.apache.kafka.tools.DumpLogSegments"
COMPLAINT = re.compile(r"mismatch|corrupt|invalid|exception|not found|error", re.IGNORECASE)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> PartitionLog:
    """Several segments: every codec, two transactional producers, aborts, three leader epochs."""
    log = PartitionLog.open(
        tmp_path_factory.mktemp("log") / "orders-0",
        default_log_settings(segment_bytes=30_000),
        OpenFiles(8),
        now=Millis(0),
        clean=True,
    )
    for number in range(300):
        epoch = LeaderEpoch(number // 100)
        for producer in (7, 8):
            batch = build_batch(
                [(b"key", b"v" * 100)] * 3,
                timestamp=Millis(1_000 + number),
                codec=number % 5,
                producer_id=ProducerId(producer),
                producer_epoch=ProducerEpoch(0),
                base_sequence=SequenceNumber(number * 3),
                transactional=True,
            )
            append_batch(log, batch, leader_epoch=epoch, now=Millis(0))
            if number % (producer - 2) == 4:
                marker = build_marker(
                    commit=number % 2 == 0,
                    producer_id=ProducerId(producer),
                    producer_epoch=ProducerEpoch(0),
                    coordinator_epoch=1,
                    timestamp=Millis(1_000 + number),
                )
                append_batch(log, marker, leader_epoch=epoch, now=Millis(0), origin="marker")
    log.set_high_watermark(log.end_offset)
    log.close()
    assert len(log.segments) > 2
    return log


def dump(libraries: Path, log: PartitionLog, suffix: str, *options: str) -> str:
    paths = sorted(str(path) for path in log.folder.glob(f"*{suffix}"))
    assert paths
    said = run_tool(libraries, TOOL, *options, "--files", ",".join(paths))
    # The tool compares the first offset of a file with -1: it says so of any segment but the first.
    said = re.sub(r"Non-consecutive offsets in .*\n(  -1 is followed by .*\n)", "", said)
    assert not COMPLAINT.search(said), said
    assert "Non-consecutive" not in said
    return said


def test_every_record_is_there(log: PartitionLog, kafka_libs: Path) -> None:
    said = dump(kafka_libs, log, ".log", "--deep-iteration")
    offsets = [int(offset) for offset in re.findall(r"^\| offset: (\d+)", said, re.MULTILINE)]
    assert sorted(offsets) == list(range(log.end_offset))
    assert said.count("isvalid: true") == said.count("baseOffset: ")


def test_offset_indexes_lead_to_their_batches(log: PartitionLog, kafka_libs: Path) -> None:
    said = dump(kafka_libs, log, ".index")
    assert len(re.findall(r"^offset: \d+ position: \d+", said, re.MULTILINE)) > 10
    dump(kafka_libs, log, ".index", "--verify-index-only")


def test_indexes_pass_the_sanity_check(log: PartitionLog, kafka_libs: Path) -> None:
    for suffix in (".index", ".timeindex"):
        said = dump(kafka_libs, log, suffix, "--index-sanity-check")
        assert said.count("passed sanity check") == len(log.segments)


def test_time_indexes_agree_with_the_records(log: PartitionLog, kafka_libs: Path) -> None:
    said = dump(kafka_libs, log, ".timeindex")
    stamps = [int(stamp) for stamp in re.findall(r"^timestamp: (\d+)", said, re.MULTILINE)]
    assert max(stamps) == 1_299
    dump(kafka_libs, log, ".timeindex", "--verify-index-only")


def test_aborted_transactions_are_listed(log: PartitionLog, kafka_libs: Path) -> None:
    said = dump(kafka_libs, log, ".txnindex")
    row = r"producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)"
    rows = [tuple(map(int, found)) for found in re.findall(row, said)]
    assert rows == [tuple(a) for a in log.aborted_transactions(Offset(0), log.end_offset)]


def test_snapshots_hold_the_producers(log: PartitionLog, kafka_libs: Path) -> None:
    newest = f"{log.end_offset:020d}.snapshot"
    said = dump(kafka_libs, log, newest)
    last = dict(re.findall(r"producerId: (\d+) .* lastSequence: (\d+)", said))
    assert last == {"7": "899", "8": "899"}
