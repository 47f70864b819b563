"""`records` and `records:batch`: produce in Confluent's form.

`records` streams: the body is any number of JSON objects one after the other, and a report for each
leaves in order while the body is still read. The status is 200 once a report was sent: errors are
only in the reports. This route is plain ASGI: an answer that begins before the request has ended.
"""

import json
from collections.abc import AsyncIterator, MutableMapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Request, Response

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
from penstock.gateway.request_bodies import TopicName, body_too_large, described_body, read_document
from penstock.gateway.rest_v3.shapes import error_fields, json_response
from penstock.gateway.rest_v3.v3_topics import links_for
from penstock.http.site import Receive, Scope, Send
from penstock.serde.errors import ClientError
from penstock.serde.frame import Side

ENTRIES_MAX: Final = 10
_ALL_IN_SYNC: Final = -1
_TYPES: Final = {"AVRO": "AVRO", "JSONSCHEMA": "JSON", "PROTOBUF": "PROTOBUF"}


class SideBody(msgspec.Struct):
    """A key or value: data, and how it is written."""

    data: Any = None
    type: str | None = None
    subject: str | None = None
    schema_id: int | None = None
    schema_version: int | None = None
    schema: str | None = None


class HeaderBody(msgspec.Struct):
    """A header; the value is base64."""

    name: str
    value: str | None = None


class V3Record(msgspec.Struct):
    """One record."""

    partition_id: int | None = None
    headers: list[HeaderBody] = []
    key: SideBody | None = None
    value: SideBody | None = None
    timestamp: str | None = None


class BatchEntry(V3Record):
    """A record with the name of its result."""

    id: Annotated[str, msgspec.Meta(min_length=1, max_length=80)] = ""


class BatchBody(msgspec.Struct):
    """Several records."""

    entries: list[BatchEntry]


class V3Producer:
    """Writes records in Confluent's form."""

    def __init__(self, node: GatewayNode, producer: GatewayProducer) -> None:
        self._node = node
        self._producer = producer

    async def write(self, cluster: str, topic: str, record: V3Record) -> dict[str, Any]:
        """The report of one record; a GatewayError if it was not written."""
        encoded, sides = await self._node.in_thread(lambda: self._encode(topic, record))
        (written,) = await self._producer.write(topic, [encoded], _ALL_IN_SYNC)
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
        try:
            writer = self._producer.encoder.writer(choice)
            content = writer.encode(body.data)
        except ClientError as error:
            raise as_gateway_error(error) from None
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


def batches(node: GatewayNode, producer: V3Producer) -> APIRouter:
    """`records:batch`."""
    router = APIRouter(tags=["REST v3"], prefix="/v3/clusters/{cluster}/topics/{topic}")

    @router.post("/records:batch", status_code=207, openapi_extra=described_body(BatchBody))
    async def v3_produce_batch(cluster: str, topic: TopicName, request: Request) -> Response:
        """Write up to ten records; each has a result of its own."""
        links = await links_for(node, request)
        body = await read_document(request, BatchBody, node.settings.body_bytes_max)
        ids = [entry.id for entry in body.entries]
        if not 0 < len(ids) <= ENTRIES_MAX or "" in ids or len(set(ids)) < len(ids):
            raise GatewayError(
                422, "invalid_batch", f"1 to {ENTRIES_MAX} entries, each with an id of its own"
            )
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


class RecordStream:
    """The route `records` as plain ASGI."""

    def __init__(self, node: GatewayNode, producer: V3Producer) -> None:
        self._node = node
        self._producer = producer

    async def serve(self, topic: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Read records and report each, in order."""
        links = await links_for(self._node, Request(dict(scope)))
        headers = [(b"content-type", b"application/json")]
        is_open = False
        async for item in _documents(receive, self._node.settings.body_bytes_max):
            report = await self._report(links.cluster, topic, item)
            if not is_open:
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                is_open = True
            body = msgspec.json.encode(report) + b"\r\n"
            await send({"type": "http.response.body", "body": body, "more_body": True})
        if not is_open:
            body = msgspec.json.encode({"error_code": 400, "message": "the body has no record"})
            await send({"type": "http.response.start", "status": 400, "headers": headers})
            await send({"type": "http.response.body", "body": body})
            return
        await send({"type": "http.response.body", "body": b""})

    async def _report(self, cluster: str, topic: str, item: Any) -> dict[str, Any]:
        try:
            if isinstance(item, GatewayError):
                raise item
            record = msgspec.convert(item, V3Record)
            return await self._producer.write(cluster, topic, record)
        except msgspec.ValidationError as error:
            return {"error_code": 400, "message": str(error)}
        except (GatewayError, OSError, ClientError) as error:
            return error_fields(as_gateway_error(error))[1]


async def _documents(receive: Receive, bytes_max: int) -> AsyncIterator[Any]:
    """The JSON objects of a body as they arrive; the last one is an error if it is not JSON."""
    decoder = json.JSONDecoder()
    pending = bytearray()
    more = True
    while more:
        message: MutableMapping[str, Any] = await receive()
        if message["type"] == "http.disconnect":
            return
        pending += message.get("body", b"")
        more = bool(message.get("more_body"))
        while True:
            text, item, rest = _next_document(decoder, pending, is_whole=not more)
            if item is None:
                break
            yield item
            if isinstance(item, GatewayError):
                return
            pending = bytearray(text[rest:].encode())
        if len(pending) > bytes_max:
            yield body_too_large(bytes_max)
            return


def _next_document(
    decoder: json.JSONDecoder, pending: bytearray, *, is_whole: bool
) -> tuple[str, Any, int]:
    """The first object of what arrived; None if there is none yet."""
    try:
        text = pending.decode().lstrip()
    except UnicodeDecodeError:
        return "", bad_request("the body is not UTF-8") if is_whole else None, 0
    if not text:
        return text, None, 0
    if not text.startswith("{"):
        return text, bad_request("the body is not a sequence of JSON objects"), 0
    try:
        item, end = decoder.raw_decode(text)
    except (ValueError, RecursionError) as error:
        return text, bad_request(f"the body is not JSON: {error}") if is_whole else None, 0
    return text, item, end
