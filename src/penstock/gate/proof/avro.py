"""Avro events: written with fastavro, read as our clients read, aimed along a difference's path.

Logical types do not change a byte, so events are written without. What an event says is what a
reader of the same schema sees, logical types included.
"""

import datetime
import io
import json
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import chain
from typing import Any, Final, NamedTuple, cast
from uuid import UUID

from fastavro import parse_schema, schemaless_writer
from fastavro.schema import SchemaParseException, UnknownType

from penstock.gate.proof.avro_examples import EventMaker, Step, all_nodes
from penstock.gate.proof.prove import (
    SHOWN_CHARACTERS_MAX,
    Attempt,
    DifferenceLocation,
    UnprovableError,
    shortened,
)
from penstock.schemas.avro import AvroSchema
from penstock.schemas.avro.canonical import print_start
from penstock.schemas.avro.jsontext import write_json
from penstock.schemas.avro.tree import (
    Absent,
    Array,
    Enum,
    Field,
    Fixed,
    Map,
    Named,
    Node,
    Record,
    Union,
)
from penstock.schemas.model import Difference
from penstock.serde.avro.event_reader import EventReader
from penstock.serde.avro.varints import Unreadable

BRANCH_PAIRS_MAX: Final = 100_000  # fastavro compares each branch with each, for every event
_DETAILS: Final = frozenset(("name", "symbols", "size"))


class _Spot(NamedTuple):
    """Where a path leads in both schemas."""

    writer: Node | Field | None
    reader: Node | Field | None
    detail: str = ""  # one of _DETAILS
    route: tuple[Step, ...] = ()  # to the place, in the writer's schema
    fields: tuple[str, ...] = ()


def trials(
    writer: AvroSchema, reader: AvroSchema, differences: Sequence[Difference], seed: int
) -> Iterator[Attempt]:
    """Events at the places that differ, then all kinds of events."""
    if _branches(writer.root) * _branches(reader.root) > BRANCH_PAIRS_MAX:
        raise UnprovableError("the unions have too many branches to try events on them")
    writes = _compiled(writer)
    own, reads = EventReader(writer.root), EventReader(writer.root, reader.root)
    maker = EventMaker(writer.root, seed)
    routes = [_walk(writer, reader, one.path).route for one in differences]
    aimed = chain.from_iterable(maker.along(route) for route in dict.fromkeys(routes))
    tried: set[bytes] = set()
    for event in chain(aimed, maker.all_kinds()):
        buffer = io.BytesIO()
        try:
            schemaless_writer(buffer, writes, event)
        except (ValueError, TypeError, OverflowError, KeyError):
            continue  # a default or a name that fastavro takes for something else
        payload = buffer.getvalue()
        if payload not in tried:
            tried.add(payload)
            try:
                said = own.read(payload)
            except Unreadable:
                continue  # no writer has it
            yield _read(said, payload, reads)


def _branches(root: Node) -> int:
    """The branches of the largest union."""
    unions = (node for node in all_nodes(root) if isinstance(node, Union))
    return max((len(union.branches) for union in unions), default=0)


def _read(event: Any, payload: bytes, reads: EventReader) -> Attempt:
    try:
        return Attempt(event, payload, ("", reads.read(payload)), None)
    except Unreadable as wrong:
        return Attempt(event, payload, None, shortened(wrong.detail))


def shown(event: Any) -> str:
    """An event as JSON: bytes as a text of the same code points, dates and decimals as texts."""
    return json.dumps(_plain(event), ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return _plain(value[1])
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal | UUID) else value


def _compiled(schema: AvroSchema) -> Any:
    text = _without_logical_types(json.loads(schema.formatted("resolved")))
    try:
        return parse_schema(cast(Any, text))
    except (SchemaParseException, UnknownType, ValueError, KeyError) as wrong:
        raise UnprovableError(f"fastavro does not take the schema: {wrong}") from None


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_logical_types(one) for one in schema]
    if isinstance(schema, dict):
        return {
            key: value if key == "default" else _without_logical_types(value)
            for key, value in schema.items()
            if key != "logicalType"
        }
    return schema


def locate(writer: AvroSchema, reader: AvroSchema, difference: Difference) -> DifferenceLocation:
    """What both sides say at the path."""
    spot = _walk(writer, reader, difference.path)
    return DifferenceLocation(
        _described(spot.writer, spot.detail), _described(spot.reader, spot.detail), spot.fields
    )


def _walk(writer: AvroSchema, reader: AvroSchema, path: str) -> _Spot:
    """Follow a path as far as it leads: fields by the reader's positions, branches by the writer's.

    A field without `type` after it is one that the writer does not have.
    """
    spot = _Spot(writer.root, reader.root)
    steps = [step for step in path.split("/") if step]
    while steps:
        step = steps.pop(0)
        if step in _DETAILS:
            return spot._replace(detail=step)
        if step == "type":
            continue
        following = _stepped(spot, step, steps)
        if following is None:
            break
        spot = following
    return spot


def _stepped(spot: _Spot, step: str, steps: list[str]) -> _Spot | None:
    """One step on; None where the schemas have no such place.

    The rules report a pair that they meet again from where they met it first, which need not be a
    place that starts at the root.
    """
    if step == "fields" and steps:
        index = int(steps.pop(0))
        if not isinstance(spot.reader, Record) or index >= len(spot.reader.fields):
            return None
        return _into_field(spot, spot.reader, index)
    if step.isdecimal():
        index = int(step)
        if not isinstance(spot.writer, Union) or index >= len(spot.writer.branches):
            return None
        route = (*spot.route, Step.branch(index))
        return spot._replace(writer=spot.writer.branches[index], route=route)
    return _into_parts(spot)


def _into_field(spot: _Spot, reader: Record, index: int) -> _Spot:
    field = reader.fields[index]
    fields = (*spot.fields, field.name)
    record = spot.writer
    if isinstance(record, Record):
        for name in (field.name, *field.aliases):
            if name in record.by_name:
                route = (*spot.route, Step.field(name))
                return _Spot(record.by_name[name].type, field.type, "", route, fields)
    return _Spot(None, field, "", spot.route, fields)


def _into_parts(spot: _Spot) -> _Spot:
    return spot._replace(
        writer=_parts_of(spot.writer),
        reader=_parts_of(spot.reader),
        route=(*spot.route, Step.part()),
    )


def _parts_of(node: Node | Field | None) -> Node | None:
    if isinstance(node, Array):
        return node.items
    return node.values if isinstance(node, Map) else None


def _described(part: Node | Field | None, detail: str) -> str | None:
    if part is None:
        return None
    if isinstance(part, Field):
        default = "" if isinstance(part.default, Absent) else f" = {write_json(part.default)}"
        return shortened(f"{part.name}: {_beginning(part.type)}{default}")
    if detail == "symbols" and isinstance(part, Enum):
        return shortened(f"symbols {', '.join(part.symbols)}")
    if detail == "size" and isinstance(part, Fixed):
        return f"size {part.size}"
    if detail == "name" and isinstance(part, Named):
        return part.full_name
    return shortened(_beginning(part))


def _beginning(node: Node) -> str:
    """Enough of a type's text to be shortened."""
    return print_start(node, SHOWN_CHARACTERS_MAX + 1)


def loses(before: AvroSchema, after: AvroSchema, steps: Sequence[str]) -> bool:
    """Whether a field that was there is not there any more."""
    return _has(before.root, steps) and not _has(after.root, steps)


def _has(node: Node, steps: Sequence[str]) -> bool:
    """Whether fields lead so; through unions, arrays and maps without a step."""
    if isinstance(node, Union):
        return any(_has(branch, steps) for branch in node.branches if branch is not node)
    if isinstance(node, Array | Map):
        return _has(node.items if isinstance(node, Array) else node.values, steps)
    if not steps:
        return True
    if not isinstance(node, Record) or steps[0] not in node.by_name:
        return False
    return _has(node.by_name[steps[0]].type, steps[1:]) if steps[1:] else True
