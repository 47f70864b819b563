"""The schema registry: reads by id and registrations, compared with Apicurio.

Reads run as fast as responses arrive, and at a constant rate. At the constant rate the registry
takes turns with a minimal server (`bench.floor`), both on the same core; the result is the median
of each percentile over the undisturbed rounds (`bench.host`).
"""

import contextlib
import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

import httpx

from bench.figures import LIMIT, Figure, report
from bench.floor import bare_server, hold_to_one_core, latency_limit_ms, run_load
from bench.host import Round, calm, timed
from bench.peers import cost_of
from penstock.node.http_process import HttpOptions, command_line
from penstock.testing.embedded import EmbeddedBroker
from tests.support.apicurio import VERSION, Apicurio, PeerUnavailableError

SCHEMAS = 200
RATE = 2_000
ROUNDS = 5
LIMIT_MS = 5.0
ANSWER_BYTES = 1_200  # of one schema, approximately
WARM_UP_SECONDS = 2.0
PEER_WARM_UP_SECONDS = 15.0  # its compiler takes that long to warm up


class RegistryRates(NamedTuple):
    """The results of one registry."""

    ids: list[int]
    per_second: float
    per_cpu_second: float
    registrations: float


def measure() -> Iterator[Figure]:
    """Each registry runs on one core, one after the other; the load runs on another core."""
    with EmbeddedBroker() as broker, node(broker.bootstrap) as (url, pid):
        ours = measure_one(url, pid, WARM_UP_SECONDS)
        steady, floor = by_turns(url, ours.ids)
    peer, note = None, "Apicurio 3, in memory"
    try:
        with Apicurio() as apicurio:
            peer = measure_one(apicurio.url, apicurio.pid, PEER_WARM_UP_SECONDS)
    except PeerUnavailableError as reason:
        note = f"no peer: {reason}"
    what = "GET /schemas/ids/{id}"
    yield Figure(
        f"{what} on one core", ours.per_second, peer and peer.per_second, "requests/s", ">= 3.0",
        note,
    )  # fmt: skip
    yield Figure(
        f"{what} per second of CPU", ours.per_cpu_second, peer and peer.per_cpu_second,
        "requests/s", ">= 3.0", note,
    )  # fmt: skip
    yield Figure(
        f"{what} on one core, limit 5 000", ours.per_second, 5_000, "requests/s", ">= 1.0",
        "", LIMIT,
    )  # fmt: skip
    at_rate = f"{what} at {RATE} requests/s"
    floor_ms, rounds = middle(floor, "p99_ms"), listed(steady, "p99_ms")
    yield Figure(
        f"{at_rate}, p99, limit 5 ms or 1.5 times a floor above 3 ms",
        middle(steady, "p99_ms"), latency_limit_ms(floor_ms, LIMIT_MS), "ms", "<= 1.0",
        f"rounds {rounds}; floor's {listed(floor, 'p99_ms')}", LIMIT, floor_ms,
    )  # fmt: skip
    yield Figure(
        f"{at_rate}, p50", middle(steady, "p50_ms"), None, "ms", floor=middle(floor, "p50_ms")
    )
    yield Figure(
        "first registrations, one client", ours.registrations, peer and peer.registrations,
        "registrations/s", note="Penstock stores on disk, Apicurio in memory",
    )  # fmt: skip


def by_turns(url: str, ids: Sequence[int]) -> tuple[list[Round], list[Round]]:
    """The undisturbed rounds at the constant rate: of Penstock, and of the floor."""
    steady, floor = [], []
    with bare_server(ANSWER_BYTES) as (bare_url, bare_pid):
        hold_to_one_core(bare_pid)
        for _ in range(ROUNDS):
            floor.append(timed(lambda: run_load(bare_url, ids, "--rate", str(RATE))))
            steady.append(timed(lambda: run_load(url, ids, "--rate", str(RATE))))
    return calm(steady), calm(floor)


def middle(rounds: Sequence[Round], name: str) -> float:
    """The median of one percentile."""
    return median(each.measured[name] for each in rounds)


def listed(rounds: Sequence[Round], name: str) -> str:
    """All values, to show how much they differ."""
    return " ".join(f"{each.measured[name]:.3g}" for each in rounds)


@contextlib.contextmanager
def node(kafka: str) -> Iterator[tuple[str, int]]:
    """A Penstock registry in its own process."""
    options = HttpOptions(kafka, http_port=0, log_level="WARNING")
    process = subprocess.Popen(command_line(options), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["http"], process.pid
    finally:
        process.terminate()
        process.wait(20)


def measure_one(url: str, pid: int, warm_up_s: float) -> RegistryRates:
    """Registrations with all cores, then reads with one."""
    ids, registrations = measure_writes(url)
    hold_to_one_core(pid)
    run_load(url, ids, "--seconds", "0.1", "--warm-up-seconds", str(warm_up_s))
    with cost_of(pid) as cost:
        closed = run_load(url, ids)
    per_cpu_second = closed["answers"] / cost.cpu_seconds
    return RegistryRates(ids, closed["per_second"], per_cpu_second, registrations)


def measure_writes(url: str) -> tuple[list[int], float]:
    """The ids for the reads, and registrations per second, one after another."""
    ids = []
    with httpx.Client(base_url=url, timeout=60) as http:
        started_s = time.perf_counter()
        for number in range(SCHEMAS):
            fields = [{"name": f"f{i}", "type": "string"} for i in range(20)]
            schema = {"type": "record", "name": f"R{number}", "fields": fields}
            answer = http.post(
                f"/subjects/s{number}/versions", json={"schema": json.dumps(schema)}
            ).raise_for_status()
            ids.append(int(answer.json()["id"]))
        return ids, SCHEMAS / (time.perf_counter() - started_s)


if __name__ == "__main__":
    report(measure(), __doc__, peer=f"Apicurio {VERSION}")
