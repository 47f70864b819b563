"""Follows one topic for all pages that tail it: one fetch, one decoding, however many pages.

A topic that is faster than a person reads is not shown whole: of each turn the last records are
kept, and the ticker jumps to the end when it falls behind. What is left out is counted.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from penstock.console.record_view import RecordDecoder, RecordView
from penstock.errors import Malformed, Refused
from penstock.gateway.errors import GatewayError, as_gateway_error
from penstock.gateway.gateway_node import GatewayNode
from penstock.gateway.visible_records import visible_records
from penstock.link.fetch_once import CommittedBatches
from penstock.link.fetch_range import OffsetOutOfRange
from penstock.link.fetch_request import FetchLimits
from penstock.link.offsets import Isolation, end_offsets
from penstock.link.topic_admin import partition_count
from penstock.model import Offset, TopicPartition
from penstock.serde.errors import ClientError

if TYPE_CHECKING:
    from penstock.protocol.records import Record

logger: Final = logging.getLogger(__name__)

TURN_S: Final = 0.2
TURN_RECORDS_MAX: Final = 100
BEHIND_MAX: Final = 2_000  # offsets of a partition
WAIT_MS: Final = 2_000
RETRY_S: Final = 2.0
PARTITIONS_S: Final = 30.0  # between looks for new partitions
RATE_WEIGHT: Final = 0.2
_BYTES_MAX: Final = 2 << 20
_PARTITION_BYTES: Final = 256 << 10
_FAILURES: Final = (OSError, Refused, Malformed, ClientError, GatewayError)
_encode = msgspec.json.Encoder().encode

OnRecords = Callable[[str, Sequence[bytes], int, float], None]  # topic, records, dropped, rate
OnError = Callable[[str, dict[str, Any]], None]


class _Turn(NamedTuple):
    records: list[bytes]
    dropped: int
    arrived: int


class TailTicker:
    """Follows a topic from its end until it is cancelled."""

    def __init__(
        self,
        node: GatewayNode,
        decoder: RecordDecoder,
        topic: str,
        on_records: OnRecords,
        on_error: OnError,
    ) -> None:
        self._node = node
        self._decoder = decoder
        self._topic = topic
        self._on_records = on_records
        self._on_error = on_error
        self._rate = 0.0
        self.positions: dict[TopicPartition, Offset] = {}

    async def start(self) -> None:
        """Find the end of the topic; Refused if there is no such topic."""
        count = await self._node.run(partition_count(self._topic))
        places = [TopicPartition(self._topic, number) for number in range(count)]
        self.positions = await self._node.run(
            end_offsets(places, isolation=Isolation.READ_COMMITTED)
        )

    async def run(self) -> None:
        """Follow until it is cancelled; failures of the cluster are reported and tried again."""
        loop = asyncio.get_running_loop()
        checked_s = loop.time()
        while True:
            began_s = loop.time()
            try:
                if began_s - checked_s > PARTITIONS_S:
                    checked_s = began_s
                    await self._add_partitions()
                turn = await self._turn()
            except OffsetOutOfRange:
                await self._restart()
                continue
            except _FAILURES as failure:
                self._on_error(self._topic, as_gateway_error(failure).document["error"])
                await asyncio.sleep(RETRY_S)
                continue
            pause_s = max(0.0, TURN_S - (loop.time() - began_s))
            await asyncio.sleep(pause_s)
            spent_s = loop.time() - began_s
            self._rate += RATE_WEIGHT * (turn.arrived / spent_s - self._rate)
            self._on_records(self._topic, turn.records, turn.dropped, self._rate)

    async def _add_partitions(self) -> None:
        count = await self._node.run(partition_count(self._topic))
        for number in range(count):
            self.positions.setdefault(TopicPartition(self._topic, number), Offset(0))

    async def _restart(self) -> None:
        try:
            await self.start()
        except _FAILURES as failure:
            self._on_error(self._topic, as_gateway_error(failure).document["error"])
            await asyncio.sleep(RETRY_S)

    async def _turn(self) -> _Turn:
        limits = FetchLimits(WAIT_MS, _BYTES_MAX, _PARTITION_BYTES)
        fetched = await self._node.fetch(self.positions, limits)
        if not any(len(each.batches) for each in fetched.values()):
            return _Turn([], 0, 0)
        turn, positions = await self._node.in_thread(lambda: self._read(fetched))
        self.positions = positions
        return turn

    # In a thread.

    def _read(
        self, fetched: Mapping[TopicPartition, CommittedBatches]
    ) -> tuple[_Turn, dict[TopicPartition, Offset]]:
        rows: list[tuple[TopicPartition, Record]] = []
        positions = dict(self.positions)
        skipped = 0
        for place, part in fetched.items():
            records, end = visible_records(part.batches, part.aborted, positions[place])
            rows += [(place, record) for record in records]
            if part.last_stable_offset - end > BEHIND_MAX:
                skipped += part.last_stable_offset - end
                end = part.last_stable_offset
            positions[place] = end
        rows.sort(key=lambda row: row[1].timestamp)
        shown = rows[-TURN_RECORDS_MAX:]
        texts = [
            _encode(RecordView(self._decoder, place, record).document()) for place, record in shown
        ]
        return _Turn(texts, len(rows) - len(shown) + skipped, len(rows) + skipped), positions
