"""`records` and `records:batch`: produce in Confluent's form."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Request, Response

from penstock.errors import Malformed, Refused
from penstock.gateway.errors import GatewayError, as_gateway_error, bad_request
from penstock.gateway.gateway_node import GatewayNode
from penstock.gateway.produce.encode import (
    LATEST,
    EncodedRecord,
    SchemaChoice,
    invalid_record,
    read_base64,
)
from penstock.gateway.produce.gateway_producer import GatewayProducer
from penstock.gateway.produce.lanes import Written
from penstock.gateway.request_bodies import (
    TopicName,
    described_body,
    described_response,
    read_document,
)
from penstock.gateway.rest_v3.record_stream import RecordStream, SideBody, V3Record
from penstock.gateway.rest_v3.shapes import error_fields, json_response
from penstock.gateway.rest_v3.v3_topics import links_for
from penstock.serde.errors import ClientError
from penstock.serde.frame import Side

ENTRIES_MAX: Final = 10
_ID_CHARACTERS_MAX: Final = 80
_ALL_IN_SYNC: Final = -1
_TYPES: Final = {"AVRO": "AVRO", "JSONSCHEMA": "JSON", "PROTOBUF": "PROTOBUF"}


class BatchEntry(V3Record):
    """A record with the name of its result."""

    id: Annotated[
        str,
        msgspec.Meta(extra_json_schema={"minLength": 1, "maxLength": _ID_CHARACTERS_MAX}),
    ] = ""


class BatchBody(msgspec.Struct):
    """Several records."""

    entries: list[BatchEntry]


_DESCRIBED: Final = described_body(
    V3Record,
    json_under_a_key={
        "key": {"type": "STRING", "data": "berlin"},
        "value": {"type": "JSON", "data": {"cents": 1250}},
    },
    avro_under_the_latest_schema={"value": {"type": "AVRO", "data": {"cents": 1250}}},
)
_REPORTED: Final = described_response(
    {
        "error_code": 200,
        "cluster_id": "penstock",
        "topic_name": "orders",
        "partition_id": 0,
        "offset": 7,
        "timestamp": "2026-07-01T10:00:00.000Z",
        "key": {"type": "STRING", "size": 6},
        "value": {"type": "JSON", "size": 14},
    },
    "A report for each record.",
)


class V3Producer:
    """Writes records in Confluent's form."""

    def __init__(self, node: GatewayNode, producer: GatewayProducer) -> None:
        self._node = node
        self._producer = producer

    async def write(self, cluster: str, topic: str, record: V3Record) -> dict[str, Any]:
        """The report of one record; a GatewayError if it was not written."""
        try:
            encoded, sides = await self._node.in_thread(lambda: self._encode(topic, record))
            (written,) = await self._producer.write(topic, [encoded], _ALL_IN_SYNC)
        except (Refused, OSError, Malformed, ClientError) as failure:
            raise as_gateway_error(failure) from None
        if isinstance(written, GatewayError):
            raise written
        return _report(cluster, topic, written, sides)

    def _encode(
        self, topic: str, record: V3Record
    ) -> tuple[EncodedRecord, dict[str, dict[str, Any] | None]]:
        key, key_report = self._side(topic, Side.KEY, record.key)
        value, value_report = self._side(topic, Side.VALUE, record.value)
        headers = tuple(
            (row.name, None if row.value is None else read_base64(row.value, f"header {row.name}"))
            for row in record.headers
        )
        if record.partition_id is not None and record.partition_id < 0:
            raise bad_request("partition_id is negative")
        timestamp = None if record.timestamp is None else _millis(record.timestamp)
        encoded = EncodedRecord(key, value, headers, timestamp, record.partition_id)
        return encoded, {"key": key_report, "value": value_report}

    def _side(
        self, topic: str, side: Side, body: SideBody | None
    ) -> tuple[bytes | None, dict[str, Any] | None]:
        if body is None:
            return None, None
        named = (body.schema_id, body.schema_version, body.schema)
        has_schema = any(each is not None for each in named)
        kind = (body.type or ("" if has_schema else "BINARY")).upper()
        if kind in ("", *_TYPES):
            return self._under_schema(topic, side, body, kind)
        content = _plain(kind, body.data, side)
        size = 0 if content is None else len(content)
        return content, {"type": kind, "size": size}

    def _under_schema(
        self, topic: str, side: Side, body: SideBody, kind: str
    ) -> tuple[bytes | None, dict[str, Any] | None]:
        if body.data is None:
            return None, {"type": kind or "AVRO", "size": 0}
        version = body.schema_version
        if body.schema_id is None and version is None and body.schema is None:
            version = LATEST
        subject = body.subject or f"{topic}-{side}"
        language = _TYPES.get(kind, "AVRO")
        choice = SchemaChoice(side, body.schema_id, version, body.schema, language, subject)
        writer = self._producer.encoder.writer(choice)
        content = writer.encode(body.data)
        known = writer.known
        name = "JSONSCHEMA" if known.parsed.type == "JSON" else str(known.parsed.type)
        report = {
            "type": name,
            "size": len(content),
            "subject": subject,
            "schema_id": known.id,
            "schema_version": known.version,
        }
        return content, report


def _plain(kind: str, data: Any, side: Side) -> bytes | None:
    match kind:
        case "BINARY":
            return None if data is None else read_base64(str(data), str(side))
        case "JSON":
            return msgspec.json.encode(data)
        case "STRING":
            return None if data is None else str(data).encode()
    raise invalid_record(f"{side}: type {kind!r} is not supported")


def _millis(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise invalid_record(f"timestamp {text!r} is not an RFC 3339 time") from None
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return int(moment.timestamp() * 1000)


def _report(
    cluster: str, topic: str, written: Written, sides: dict[str, dict[str, Any] | None]
) -> dict[str, Any]:
    at = datetime.fromtimestamp(written.timestamp / 1000, UTC)
    return {
        "error_code": 200,
        "cluster_id": cluster,
        "topic_name": topic,
        "partition_id": written.partition,
        "offset": written.offset,
        "timestamp": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        **sides,
    }


def records(node: GatewayNode, producer: V3Producer) -> APIRouter:
    """`records` and `records:batch`."""
    router = APIRouter(tags=["REST v3"], prefix="/v3/clusters/{cluster}/topics/{topic}")

    @router.post("/records", openapi_extra=_DESCRIBED, responses=_REPORTED)
    async def v3_produce(cluster: str, topic: TopicName, request: Request) -> Response:
        """Write records: any number of objects one after the other, with a report for each.

        Reports come in order while the body is still sent. Once one was sent, errors are only in
        the `error_code` of reports; 200 is success.
        """
        links = await links_for(node, request)
        write = partial(producer.write, links.cluster, topic)
        return RecordStream(write, node.settings.body_bytes_max)

    @router.post("/records:batch", status_code=207, openapi_extra=described_body(BatchBody))
    async def v3_produce_batch(cluster: str, topic: TopicName, request: Request) -> Response:
        """Write up to ten records; each has a result of its own."""
        links = await links_for(node, request)
        body = await read_document(request, BatchBody, node.settings.body_bytes_max)
        _check_ids([entry.id for entry in body.entries])
        successes, failures = [], []
        for entry in body.entries:
            try:
                report = await producer.write(links.cluster, topic, entry)
            except GatewayError as error:
                failures.append({"id": entry.id, **error_fields(error)[1]})
            else:
                successes.append({"id": entry.id, **report})
        return json_response({"successes": successes, "failures": failures}, 207)

    return router


def _check_ids(ids: Sequence[str]) -> None:
    are_valid = all(0 < len(each) <= _ID_CHARACTERS_MAX for each in ids)
    if not are_valid or not 0 < len(ids) <= ENTRIES_MAX or len(set(ids)) < len(ids):
        raise GatewayError(
            422,
            "invalid_batch",
            f"a batch has 1 to {ENTRIES_MAX} entries, each with an id of its own of 1 to "
            f"{_ID_CHARACTERS_MAX} characters",
        )
