"""Every process of the platform that has metrics, in Prometheus' format of HTTP service discovery.

A process that was seen once stays in the list, so that Prometheus reports it as down instead of
forgetting it.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from penstock.model import NodeId

TARGETS_MAX: Final = 1000


class MetricsTargets:
    """All that were seen."""

    def __init__(self, own_address: str) -> None:
        self._labels: dict[str, dict[str, str]] = {own_address: {"process": "http"}}

    def add_brokers(self, urls: Mapping[NodeId, str]) -> None:
        """Where brokers serve their metrics."""
        for node_id, url in urls.items():
            labels = {"process": "broker", "node": str(node_id)}
            for address in [known for known, row in self._labels.items() if row == labels]:
                del self._labels[address]  # it was restarted on another port
            self._add(urlsplit(url).netloc, labels)

    def add_registry_nodes(self, members: Iterable[bytes]) -> None:
        """The nodes of the registry, as they describe themselves to their group."""
        for raw in members:
            try:
                sent = json.loads(raw)
                address = f"{sent['host']}:{sent['port']}"
            except (ValueError, KeyError, TypeError):
                continue  # of Confluent's registry, or no registry at all
            self._add(address, {"process": "http"})

    def _add(self, address: str, labels: dict[str, str]) -> None:
        if len(self._labels) < TARGETS_MAX:
            self._labels.setdefault(address, labels)

    def to_json(self) -> list[dict[str, Any]]:
        """As Prometheus reads it."""
        return [{"targets": [each], "labels": row} for each, row in self._labels.items()]
