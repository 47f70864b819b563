"""Produce requests from their body to their answer."""

import asyncio
import hashlib
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from penstock.clock import wall_ms
from penstock.gateway.errors import GatewayError, bad_request, too_large
from penstock.gateway.gateway_node import GatewayNode
from penstock.gateway.produce.bodies import ProduceBody
from penstock.gateway.produce.encode import EncodedRecord, RecordEncoder, uses_schema
from penstock.gateway.produce.key_placement import Placement
from penstock.gateway.produce.key_table import NEW, KeyTable, ScopedKey, StoredResponse
from penstock.gateway.produce.keyed_writer import KeyedRequest, KeyedWriter, PartitionRecord
from penstock.gateway.produce.lanes import Lanes, Written
from penstock.link.topic_admin import partition_count
from penstock.model import TopicPartition

ACKS: Final = {"all": -1, "-1": -1, "1": 1, "0": 0}
Result = Written | GatewayError


class KeyedResponse(NamedTuple):
    """The body of the response, and whether it was stored before."""

    body: bytes
    is_replayed: bool


class GatewayProducer:
    """Writes events for all routes."""

    def __init__(self, node: GatewayNode) -> None:
        self._node = node
        self._lanes = Lanes(node.connect())
        self._placement = Placement()
        self.encoder: Final = RecordEncoder(node.schemas)
        self._checker = RecordEncoder(node.schemas, registers=False)
        kept_ms = node.settings.idempotency_ms
        self._keys = KeyTable(node.settings.keys_max, kept_ms)
        self._keyed = KeyedWriter(node.connect(), self._keys, kept_ms)
        node.on_stop(self._lanes.close)
        node.on_stop(self._keyed.close)

    async def encode(self, topic: str, body: ProduceBody) -> list[EncodedRecord | GatewayError]:
        """The records of a body; 413 if there are too many."""
        return await self._encode(self.encoder, topic, body)

    async def check(self, topic: str, body: ProduceBody) -> dict[str, Any]:
        """What writing a body would do: partition and bytes of each record, or its error."""
        records = await self._encode(self._checker, topic, body)
        places = self._placement.place(topic, records, await self._partitions(topic))
        rows = []
        for record, place in zip(records, places, strict=True):
            if isinstance(record, GatewayError) or isinstance(place, GatewayError):
                rows.append(_error_of(record, place).document)
            else:
                is_chosen = record.partition is not None or record.key is not None
                size_bytes = len(record.key or b"") + len(record.value or b"")
                rows.append({"partition": place if is_chosen else None, "bytes": size_bytes})
        return {"records": rows}

    async def _encode(
        self, encoder: RecordEncoder, topic: str, body: ProduceBody
    ) -> list[EncodedRecord | GatewayError]:
        count = 1 if isinstance(body.records, msgspec.UnsetType) else len(body.records)
        limit = self._node.settings.records_max
        if count > limit:
            raise too_large(f"{count} records, and a request may have {limit}: send several")
        if not count:
            raise bad_request("records is empty: send at least one")
        if uses_schema(body):
            return await self._node.in_thread(lambda: encoder.encode(topic, body))
        return encoder.encode(topic, body)

    async def write(
        self, topic: str, records: Sequence[EncodedRecord | GatewayError], acks: int
    ) -> list[Result]:
        """Where each record was written, or why it was not."""
        places = self._placement.place(topic, list(records), await self._partitions(topic))
        rows: dict[int, list[int]] = {}
        results: list[Result | None] = [None] * len(records)
        for index, place in enumerate(places):
            if isinstance(place, GatewayError):
                results[index] = place
            else:
                rows.setdefault(place, []).append(index)
        now = wall_ms()
        written = await asyncio.gather(
            *(
                self._lanes.write(TopicPartition(topic, place), _picked(records, row), acks, now)
                for place, row in rows.items()
            )
        )
        for indexes, some in zip(rows.values(), written, strict=True):
            for index, result in zip(indexes, some, strict=True):
                results[index] = result
        done = [result for result in results if result is not None]
        self._node.counts["records_written"] += sum(isinstance(each, Written) for each in done)
        return done

    async def write_once(
        self, key: ScopedKey, digest: str, records: Sequence[EncodedRecord | GatewayError]
    ) -> KeyedResponse:
        """The answer to a request under a key; appended at most once."""
        topic = key.topic
        places = self._placement.place(topic, list(records), await self._partitions(topic))
        placed = [
            PartitionRecord(TopicPartition(topic, place), record)
            if isinstance(record, EncodedRecord) and isinstance(place, int)
            else _error_of(record, place)
            for record, place in zip(records, places, strict=True)
        ]
        await self._keyed.claim()
        known = self._keys.begin(key, digest, wall_ms())  # no await from here to `submit`
        if isinstance(known, StoredResponse):
            return KeyedResponse(bytes(known.answer), True)
        assert known == NEW
        if not any(isinstance(each, PartitionRecord) for each in placed):
            self._keys.end(key)  # what appends nothing is not stored
            errors = [each for each in placed if isinstance(each, GatewayError)]
            return KeyedResponse(msgspec.json.encode(answer_document(errors)), False)
        request = KeyedRequest(key, digest, placed, wall_ms())
        self._keyed.submit(request)
        body = await asyncio.shield(request.answer)
        self._node.counts["records_written"] += len(placed)
        return KeyedResponse(body, False)

    async def _partitions(self, topic: str) -> int:
        return await self._node.run(partition_count(topic))


def _picked(
    records: Sequence[EncodedRecord | GatewayError], indexes: Sequence[int]
) -> list[EncodedRecord]:
    return [record for index in indexes if isinstance(record := records[index], EncodedRecord)]


def _error_of(record: EncodedRecord | GatewayError, place: int | GatewayError) -> GatewayError:
    error = record if isinstance(record, GatewayError) else place
    assert isinstance(error, GatewayError), "a record without an error has a place"
    return error


def answer_document(results: Sequence[Result]) -> dict[str, Any]:
    """The body of the response: a result for each record, in their order."""
    rows: list[dict[str, Any]] = []
    for result in results:
        if isinstance(result, GatewayError):
            rows.append(result.document)
        else:
            offset = result.offset if result.offset >= 0 else None
            rows.append({"partition": result.partition, "offset": offset})
    return {"records": rows}


def digest_of(path: bytes, query: bytes, body: bytes) -> str:
    """What makes two requests the same."""
    return hashlib.sha256(b"\n".join((path, query, body))).hexdigest()


def read_acks(text: str) -> int:
    """`all`, 1 or 0."""
    if text not in ACKS:
        raise bad_request(f"acks {text!r} is not one of all, 1, 0")
    return ACKS[text]
