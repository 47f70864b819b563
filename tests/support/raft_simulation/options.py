"""What a seed decides before the first step: the cluster, how its network and disks behave, and
which faults it meets. Printed when a seed fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.consensus.raft import RaftSettings
from penstock.model import Millis

if TYPE_CHECKING:
    from random import Random

FAULTS: Final = (
    "crash_process",
    "crash_power",
    "crash_all",
    "pause",
    "cut_one_way",
    "isolate",
    "partition",
    "swizzle_clog",
    "jump_clock",
    "slow_disk",
    "change_voters",
    "snapshot",
    "resign",
    "lose_connection",
    "wipe_disk",
    "move_host",
)


@dataclass(frozen=True)
class Options:
    """One history's surroundings."""

    voters: int
    observers: int
    is_static: bool  # the configured voters have no directory ids
    is_single_broker: bool  # starts as a quorum of one that grows
    duration_ms: int
    fault_interval_ms: int
    proposal_interval_ms: int
    delay_max_ms: int
    long_delay_rate: float
    drop_rate: float
    duplicate_rate: float
    sync_max_ms: int
    fetch_count_max: int
    damage_rate: float  # how often fetched records or a snapshot cannot be used
    hint_rate: float  # how often a lost connection is noticed
    coup_rate: float  # how often a leader falls right after its election
    settings: RaftSettings
    faults: tuple[str, ...]

    @staticmethod
    def draw(rng: Random) -> Options:
        """Every seed leaves out some kinds of faults, so that the others come in rows."""
        is_single = rng.random() < 0.1
        return Options(
            voters=1 if is_single else rng.choice((1, 3, 3, 3, 3, 3, 5, 5)),
            observers=2 if is_single else rng.choice((0, 0, 1, 2)),
            is_static=rng.random() < 0.5,
            is_single_broker=is_single,
            duration_ms=rng.randrange(2_000, 9_000),
            fault_interval_ms=rng.choice((30, 60, 100, 200, 400, 1_000)),
            proposal_interval_ms=rng.choice((20, 60, 200)),
            delay_max_ms=rng.choice((1, 5, 20, 60)),
            long_delay_rate=rng.choice((0, 0, 0.02, 0.1)),
            drop_rate=rng.choice((0, 0, 0.02, 0.1)),
            duplicate_rate=rng.choice((0, 0, 0.05)),
            sync_max_ms=rng.choice((1, 5, 20, 100, 300)),
            fetch_count_max=rng.choice((1, 2, 100)),
            damage_rate=rng.choice((0, 0, 0, 0.05)),
            hint_rate=rng.choice((0, 0.5, 1)),
            coup_rate=rng.choice((0, 0, 0.5, 0.9)),
            settings=_draw_settings(rng),
            faults=tuple(rng.sample(FAULTS, rng.randint(1, 8))),
        )


def _draw_settings(rng: Random) -> RaftSettings:
    """The defaults in half of the seeds; else odd ones, which make rare branches common."""
    if rng.random() < 0.5:
        return RaftSettings()
    return RaftSettings(
        fetch_timeout_ms=Millis(rng.choice((400, 600, 1_500))),
        election_timeout_ms=Millis(rng.choice((100, 300, 1_000))),
        fetch_wait_max_ms=Millis(rng.choice((50, 200))),
        request_timeout_ms=Millis(rng.choice((250, 400))),
        retry_backoff_ms=Millis(rng.choice((5, 50, 200))),
    )
