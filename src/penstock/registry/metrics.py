"""The metrics of a registry node, read from its state when it is scraped."""

from collections.abc import Iterator, Mapping
from typing import Final

from penstock.metrics import http_rows as rows
from penstock.metrics.text_format import Family
from penstock.model import Offset
from penstock.registry.http.front import Front
from penstock.registry.registry_node import RegistryNode

CLOSED_REASONS: Final = ("limit", "late", "large")


def registry_families(node: RegistryNode, front: Front, log_end: Offset | None) -> Iterator[Family]:
    """`log_end` is where the log of schemas ends, if that is known."""
    state = node.state
    yield rows.REGISTRY_PRIMARY, [((), int(node.role.is_primary))]
    yield rows.REGISTRY_SUBJECTS, [((), len(state.versions))]
    yield rows.REGISTRY_VERSIONS, [((), sum(map(len, state.versions.values())))]
    yield rows.REGISTRY_CONTEXTS, [((), len(state.contexts))]
    end_offset = node.topic.end_offset
    yield rows.REGISTRY_END_OFFSET, [((), end_offset)]
    lag = 0 if log_end is None else max(log_end - end_offset, 0)
    yield rows.REGISTRY_APPLY_LAG, [((), lag)]
    yield rows.REGISTRY_CACHE_HITS, [((), front.hits)]
    yield rows.HTTP_CONNECTIONS_CLOSED, _closed(front.closed)


def _closed(counts: Mapping[str, int]) -> list[tuple[tuple[str], int]]:
    reasons = dict.fromkeys(CLOSED_REASONS, 0) | dict(counts)
    return [((reason,), count) for reason, count in sorted(reasons.items())]
