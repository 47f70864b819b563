"""The brokers of a cluster on this machine: `penstock up --brokers 3`. Starts nothing.

Broker N has the N-th port and the folder `broker-N`. A folder keeps its number of brokers: those
that were its voters are started again, all of them.
"""

import socket
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from penstock.node.addresses import KAFKA_PORT, LOCALHOST
from penstock.node.broker_process import BrokerOptions
from penstock.node.listen_address import ANY_ADDRESS, bracketed
from penstock.node.supervisor import CannotStartError

SINGLE_BROKER_FILE: Final = "meta.properties"
GUIDE: Final = "docs/how-to/cluster.md describes how a single broker grows to a cluster"


def local_cluster(
    shared: BrokerOptions, folder: Path, count: int, racks: Sequence[str] = ()
) -> list[BrokerOptions]:
    """The options of each broker; `shared` are those that all have in common."""
    host = shared.advertised or shared.host or LOCALHOST
    ports = _ports(shared.host or LOCALHOST, shared.kafka_port, count)
    voters = [f"{number}@{bracketed(host)}:{port}" for number, port in enumerate(ports, 1)]
    return [
        replace(
            shared,
            folder=str(folder / f"broker-{number}"),
            ephemeral=False,
            kafka_port=port,
            advertised=f"{bracketed(host)}:{port}",
            metrics_port=_metrics_port(shared, number - 1),
            node_id=number,
            voters=",".join(voters),
            rack=racks[(number - 1) % len(racks)] if racks else None,
        )
        for number, port in enumerate(ports, 1)
    ]


def _metrics_port(shared: BrokerOptions, index: int) -> int | None:
    """Consecutive as well; any free one if the others are."""
    if shared.metrics_port:
        return shared.metrics_port + index
    return 0 if shared.kafka_port == 0 else shared.metrics_port


def check_folder(folder: Path, count: int) -> None:
    """CannotStartError if the folder belongs to another number of brokers."""
    if count > 1 and (folder / SINGLE_BROKER_FILE).exists():
        raise CannotStartError(
            f"{folder} has the data of a single broker: start it with --brokers 1, or choose "
            f"another --dir. {GUIDE}"
        )
    brokers = [*folder.glob("broker-*/")]
    if brokers and len(brokers) != count:
        raise CannotStartError(
            f"{folder} has the data of {len(brokers)} brokers: start it with --brokers "
            f"{len(brokers)}, or choose another --dir"
        )


def _ports(host: str, first: int | None, count: int) -> list[int]:
    """Consecutive ports; with 0 any that are free now."""
    if first != 0:
        start = KAFKA_PORT if first is None else first
        return list(range(start, start + count))
    with ExitStack() as held:  # all at the same time: no port twice
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        at = LOCALHOST if host in ANY_ADDRESS and family == socket.AF_INET else host
        listeners = [
            held.enter_context(socket.create_server((at, 0), family=family)) for _ in range(count)
        ]
        return [listener.getsockname()[1] for listener in listeners]
