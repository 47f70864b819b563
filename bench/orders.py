"""Orders written into the log by `penstock gen orders`, on one broker with four partitions.

Two processes write orders of about 512 bytes as fast as they can; the environment variable ORDERS
has their number, by default 20 million. The limit is a million a second on two cores. CPU is that
of the writers and the broker together. The topic keeps 2 GB, so that the disk is not filled.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator

from bench.figures import LIMIT, Figure, report
from bench.peers import cost_of
from penstock.lab.lab_platform import LabPlatform, lab_platform

ORDERS = int(os.environ.get("ORDERS", "20000000"))
PARTITIONS = 4
KEPT = {"retention.bytes": str(512 << 20), "segment.bytes": str(128 << 20)}
PER_SECOND = 1_000_000


def measure() -> Iterator[Figure]:
    with lab_platform(None, None) as platform:
        for codec in ("none", "lz4"):
            topic = platform.make_topic(f"orders-{codec}", PARTITIONS, KEPT)
            with cost_of(os.getpid()) as cost:
                done = write(platform, topic, codec)
            cpu_s = cost.cpu_seconds + done["cpu_seconds"]
            name = f"gen orders, two processes, compression {codec}"
            yield Figure(name, ORDERS / done["seconds"], PER_SECOND, "orders/s", ">= 1.0")
            yield Figure(f"{name}: CPU", cpu_s / ORDERS * 1e6, None, "CPU us/order")


def write(platform: LabPlatform, topic: str, codec: str) -> dict[str, float]:
    """Run the command; what it reports, which includes the CPU time of its writers."""
    command = [
        sys.executable, "-m", "penstock", "gen", "orders", topic, "-n", str(ORDERS),
        "--instances", "2", "--compression", codec, "--json", "-b", platform.bootstrap,
        "-r", platform.registry_url,
    ]  # fmt: skip
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return dict(json.loads(done.stdout))


if __name__ == "__main__":
    report(measure(), __doc__, peer=LIMIT)
