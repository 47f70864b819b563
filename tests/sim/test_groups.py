"""Groups under faults: members crash, stall, lose answers, change their protocol and return with
old generations; the coordinator restarts from its log. First faults, with checks after each step;
then healed, and every live member must end with its part. A failing seed replays exactly:
`pytest -k "seed-<n>"`.
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
def test_faults_break_no_promise_and_healing_gives_everybody_a_part(kind: str, first: int) -> None:
    for seed in range(first, first + 10):
        try:
            World(seed, PROTOCOLS[kind]).run()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
