"""Thousands of histories from seeds, and proof that the simulator would notice a broken rule.

More seeds: `PENSTOCK_RAFT_SEEDS=50000 pytest tests/consensus/raft/test_simulation.py`, or
`python -m tests.support.raft_simulation --seeds 100000`.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.consensus.raft import Effects, RaftNode, Role, VoterSet, following, leading, voting
from penstock.consensus.raft import voter_changes as changes
from penstock.consensus.raft.replica import Replica
from penstock.consensus.raft.roles import Following, Leading
from penstock.model import Millis, Offset
from tests.support.raft_simulation import Simulation, run_seed, trace_of

SEEDS = int(os.environ.get("PENSTOCK_RAFT_SEEDS", "2000"))
CHUNK = 250
ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_no_history_breaks_a_promise_and_every_one_recovers(first: int) -> None:
    for seed in range(first, min(first + CHUNK, SEEDS)):
        run_seed(seed)


def test_a_seed_is_one_history() -> None:
    for seed in range(10):
        assert trace_of(seed) == trace_of(seed)


def test_a_history_does_not_depend_on_the_process() -> None:
    digests = set()
    for hash_seed in ("1", "2"):
        command = [
            sys.executable,
            "-m",
            "tests.support.raft_simulation",
            "--digest",
            "--seeds",
            "5",
        ]
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        result = subprocess.run(
            command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True
        )
        digests.add(result.stdout)
    assert len(digests) == 1


def is_detected(seeds: int = 2_000) -> bool:
    """Whether one of the seeds of the fast suite fails, by an invariant or by standing still."""
    for seed in range(seeds):
        try:
            Simulation(seed).run()
        except AssertionError:
            return True
    return False


def plant_unsynced_votes(patch: pytest.MonkeyPatch) -> None:
    """Messages leave before the quorum state that they follow from is on disk."""
    patch.setattr(Replica, "is_saved", property(lambda replica: True))


def plant_commit_by_count(patch: pytest.MonkeyPatch) -> None:
    """Records of earlier epochs count as committed once a majority has them."""
    patch.setattr(leading, "ends_in_own_epoch", lambda leading, offset: True)


def plant_two_changes(patch: pytest.MonkeyPatch) -> None:
    """The voters change while an earlier change is not committed."""
    patch.setattr(changes, "is_change_pending", lambda replica, leading: False)


def plant_unsynced_leader(patch: pytest.MonkeyPatch) -> None:
    """A leader counts its own end as soon as it has appended."""
    on_appended = RaftNode.on_appended

    def count_appended(
        node: RaftNode, now: Millis, voter_sets: list[tuple[Offset, VoterSet]] | tuple[()] = ()
    ) -> Effects:
        if node.role is Role.LEADER:
            replica = node._replica  # noqa: SLF001  # the bug is planted inside
            replica.synced_offset = replica.log.end_offset
        return on_appended(node, now, voter_sets)

    patch.setattr(RaftNode, "on_appended", count_appended)


def plant_endless_referrals(patch: pytest.MonkeyPatch) -> None:
    """Followers refer a prospective candidate to a dead leader, and it follows that again."""
    patch.setattr(following, "_is_outdated_referral", lambda replica, sender, leader_id: False)
    patch.setattr(
        voting,
        "_may_grant_pre_vote",
        lambda replica, vote: not isinstance(replica.role, Leading | Following),
    )


@pytest.mark.parametrize(
    "plant",
    [
        plant_unsynced_votes,
        plant_commit_by_count,
        plant_two_changes,
        plant_unsynced_leader,
        plant_endless_referrals,
    ],
)
def test_a_planted_bug_is_detected(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert is_detected()
