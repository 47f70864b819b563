"""The simulated clusters find what would lose records or metadata: each bug within 200 seeds."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.partition import Partition
from penstock.broker.quorum import quorum_state_file
from penstock.broker.quorum.quorum_node import QuorumNode
from penstock.consensus.replica.leader import InSyncReplicas
from penstock.errors import ErrorCode, Refused
from penstock.log.appendable_log import AppendableLog
from penstock.log.files import replace_file
from penstock.model import NodeId, Offset
from tests.support.cluster_simulation.scenario import run_seed
from tests.support.cluster_simulation.world import SimulationError

SEEDS = 200
THREE: dict[str, Any] = {
    "brokers": 3,
    "changes_voters": False,
}  # of three voters, no two may be away
Plant = Callable[[pytest.MonkeyPatch], None]


def ignore_proposed_sets(patch: pytest.MonkeyPatch) -> None:
    """The high watermark waits for the committed in-sync set only."""

    def counts(self: InSyncReplicas, replica: NodeId, _follower: object, *_: object) -> bool:
        return replica in self.isr

    patch.setattr(InSyncReplicas, "_counts", counts)


def ignore_epoch_starts(patch: pytest.MonkeyPatch) -> None:
    """A follower joins when it has what this leader knows to be committed."""

    def has_caught_up(self: InSyncReplicas, follower: Any) -> bool:
        return follower.fetched_at is not None and follower.end_offset >= self.high_watermark

    patch.setattr(InSyncReplicas, "_has_caught_up", has_caught_up)


def ignore_min_insync(patch: pytest.MonkeyPatch) -> None:
    """The high watermark moves with one replica in sync."""
    advance = InSyncReplicas._advance  # noqa: SLF001 - the rule that is broken here

    def always(self: Any) -> Offset:
        needed, self._min_insync = self._min_insync, 1
        try:
            return advance(self)
        finally:
            self._min_insync = needed

    patch.setattr(InSyncReplicas, "_advance", always)


def answer_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    """Metadata counts as soon as it is written."""

    def start_sync(self: Any) -> None:
        work = self.log.pending_sync()
        if work is not None and not self._is_syncing:
            self._is_syncing = True
            point = self.raft.sync_point()
            asyncio.get_running_loop().call_soon(self._on_synced, work, point)

    patch.setattr(QuorumNode, "_start_sync", start_sync)


def leave_votes_unsynced(patch: pytest.MonkeyPatch) -> None:
    """A vote is sent before it is on disk."""
    patch.setattr(
        quorum_state_file,
        "replace_file",
        lambda path, content, **_: replace_file(path, content, sync=False),
    )
    patch.setattr(quorum_state_file, "sync_folder", lambda _path: None)


def acknowledge_copies_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    """A follower under `flush.messages=1` fetches on before what it has is on disk."""
    waits_for_flush: Any = Partition.waits_for_flush
    patch.setattr(
        Partition,
        "waits_for_flush",
        property(lambda self: self.is_leader and waits_for_flush.fget(self)),
    )


def note_epochs_at_the_first_append(patch: pytest.MonkeyPatch) -> None:
    """A leader that writes nothing leaves no trace of its epoch."""
    patch.setattr(AppendableLog, "start_epoch", lambda _log, _epoch: None)


def refuse_after_the_append(patch: pytest.MonkeyPatch) -> None:
    """A batch is in the log when it is refused for too few replicas in sync."""
    append = Partition.append

    def append_and_refuse(self: Partition, *arguments: Any, **options: Any) -> Any:
        placed = append(self, *arguments, **options)
        if not self.has_min_insync:
            raise Refused(ErrorCode.not_enough_replicas, "refused too late")
        return placed

    patch.setattr(Partition, "append", append_and_refuse)
    patch.setattr(Partition, "check_min_insync", lambda _partition: None)


# With what finds it sooner than chance does.
BUGS: dict[Plant, dict[str, Any]] = {
    ignore_proposed_sets: {"faults": ("isolate", "cut_one_way", "crash", "slow_link", "pause")},
    ignore_epoch_starts: {
        "faults": ("crash_all", "crash", "slow_link", "slow_link", "slow_link"),
        "fault_interval_s": 0.6,
        "duration_s": 15.0,
        "look_s": 0.05,
    },
    note_epochs_at_the_first_append: {
        "faults": ("crash_all", "crash", "slow_link", "slow_link", "isolate"),
        "fault_interval_s": 0.4,
        "duration_s": 15.0,
        "look_s": 0.05,
    },
    ignore_min_insync: {"faults": ("isolate", "crash", "lose_power", "pause")},
    answer_before_the_sync: {"faults": ("lose_power", "isolate")},
    leave_votes_unsynced: {"faults": ("lose_power", "isolate")},
    refuse_after_the_append: {"faults": ("crash", "isolate"), "tries_once": True},
    acknowledge_copies_before_the_sync: {
        "faults": ("lose_all_power",),
        "flushes": True,
        "partitions": 3,
    },
}


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, tmp_path: Path) -> None:
    for seed in range(SEEDS):
        try:
            run_seed(seed, tmp_path, plant, **THREE, **BUGS[plant])
        except SimulationError:
            run_seed(seed, tmp_path / "as it is", **THREE, **BUGS[plant])  # finds nothing
            return
        shutil.rmtree(tmp_path / str(seed))
    pytest.fail(f"{SEEDS} seeds did not find it")
