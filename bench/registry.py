"""The schema registry beside Apicurio: reads by id, closed and at a steady rate; registrations."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import httpx

from bench.figures import Figure, report
from bench.peers import cost_of
from penstock.node.http_process import HttpOptions, command_line
from penstock.testing.apicurio import Apicurio, PeerUnavailable
from penstock.testing.embedded import EmbeddedBroker

SCHEMAS = 200
RATE = 2_000
SERVER_CORE = 0
WARM_UP_SECONDS = 2.0
PEER_WARM_UP_SECONDS = 15.0  # its compiler takes that long to get up to speed


class Found(NamedTuple):
    """What one registry did."""

    ids: list[int]
    per_second: float
    per_cpu_second: float
    registrations: float


def measure() -> Iterator[Figure]:
    """Each registry is held to one core, one after the other; the load runs on another core."""
    with EmbeddedBroker() as broker, node(broker.bootstrap) as (url, pid):
        ours = measure_one(url, pid, WARM_UP_SECONDS)
        steady = run_load(url, ours.ids, "--rate", str(RATE))
    peer, note = None, "Apicurio 3, in memory"
    try:
        with Apicurio() as apicurio:
            peer = measure_one(apicurio.url, apicurio.pid, PEER_WARM_UP_SECONDS)
    except PeerUnavailable as reason:
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
        f"{what} on one core: the bar is 5 000", ours.per_second, 5_000, "requests/s", ">= 1.0"
    )
    at_rate = f"{what} at {RATE} requests/s"
    yield Figure(f"{at_rate}, p99: the bar is 5 ms", steady["p99_ms"], 5.0, "ms", "<= 1.0")
    yield Figure(f"{at_rate}, p50", steady["p50_ms"], None, "ms")
    yield Figure(
        "first registrations, one client", ours.registrations, peer and peer.registrations,
        "registrations/s", note="ours go to a log on disk, the peer's into memory",
    )  # fmt: skip


@contextlib.contextmanager
def node(kafka: str) -> Iterator[tuple[str, int]]:
    """A registry of ours in a process of its own."""
    options = HttpOptions(kafka, http_port=0, log_level="WARNING")
    process = subprocess.Popen(command_line(options), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["http"], process.pid
    finally:
        process.terminate()
        process.wait(20)


def measure_one(url: str, pid: int, warm_up_s: float) -> Found:
    """Registrations with all cores, then reads with one."""
    ids, registrations = measure_writes(url)
    hold_to_one_core(pid)
    run_load(url, ids, "--seconds", "0.1", "--warm-up-seconds", str(warm_up_s))
    with cost_of(pid) as cost:
        closed = run_load(url, ids)
    per_cpu_second = closed["answers"] / cost.cpu_seconds
    return Found(ids, closed["per_second"], per_cpu_second, registrations)


def hold_to_one_core(pid: int) -> None:
    """All threads of the process; those it starts later follow."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread), {SERVER_CORE})


def measure_writes(url: str) -> tuple[list[int], float]:
    """The ids of what is read later, and registrations per second, one after another."""
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


def run_load(url: str, ids: Sequence[int], *options: str) -> dict[str, float]:
    """The load in a process of its own, on another core where there is one."""
    other = max(set(range(os.cpu_count() or 1)) - {SERVER_CORE}, default=SERVER_CORE)
    listed = ",".join(map(str, ids))
    done = subprocess.run(
        [sys.executable, "-m", "bench.registry_load", url, listed, "--core", str(other), *options],
        stdout=subprocess.PIPE, check=True, text=True,
    )  # fmt: skip
    return dict(json.loads(done.stdout))


if __name__ == "__main__":
    report(measure(), __doc__)
