"""A cluster whose brokers are in network namespaces of their own, so that links can be cut.

Each broker has the address 10.77.S.N on a bridge; the test's clients are on the bridge as well.
Needs root: `cannot_cut` says why there can be no such cluster.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.node.addresses import KAFKA_PORT
from penstock.node.broker_process import command_line
from penstock.node.supervisor import ChildProcess
from penstock.testing.embedded import EmbeddedBroker
from penstock.testing.embedded_cluster import EmbeddedCluster

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.node.broker_process import BrokerOptions

NO_SUCH_ADDRESS = "02:00:00:00:00:99"


def cannot_cut() -> str | None:
    """Why network namespaces cannot be used here, if they cannot."""
    if shutil.which("ip") is None:
        return "network cuts need `ip` (Debian: apt-get install iproute2)"
    if os.geteuid() != 0:
        return "only root may make network namespaces"
    name = f"pn{os.getpid()}try"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode:
        return "this machine does not allow network namespaces"
    _ip("netns", "delete", name)
    return None


class NetworkBroker(EmbeddedBroker):
    """A broker inside a network namespace."""

    def __init__(self, options: BrokerOptions, space: str) -> None:
        super().__init__(options=options)
        self._space = space

    def _make_process(self, options: BrokerOptions) -> ChildProcess:
        within = ["ip", "netns", "exec", self._space]
        return ChildProcess("broker", [*within, *command_line(options)])


class NetworkCluster(EmbeddedCluster):
    """Three brokers on three network stacks. Every cut stays until `join`."""

    def _make(
        self, shared: BrokerOptions, count: int, racks: Sequence[str]
    ) -> Iterator[EmbeddedBroker]:
        number = os.getpid() % 250 + 1
        self._net = f"10.77.{number}"
        self._stem = f"pn{os.getpid() % 100_000}"
        hosts = range(1, count + 1)
        voters = ",".join(f"{each}@{self._address(each)}:{KAFKA_PORT}" for each in hosts)
        for host in hosts:
            options = replace(
                shared,
                folder=str(self._folder / f"broker-{host}"),
                host=self._address(host),
                kafka_port=KAFKA_PORT,
                metrics_port=0,
                advertised=f"{self._address(host)}:{KAFKA_PORT}",
                insecure=True,
                node_id=host,
                voters=voters,
            )
            yield NetworkBroker(options, self._space(host))

    def start(self) -> NetworkCluster:
        """Make the network, then start the brokers."""
        if not self._has_network():
            self._make_network()
        super().start()
        return self

    def stop(self) -> None:
        """Stop the brokers; remove the network."""
        super().stop()
        for host in self.brokers:
            _ip("link", "delete", self._link(host), is_required=False)
            _ip("netns", "delete", self._space(host), is_required=False)
        _ip("link", "delete", self._bridge, is_required=False)

    def heal(self) -> None:
        """End all cuts and all other faults."""
        self.join()
        super().heal()

    # Cuts.

    def isolate(self, broker: int) -> None:
        """Take a broker's link down: neither brokers nor clients reach it."""
        _ip("link", "set", self._link(broker), "down")

    def cut(self, broker: int, other: int, *, silently: bool = False) -> None:
        """Let nothing pass between two brokers; clients reach both."""
        self.cut_one_way(broker, other, silently=silently)
        self.cut_one_way(other, broker, silently=silently)

    def cut_one_way(self, broker: int, other: int, *, silently: bool = False) -> None:
        """Let nothing pass from a broker to another.

        By a route on which sending fails, or silently: what is sent does not arrive.
        """
        if silently:
            self._within(
                broker, "neigh", "replace", self._address(other), "lladdr", NO_SUCH_ADDRESS,
                "dev", "eth0", "nud", "permanent",
            )  # fmt: skip
        else:
            self._within(broker, "route", "replace", "blackhole", f"{self._address(other)}/32")

    def join(self) -> None:
        """End all cuts."""
        for host in self.brokers:
            _ip("link", "set", self._link(host), "up")
            for other in self.brokers:
                if other == host:
                    continue
                with suppress(subprocess.CalledProcessError):  # there is none
                    self._within(host, "route", "delete", "blackhole", f"{self._address(other)}/32")
                with suppress(subprocess.CalledProcessError):
                    self._within(host, "neigh", "delete", self._address(other), "dev", "eth0")

    # The network itself.

    @property
    def _bridge(self) -> str:
        return f"{self._stem}br"

    def _space(self, host: int) -> str:
        return f"{self._stem}-{host}"

    def _link(self, host: int) -> str:
        return f"{self._stem}v{host}"

    def _address(self, host: int) -> str:
        return f"{self._net}.{host}"

    def _has_network(self) -> bool:
        shown = subprocess.run(
            ["ip", "link", "show", self._bridge], capture_output=True, check=False
        )
        return shown.returncode == 0

    def _make_network(self) -> None:
        _ip("link", "add", self._bridge, "type", "bridge")
        _ip("address", "add", f"{self._net}.254/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")
        for host in self.brokers:
            space, link = self._space(host), self._link(host)
            _ip("netns", "add", space)
            _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("link", "set", link, "master", self._bridge, "up")
            self._within(host, "address", "add", f"{self._address(host)}/24", "dev", "eth0")
            self._within(host, "link", "set", "eth0", "up")
            self._within(host, "link", "set", "lo", "up")

    def _within(self, host: int, *arguments: str) -> None:
        _ip("-netns", self._space(host), *arguments)


def _ip(*arguments: str, is_required: bool = True) -> None:
    subprocess.run(["ip", *arguments], capture_output=True, check=is_required)
