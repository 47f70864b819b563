"""One record for its page: decoded, its bytes with their meaning, and how to read it elsewhere."""

import json
import shlex
from typing import Any, Final
from urllib.parse import quote

from penstock.console.console_node import ConsoleNode
from penstock.console.record_view import RecordView
from penstock.gateway.errors import not_found
from penstock.gateway.visible_records import visible_records
from penstock.link.fetch_range import OffsetOutOfRange
from penstock.link.fetch_request import FetchLimits
from penstock.link.offsets import Isolation, end_offsets, start_offsets
from penstock.model import Offset, TopicPartition
from penstock.protocol.batch import iterate_headers
from penstock.protocol.records import Record
from penstock.schemas.model import SchemaType
from penstock.serde.annotate import Annotation, annotate
from penstock.serde.frame import Side

_FETCH_BYTES: Final = 64 << 10  # a batch comes whole
_HEX_BYTES_MAX: Final = 64 << 10  # of a key or value that are shown as bytes


async def record_page(
    node: ConsoleNode, place: TopicPartition, offset: Offset, *, whole: bool = False
) -> dict[str, Any]:
    """The document of one record; 404 says where the neighbours are."""
    limits = FetchLimits(0, _FETCH_BYTES, _FETCH_BYTES)
    try:
        fetched = (await node.gateway.fetch({place: offset}, limits))[place]
    except OffsetOutOfRange as error:
        raise _no_record(place, offset, error.start_offset, error.end_offset) from None
    records = visible_records(fetched.batches, fetched.aborted, offset, bytes_max=1).records
    if not records or records[0].offset != offset:
        starts = await node.gateway.run(start_offsets([place]))
        ends = await node.gateway.run(end_offsets([place], isolation=Isolation.READ_COMMITTED))
        raise _no_record(place, offset, starts[place], ends[place])
    header = next(each for _, each in iterate_headers(fetched.batches) if each.end_offset > offset)
    view = RecordView(node.decoder, place, records[0])
    document = await node.gateway.in_thread(view.document)
    return {
        **document,
        "timestamp_type": "append" if header.is_log_append_time else "create",
        "batch": {
            "base_offset": str(header.base_offset),
            "records": header.record_count,
            "bytes": str(header.size_bytes),
            "leader_epoch": header.leader_epoch,
            "producer_id": None if header.producer_id < 0 else str(header.producer_id),
            "transactional": header.is_transactional,
        },
        "frame": [_part(each) for each in _frame(view)],
        "key_hex": _hex(records[0].key, whole),
        "value_hex": _hex(records[0].value, whole),
        "copy": copies(node.gateway.settings.registry_url, node.gateway.bootstrap, view),
    }


def _no_record(place: TopicPartition, offset: int, earliest: int, latest: int) -> Exception:
    error = not_found(
        "no_record",
        f"{place} has no record at offset {offset}: it has offsets {earliest} to {latest - 1}, "
        "except those that compaction or transactions left out",
    )
    error.details |= {"earliest": str(earliest), "latest": str(latest)}
    return error


def _frame(view: RecordView) -> list[Annotation]:
    content = view.record.value
    side = view.value_side
    if content is None or side is None:
        return []
    is_framed = side.format in ("avro", "protobuf") or side.schema_id is not None
    if not is_framed and side.error is None:
        return []
    name = side.format.upper()
    schema_type = SchemaType[name] if name in SchemaType.__members__ else None
    return annotate(content, view.record.headers, Side.VALUE, schema_type)


def _part(part: Annotation) -> dict[str, Any]:
    return {
        "from": part.position,
        "until": part.position + len(part.content),
        "meaning": part.meaning,
    }


def _hex(content: bytes | None, whole: bool) -> str | None:
    if content is None:
        return None
    return content.hex() if whole else content[:_HEX_BYTES_MAX].hex()


def copies(url: str, bootstrap: str, view: RecordView) -> dict[str, str]:
    """The record as other tools read it: text to paste."""
    topic, partition, offset = view.place.topic, view.place.partition, view.record.offset
    path = f"{url}/topics/{quote(topic, safe='')}/partitions/{partition}/events"
    return {
        "curl": f"curl -s {shlex.quote(f'{path}?offset={offset}&max_bytes=1')}",
        "cli": (
            f"penstock consume {shlex.quote(topic)} --partition {partition} --offset {offset} "
            f"--count 1 --bootstrap {shlex.quote(bootstrap)}"
        ),
        "pytest": _as_test(view),
        "spark": _as_spark(bootstrap, topic, partition, offset),
    }


def _as_test(view: RecordView) -> str:
    """A test that produces the same bytes."""
    record = view.record
    return (
        "def test_reads_the_record(penstock):\n"
        "    from confluent_kafka import Producer\n\n"
        f'    topic = penstock.make_topic("copy")\n'
        '    producer = Producer({"bootstrap.servers": penstock.bootstrap})\n'
        f"    producer.produce(topic, key={_literal(record.key)},\n"
        f"                     value={_literal(record.value)},\n"
        f"                     headers={_headers(record)})\n"
        "    producer.flush()\n"
    )


def _literal(content: bytes | None) -> str:
    if content is None:
        return "None"
    try:
        return repr(content.decode())
    except UnicodeDecodeError:
        return f'bytes.fromhex("{content.hex()}")'


def _headers(record: Record) -> str:
    rows = ", ".join(f"({name!r}, {_literal(value)})" for name, value in record.headers)
    return f"[{rows}]"


def _as_spark(bootstrap: str, topic: str, partition: int, offset: int) -> str:
    starting = json.dumps({topic: {str(partition): offset}})
    ending = json.dumps({topic: {str(partition): offset + 1}})
    assigned = json.dumps({topic: [partition]})
    return (
        'events = (spark.read.format("penstock")\n'
        f'    .option("kafka.bootstrap.servers", {json.dumps(bootstrap)})\n'
        f'    .option("assign", {json.dumps(assigned)})\n'
        f'    .option("startingOffsets", {json.dumps(starting)})\n'
        f'    .option("endingOffsets", {json.dumps(ending)})\n'
        "    .load())\n"
    )
