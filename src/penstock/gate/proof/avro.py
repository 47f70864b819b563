"""Trials with Avro events: written with fastavro, read as Penstock's clients read.

Logical types do not change the encoding, so events are written without them. The reported event is
what a reader with the writer's schema sees, including logical types.
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

from penstock.gate.proof.avro_examples import AvroExamples, RouteStep, all_nodes
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
from penstock.serde.avro.varints import UnreadableError

BRANCH_PAIRS_MAX: Final = 100_000  # fastavro compares every two branches, for every event
_DETAILS: Final = frozenset(("name", "symbols", "size"))


class _Position(NamedTuple):
    """The elements of both schemas at a path."""

    writer: Node | Field | None
    reader: Node | Field | None
    detail: str = ""  # one of _DETAILS
    route: tuple[RouteStep, ...] = ()  # from the root, in the writer's schema
    fields: tuple[str, ...] = ()


def trials(
    writer: AvroSchema, reader: AvroSchema, differences: Sequence[Difference], seed: int
) -> Iterator[Attempt]:
    """Events at the paths that differ, then events of all kinds."""
    if _branches(writer.root) * _branches(reader.root) > BRANCH_PAIRS_MAX:
        raise UnprovableError("the unions have too many branches to try events on them")
    writes = _compiled(writer)
    own, reads = EventReader(writer.root), EventReader(writer.root, reader.root)
    examples = AvroExamples(writer.root, seed)
    routes = [_walk(writer, reader, difference.path).route for difference in differences]
    aimed = chain.from_iterable(examples.along(route) for route in dict.fromkeys(routes))
    tried: set[bytes] = set()
    for value in chain(aimed, examples.all_kinds()):
        buffer = io.BytesIO()
        try:
            schemaless_writer(buffer, writes, value)
        except (ValueError, TypeError, OverflowError, KeyError):
            continue  # fastavro interprets a default or a name differently
        payload = buffer.getvalue()
        if payload not in tried:
            tried.add(payload)
            try:
                event = own.read(payload)
            except UnreadableError:
                continue  # the writer's own reader refuses it
            yield _read(event, payload, reads)


def _branches(root: Node) -> int:
    """The branches of the largest union."""
    unions = (node for node in all_nodes(root) if isinstance(node, Union))
    return max((len(union.branches) for union in unions), default=0)


def _read(event: Any, payload: bytes, reads: EventReader) -> Attempt:
    try:
        return Attempt(event, payload, ("", reads.read(payload)), None)
    except UnreadableError as error:
        return Attempt(event, payload, None, shortened(error.detail))


def shown(event: Any) -> str:
    """An event as JSON: bytes as a string of the same code points, dates and decimals as text."""
    return json.dumps(_as_json(event), ensure_ascii=False)


def _as_json(value: Any) -> Any:
    if isinstance(value, tuple):
        return _as_json(value[1])
    if isinstance(value, dict):
        return {name: _as_json(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_as_json(item) for item in value]
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal | UUID) else value


def _compiled(schema: AvroSchema) -> Any:
    text = _without_logical_types(json.loads(schema.formatted("resolved")))
    try:
        return parse_schema(cast("Any", text))
    except (SchemaParseException, UnknownType, ValueError, KeyError) as error:
        raise UnprovableError(f"fastavro refuses the schema: {error}") from None


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_logical_types(part) for part in schema]
    if isinstance(schema, dict):
        return {
            key: value if key == "default" else _without_logical_types(value)
            for key, value in schema.items()
            if key != "logicalType"
        }
    return schema


def locate(writer: AvroSchema, reader: AvroSchema, difference: Difference) -> DifferenceLocation:
    """The elements of both schemas at the path."""
    position = _walk(writer, reader, difference.path)
    return DifferenceLocation(
        _described(position.writer, position.detail),
        _described(position.reader, position.detail),
        position.fields,
    )


def _walk(writer: AvroSchema, reader: AvroSchema, path: str) -> _Position:
    """Follow a path: indexes of fields are the reader's, indexes of branches the writer's.

    A path that ends with a field, without `type`, names a field that the writer does not have.
    """
    position = _Position(writer.root, reader.root)
    steps = [step for step in path.split("/") if step]
    while steps:
        step = steps.pop(0)
        if step in _DETAILS:
            return position._replace(detail=step)
        if step == "type":
            continue
        following = _stepped(position, step, steps)
        if following is None:
            break
        position = following
    return position


def _stepped(position: _Position, step: str, steps: list[str]) -> _Position | None:
    """The position after one step; None if the schemas have no such element.

    The rules report a pair always with the path of its first comparison, which may not start at the
    root.
    """
    if step == "fields" and steps:
        index = int(steps.pop(0))
        if not isinstance(position.reader, Record) or index >= len(position.reader.fields):
            return None
        return _into_field(position, position.reader, index)
    if step.isdecimal():
        index = int(step)
        if not isinstance(position.writer, Union) or index >= len(position.writer.branches):
            return None
        route = (*position.route, RouteStep.branch(index))
        return position._replace(writer=position.writer.branches[index], route=route)
    return _into_items(position)


def _into_field(position: _Position, reader: Record, index: int) -> _Position:
    field = reader.fields[index]
    fields = (*position.fields, field.name)
    record = position.writer
    if isinstance(record, Record):
        for name in (field.name, *field.aliases):
            if name in record.by_name:
                route = (*position.route, RouteStep.field(name))
                return _Position(record.by_name[name].type, field.type, "", route, fields)
    return _Position(None, field, "", position.route, fields)


def _into_items(position: _Position) -> _Position:
    return position._replace(
        writer=_items_of(position.writer),
        reader=_items_of(position.reader),
        route=(*position.route, RouteStep.items()),
    )


def _items_of(node: Node | Field | None) -> Node | None:
    if isinstance(node, Array):
        return node.items
    return node.values if isinstance(node, Map) else None


def _described(part: Node | Field | None, detail: str) -> str | None:
    if part is None:
        return None
    if isinstance(part, Field):
        default = "" if isinstance(part.default, Absent) else f" = {write_json(part.default)}"
        return shortened(f"{part.name}: {_start_of(part.type)}{default}")
    if detail == "symbols" and isinstance(part, Enum):
        return shortened(f"symbols {', '.join(part.symbols)}")
    if detail == "size" and isinstance(part, Fixed):
        return f"size {part.size}"
    if detail == "name" and isinstance(part, Named):
        return part.full_name
    return shortened(_start_of(part))


def _start_of(node: Node) -> str:
    """The start of a type's text, long enough for `shortened`."""
    return print_start(node, SHOWN_CHARACTERS_MAX + 1)


def loses(before: AvroSchema, after: AvroSchema, steps: Sequence[str]) -> bool:
    """Whether a field was removed."""
    return _has(before.root, steps) and not _has(after.root, steps)


def _has(node: Node, steps: Sequence[str]) -> bool:
    """Whether the fields exist; unions, arrays and maps need no step."""
    if isinstance(node, Union):
        return any(_has(branch, steps) for branch in node.branches if branch is not node)
    if isinstance(node, Array | Map):
        return _has(node.items if isinstance(node, Array) else node.values, steps)
    if not steps:
        return True
    if not isinstance(node, Record) or steps[0] not in node.by_name:
        return False
    return _has(node.by_name[steps[0]].type, steps[1:]) if steps[1:] else True
