"""Groups under faults: members crash, pause, lose replies, change their protocol and return with
old generations; the coordinator restarts from its log, and the log refuses writes. First faults,
with checks after each step; then everything heals, and every live member must get its share. A
failing seed replays exactly: `pytest -k "seed-<n>"`.
"""

import pytest

from tests.support.group_simulation import World

SEEDS = 150  # of each kind of group
PROTOCOLS = {
    "classic": ("classic",),
    "consumer": ("consumer",),
    "mixed": ("classic", "consumer"),
}


@pytest.mark.parametrize("first", range(0, SEEDS, 10), ids=lambda seed: f"seed-{seed}")
@pytest.mark.parametrize("kind", PROTOCOLS)
def test_groups_stay_correct_under_faults_and_recover(kind: str, first: int) -> None:
    for seed in range(first, first + 10):
        try:
            World(seed, PROTOCOLS[kind]).run()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
