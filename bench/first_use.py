"""Seconds until a new process has decoded its first Avro batch to Arrow, after `penstock warm`.

Each round starts a new process: interpreter, imports, loading of the compiled kernels
from their cache, the decoding itself. `make setup` calls `penstock warm`, so this is what a user
waits for at the first use. The limit is two seconds.
"""

import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

from bench.figures import LIMIT, Figure, report

ROUNDS = 5
LIMIT_S = 2.0
FIRST_USE = """
import numpy as np
from penstock.schemas.avro import parse
from penstock.serde.avro.batch import AvroBatchDecoder

schema = parse(
    '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"},'
    ' {"name": "country", "type": "string"}]}'
)
payload = np.frombuffer(bytes([14, 4]) + b"DE", dtype=np.uint8)
bounds = np.array([0], dtype=np.int64), np.array([len(payload)], dtype=np.int64)
batch, faults = AvroBatchDecoder(schema).decode(payload, *bounds)
assert batch.to_pylist() == [{"id": 7, "country": "DE"}], (batch, faults)
"""


class Spent(NamedTuple):
    """By one new process."""

    wall_s: float
    cpu_s: float


def first_use() -> Spent:
    """Run one process to its end."""
    started_s, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", FIRST_USE], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Spent(time.perf_counter() - started_s, cpu_s)


def measure() -> Iterator[Figure]:
    subprocess.run([sys.executable, "-m", "penstock", "warm"], check=True, capture_output=True)
    rounds = [first_use() for _ in range(ROUNDS)]
    wall_s = statistics.median(spent.wall_s for spent in rounds)
    cpu_s = statistics.median(spent.cpu_s for spent in rounds)
    note = "rounds " + " ".join(f"{spent.wall_s:.2f}" for spent in rounds)
    name = "first Avro batch to Arrow in a new process"
    yield Figure(name, wall_s, LIMIT_S, "s", "<= 1.0", note, LIMIT)
    yield Figure(f"{name}: CPU", cpu_s, None, "CPU-s")


if __name__ == "__main__":
    report(measure(), __doc__, peer=LIMIT)
