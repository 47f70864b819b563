"""The short way into a log that has no other replica, beside the long one: the same files."""

import shutil
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.config.views import LogSettings
from penstock.log import OpenFiles, PartitionLog
from penstock.model import LeaderEpoch, Millis, Offset
from penstock.protocol.batch import read_header
from penstock.protocol.records import build_batch

SMALL = LogSettings(
    segment_bytes=1_500,
    segment_ms=Millis(500),
    segment_index_bytes=10_000,
    index_interval_bytes=150,
    file_delete_delay_ms=Millis(100),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 400), st.integers(-1, 2_000)),
        st.tuples(st.just("append"), st.integers(0, 20), st.integers(0, 600)),
        st.tuples(st.just("full at"), st.sampled_from([500, 1_000, 3_000]), st.just(0)),
        st.tuples(st.just("index full at"), st.sampled_from([24, 48, 10_000]), st.just(0)),
        st.tuples(st.just("jitter"), st.integers(0, 400), st.just(0)),
        st.tuples(st.just("cut"), st.integers(0, 5), st.just(0)),
    ),
    min_size=10,
    max_size=60,
)


def do(log: PartitionLog, step: tuple[str, int, int], now: Millis, *, alone: bool) -> None:
    kind, first, second = step
    if kind == "full at":
        log.replace_settings(replace(log.settings, segment_bytes=first))
    elif kind == "index full at":
        log.replace_settings(replace(log.settings, segment_index_bytes=first))
    elif kind == "jitter":
        log.replace_settings(replace(log.settings, segment_jitter_ms=Millis(first)))
    elif kind == "cut":
        log.truncate_to(Offset(max(log.start_offset, log.end_offset - first)))
    else:
        batch = build_batch([(b"key", bytes(first))] * 2, timestamp=Millis(second))
        if alone:
            log.append_alone(batch, read_header(batch), leader_epoch=LeaderEpoch(1), now=now)
        else:
            log.append(batch, leader_epoch=LeaderEpoch(1), now=now)
            log.set_high_watermark(log.end_offset)


INODE_BYTES = 21  # twenty digits and the end of the line


def shown(log: PartitionLog, folder: Path) -> object:
    log.close()
    marks = (log.start_offset, log.end_offset, log.high_watermark, tuple(log.epochs.entries))
    contents = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    for name in contents:
        if name.endswith(".end"):
            contents[name] = contents[name][:-INODE_BYTES]  # another file has another inode
    return marks, contents


@settings(deadline=None, max_examples=60)
@given(STEPS)
def test_both_ways_leave_the_same_files(steps: list[tuple[str, int, int]]) -> None:
    seen = []
    with TemporaryDirectory() as name:
        folder = Path(name) / "orders-3"  # the same for both: jitter is by path
        for alone in (False, True):
            files = OpenFiles(8)
            log = PartitionLog.open(folder, SMALL, files, now=Millis(0), clean=True)
            for turn, step in enumerate(steps):
                do(log, step, Millis(turn * 100), alone=alone)
            seen.append(shown(log, folder))
            files.close_all()
            shutil.rmtree(folder)
    assert seen[0] == seen[1]
