"""python -m tests.support.raft_simulation --seeds 100000 [--first 0]: many seeds in a row.

`--trace SEED` prints every step of one, `--digest` a checksum of the traces instead of results.
"""

import argparse
import hashlib
import sys
from collections.abc import Sequence

from tests.support.raft_simulation.simulation import run_seed, trace_of


def main(arguments: Sequence[str] | None = None) -> int:
    """The number of seeds that failed, at most 100."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.raft_simulation")
    parser.add_argument("--seeds", type=int, default=2_000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--trace", type=int, metavar="SEED", help="print every step of one seed")
    parser.add_argument("--digest", action="store_true", help="print a checksum of all traces")
    options = parser.parse_args(arguments)
    seeds = range(options.first, options.first + options.seeds)
    if options.trace is not None:
        _say("\n".join(trace_of(options.trace)))
        return 0
    if options.digest:
        _say(digest(seeds))
        return 0
    return _run(seeds)


def digest(seeds: Sequence[int]) -> str:
    """A checksum of everything that happens in these seeds."""
    checksum = hashlib.sha256()
    for seed in seeds:
        checksum.update("\n".join(trace_of(seed)).encode())
    return checksum.hexdigest()


def _run(seeds: range) -> int:
    failures = steps = recovery_ms = 0
    for seed in seeds:
        try:
            simulation = run_seed(seed)
        except AssertionError as error:
            failures += 1
            _say(f"{error}\n")
        else:
            steps += simulation.world.steps
            recovery_ms = max(recovery_ms, simulation.recovery_ms)
        if (seed + 1) % 1_000 == 0:
            _say(f"{seed + 1 - seeds.start} seeds, {steps} steps, {failures} failed")
    _say(f"{failures} of {len(seeds)} failed; the slowest recovery took {recovery_ms} virtual ms")
    return min(failures, 100)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
