"""Groups under faults: members crash, pause, lose replies, change their protocol and return with
old generations; the coordinator restarts from its log, and the log refuses writes. First faults,
with checks after each step; then everything heals, and every live member must get its share. A
failing seed replays exactly: `pytest -k "seed-<n>"`.
"""

from typing import Any

import pytest

from tests.support.group_simulation import World

SEEDS = 150  # of each kind of group
SEEDS_FAST = 60
PROTOCOLS = {
    "classic": ("classic",),
    "consumer": ("consumer",),
    "mixed": ("classic", "consumer"),
}


def seeds(first: int, end: int, *, slow: bool = False) -> list[Any]:
    marks = [pytest.mark.slow] if slow else []
    return [pytest.param(seed, id=f"seed-{seed}", marks=marks) for seed in range(first, end, 10)]


@pytest.mark.parametrize("first", [*seeds(0, SEEDS_FAST), *seeds(SEEDS_FAST, SEEDS, slow=True)])
@pytest.mark.parametrize("kind", PROTOCOLS)
def test_groups_stay_correct_under_faults_and_recover(kind: str, first: int) -> None:
    for seed in range(first, first + 10):
        try:
            World(seed, PROTOCOLS[kind]).run()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
