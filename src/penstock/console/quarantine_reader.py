"""What is in quarantine, of all topics: counted by reason, and page by page.

A quarantine topic is read whole when it has changed, up to a limit: which events were sent
back is only known from markers behind them. Beyond that, counts are of the oldest.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from penstock.client.quarantine import SUFFIX
from penstock.client.quarantined_events import (
    QuarantinedEvent,
    QuarantinePosition,
    StoredRecord,
    read_quarantine,
)
from penstock.console.read_whole import read_whole
from penstock.console.samples.cluster_survey import ClusterSurvey
from penstock.errors import Malformed, Refused
from penstock.gateway.errors import GatewayError
from penstock.gateway.gateway_node import GatewayNode
from penstock.model import Offset, TopicPartition

TOPICS_MAX: Final = 1_000  # whose counts are kept
_FAILURES: Final = (OSError, Refused, Malformed, GatewayError)


class QuarantineCount(NamedTuple):
    """What of a topic is in quarantine and was not sent back, by reason."""

    ends: Mapping[TopicPartition, Offset]  # as of these
    reasons: Mapping[str, int]
    is_complete: bool


class QuarantineContents(NamedTuple):
    """The events in a topic's quarantine, and whether these are all."""

    events: list[QuarantinedEvent]
    is_complete: bool


class QuarantineReader:
    """Reads quarantine topics over the gateway's connections."""

    def __init__(self, node: GatewayNode) -> None:
        self._node = node
        self._counts: dict[str, QuarantineCount] = {}  # by original topic
        self._refreshing: asyncio.Task[None] | None = None

    def totals(self) -> list[dict[str, Any]]:
        """Topics with events in quarantine, as last counted."""
        rows = [(topic, sum(row.reasons.values())) for topic, row in self._counts.items()]
        return [{"topic": topic, "total": total} for topic, total in sorted(rows) if total]

    def refresh_soon(self, sample: ClusterSurvey) -> None:
        """Count again what has changed, in the background."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh(sample))

    async def counts(self, sample: ClusterSurvey) -> dict[str, QuarantineCount]:
        """All topics that have a quarantine topic, counted as of a sample."""
        await self._refresh(sample)
        return dict(sorted(self._counts.items()))

    async def stop(self) -> None:
        if self._refreshing is not None:
            self._refreshing.cancel()
            with suppress(asyncio.CancelledError):
                await self._refreshing

    async def _refresh(self, sample: ClusterSurvey) -> None:
        names = [row.name for row in sample.topics or () if row.name.endswith(SUFFIX)]
        originals = [name.removesuffix(SUFFIX) for name in names[:TOPICS_MAX]]
        for gone in self._counts.keys() - set(originals):
            self._counts.pop(gone, None)
        for topic in originals:
            name = f"{topic}{SUFFIX}"
            ends = {place: end for place, end in (sample.ends or {}).items() if place.topic == name}
            known = self._counts.get(topic)
            if known is not None and known.ends == ends:
                continue
            with suppress(*_FAILURES):  # what cannot be read now is counted next time
                contents = await self.read(topic, keeps_values=False)
                left = [each for each in contents.events if not each.is_redriven]
                reasons = Counter(str(each.record.failure.reason) for each in left)
                self._counts[topic] = QuarantineCount(ends, reasons, contents.is_complete)

    async def read(self, topic: str, *, keeps_values: bool = True) -> QuarantineContents:
        """The events of a topic's quarantine, oldest first; 404 if it has none."""
        contents = await read_whole(self._node, f"{topic}{SUFFIX}", keeps_values=keeps_values)
        stored = [
            StoredRecord(
                QuarantinePosition(partition, Offset(record.offset)),
                record.key,
                record.value,
                record.headers,
            )
            for partition, record in contents.records
        ]
        events = await self._node.in_thread(lambda: read_quarantine(topic, stored))
        return QuarantineContents(events, contents.is_complete)
