"""Random Avro schemas, values that fit them, changes that keep them readable, and the oracle.

The oracle is fastavro, on schemas without logical types: it then gives back what was written, and
`expected` says what Arrow should show for it. Unions never have two kinds that Python cannot tell
apart, so that fastavro's values say which branch they are of.
"""

import io
import json
import math
import random
import struct
import uuid
from collections.abc import Callable, Sequence
from decimal import Context
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import reject

from penstock.columns.compiled import Int64s
from penstock.schemas.avro import AvroSchema, parse
from penstock.schemas.avro.tree import Array, AvroType, Map, Node, Record, Union
from penstock.schemas.avro.types import logical_type

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
LOGICAL = (
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "timestamp-nanos"},
    {"type": "long", "logicalType": "local-timestamp-millis"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-nanos"},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    {"type": "bytes", "logicalType": "decimal", "precision": 38},
    {"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 30},
    {"type": "bytes", "logicalType": "decimal", "precision": 99, "scale": 2},  # beyond Arrow
    {"type": "string", "logicalType": "uuid"},
    {"type": "string", "logicalType": "date"},  # not on a string: ignored
)
TEXTS = ("", "a", "sku-1", "naïve", "日本", "🎉 party", "x" * 200, "nul\0")
SYMBOLS = ("NEW", "PAID", "SHIPPED", "LOST")
DAY_MILLIS = 86_400_000
FIRST_MILLI, END_MILLI = -719_162 * DAY_MILLIS, 2_932_897 * DAY_MILLIS  # the years 1 to 9999
MOMENTS = {  # numbers that a logical type allows
    "date": (-719_162, 2_932_897),
    "time-millis": (0, DAY_MILLIS),
    "time-micros": (0, DAY_MILLIS * 1000),
    "timestamp-millis": (FIRST_MILLI, END_MILLI),
    "timestamp-micros": (FIRST_MILLI * 1000, END_MILLI * 1000),
    "timestamp-nanos": (-(2**63), 2**63),
    "local-timestamp-millis": (FIRST_MILLI, END_MILLI),
    "local-timestamp-micros": (FIRST_MILLI * 1000, END_MILLI * 1000),
    "local-timestamp-nanos": (-(2**63), 2**63),
}
WIDE = Context(prec=100)
PROMOTED = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
}
# Kinds that Python, or fastavro when it resolves, cannot tell apart in one union.
TELLS_APART = {
    "int": "number",
    "long": "number",
    "float": "number",
    "double": "number",
    "string": "text",
    "bytes": "text",
}


class Maker:
    """Schemas and values from a seed; wild values need not be what their logical type allows."""

    def __init__(self, seed: int, *, wild: bool = False) -> None:
        self.random = random.Random(seed)
        self._counter = 0
        self._wild = wild

    def record(self) -> Any:
        """A record of up to six fields."""
        return self._record(0)

    def tree(self) -> Any:
        """A record that contains itself."""
        record = self._record(0)
        again: Any = ["null", record["name"]]
        if self.random.random() < 0.3:
            again = {"type": self.random.choice(("array", "map")), "items": again, "values": again}
        record["fields"].append({"name": "again", "type": again})
        return record

    def damaged(self, payload: bytes) -> bytes:
        """The payload with something wrong, most of the time."""
        place = self.random.randrange(len(payload) + 1)
        if self.random.random() < 0.5:
            return payload[:place]
        return payload[:place] + self.random.randbytes(1) + payload[place + 1 :]

    def schema(self) -> Any:
        """Any type."""
        return self._type(0)

    def _name(self, prefix: str) -> str:
        self._counter += 1
        return f"{prefix}{self._counter}"

    def _record(self, depth: int) -> Any:
        count = self.random.randint(0 if depth else 1, 6 if depth == 0 else 3)
        fields = [{"name": self._name("f"), "type": self._type(depth + 1)} for _ in range(count)]
        return {"type": "record", "name": self._name("R"), "fields": fields}

    def _type(self, depth: int) -> Any:
        choice = self.random.random()
        if depth > 3 or choice < 0.4:
            return self.random.choice(PRIMITIVES)
        if choice < 0.55:
            return dict(self.random.choice(LOGICAL))
        if choice < 0.62:
            return self._fixed()
        if choice < 0.68:
            return {
                "type": "enum",
                "name": self._name("E"),
                "symbols": list(SYMBOLS[: self.random.randint(1, len(SYMBOLS))]),
            }
        if choice < 0.76:
            return {"type": "array", "items": self._type(depth + 1)}
        if choice < 0.82:
            return {"type": "map", "values": self._type(depth + 1)}
        return self._record(depth) if choice < 0.9 else self._union(depth)

    def _fixed(self) -> Any:
        size = self.random.choice((0, 1, 4, 8, 12, 16, 20))
        fixed: dict[str, Any] = {"type": "fixed", "name": self._name("X"), "size": size}
        if size >= 4 and self.random.random() < 0.5:
            fixed |= {"logicalType": "decimal", "precision": 9, "scale": 3}
        elif size in (12, 16):
            fixed["logicalType"] = {12: "duration", 16: "uuid"}[size]
        return fixed

    def _union(self, depth: int) -> Any:
        if self.random.random() < 0.5:
            branches = ["null", self._type(depth + 1)]
            self.random.shuffle(branches)
        else:
            branches = [self._type(depth + 1) for _ in range(self.random.randint(1, 4))]
        seen: set[str] = set()
        kept = []
        for branch in branches:
            if isinstance(branch, list):
                continue
            kind = branch if isinstance(branch, str) else branch["type"]
            key = TELLS_APART.get(kind, kind)
            if key in ("record", "enum", "fixed"):
                key = branch["name"]
            if key not in seen:
                seen.add(key)
                kept.append(branch)
        return kept or ["null"]

    def value(self, node: Node) -> Any:
        """A value as fastavro writes it without logical types, and as it is in Arrow."""
        if isinstance(node, Record):
            return {field.name: self.value(field.type) for field in node.fields}
        if isinstance(node, Array):
            return [self.value(node.items) for _ in range(self._length())]
        if isinstance(node, Map):
            keys = {self.random.choice(TEXTS) for _ in range(self._length())}
            return {key: self.value(node.values) for key in keys}
        if isinstance(node, Union):
            branch = self.random.choice(node.branches)
            value = self.value(branch)
            is_named = branch.kind in (AvroType.RECORD, AvroType.ENUM, AvroType.FIXED)
            return (branch.full_name, value) if is_named else value
        return self._scalar(node)

    def _length(self) -> int:
        return self.random.choice((0, 0, 1, 2, 5))

    def _scalar(self, node: Any) -> Any:
        pick = self.random.choice
        logical = logical_type(node)
        name = logical.name if logical is not None else ""
        if logical is not None and name == "decimal":
            digits = self.random.randint(1, logical.precision)
            number = self.random.randrange(-(10**digits) + 1, 10**digits)
            if node.kind is AvroType.FIXED:
                return number.to_bytes(node.size, "big", signed=True)
            least = (number.bit_length() // 8) + 1
            return number.to_bytes(least + pick((0, 0, 1, 40)), "big", signed=True)
        if name in MOMENTS and not (self._wild and self.random.random() < 0.2):
            return self.random.randrange(*MOMENTS[name])
        if name == "uuid" and node.kind is AvroType.STRING and not self._wild:
            return str(uuid.UUID(int=self.random.getrandbits(128)))
        choices: dict[AvroType, Callable[[], Any]] = {
            AvroType.NULL: lambda: None,
            AvroType.BOOLEAN: lambda: pick((True, False)),
            AvroType.INT: lambda: pick((0, 1, -1, 63, -64, 64, 2**31 - 1, -(2**31))),
            AvroType.LONG: lambda: pick((0, -1, 300, 2**31, -(2**40), 2**63 - 1, -(2**63))),
            AvroType.FLOAT: lambda: pick((0.0, -0.0, 1.5, math.inf, math.nan, 2.0**-140)),
            AvroType.DOUBLE: lambda: pick((0.0, -0.0, 0.1, -math.inf, math.nan, 1e300)),
            AvroType.BYTES: lambda: pick((b"", b"\0", b"\xff\xfe", b"bytes" * 30)),
            AvroType.STRING: lambda: pick(TEXTS),
            AvroType.ENUM: lambda: pick(node.symbols),
            AvroType.FIXED: lambda: self.random.randbytes(node.size),
        }
        return choices[node.kind]()


class Evolver:
    """Changes to a schema that leave most of what was written readable."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._counter = 0

    def reader(self, schema: Any) -> Any:
        """A reader's schema for what `schema` wrote."""
        if isinstance(schema, list):
            return self._union(schema)
        kind = schema if isinstance(schema, str) else schema["type"]
        if kind in PROMOTED and isinstance(schema, str) and self.random.random() < 0.3:
            return self.random.choice(PROMOTED[kind])
        if isinstance(schema, str):
            return self._optional(schema)
        if kind == "record":
            return self._optional(self._record(schema))
        if kind == "array":
            return {**schema, "items": self.reader(schema["items"])}
        if kind == "map":
            return {**schema, "values": self.reader(schema["values"])}
        if kind == "enum":
            return self._enum(schema)
        return self._optional(schema)

    def _optional(self, schema: Any) -> Any:
        if schema != "null" and self.random.random() < 0.2:
            return ["null", schema]
        return schema

    def _union(self, union: list[Any]) -> Any:
        rest = [one for one in union if one != "null"]
        if len(rest) == 1 and self.random.random() < 0.2:
            return rest[0]  # nulls become errors
        kept = [*union]
        if self.random.random() < 0.3:
            kept.reverse()
        if len(kept) > 1 and self.random.random() < 0.2:
            kept.pop()
        return kept

    def _enum(self, enum: dict[str, Any]) -> Any:
        choice = self.random.random()
        if choice < 0.3:
            return {**enum, "symbols": ["OTHER", *enum["symbols"][1:]], "default": "OTHER"}
        if choice < 0.5:
            return {**enum, "symbols": ["OTHER", *reversed(enum["symbols"])]}
        if choice < 0.6:
            return {**enum, "symbols": ["OTHER", *enum["symbols"][1:]]}  # some cannot be read
        return enum

    def _record(self, record: dict[str, Any]) -> Any:
        fields = []
        for field in record["fields"]:
            choice = self.random.random()
            if choice < 0.2:
                continue
            changed = {**field, "type": self.reader(field["type"])}
            if choice < 0.35:
                changed |= {"name": f"{field['name']}x", "aliases": [field["name"]]}
            fields.append(changed)
        if self.random.random() < 0.5:
            self.random.shuffle(fields)
        fields += [self._added() for _ in range(self.random.choice((0, 0, 1, 2)))]
        return {**record, "fields": fields}

    def _added(self) -> dict[str, Any]:
        self._counter += 1
        inner = {
            "type": "record",
            "name": f"Inner{self._counter}",
            "fields": [
                {"name": "x", "type": "int"},
                {"name": "y", "type": ["null", "string"]},
            ],
        }
        kind, default = self.random.choice(
            (
                ("int", 7),
                ("string", "dëfault"),
                ("double", 1.5),
                ("boolean", True),
                (["null", "long"], None),
                (["long", "null"], 5),
                (["null", "string", "int"], None),
                (["string", "int", "null"], "s"),
                ({"type": "array", "items": "int"}, [1, 2, 3]),
                ({"type": "map", "values": "string"}, {"k": "v"}),
                (inner, {"x": 1, "y": None}),
                ({"type": "enum", "name": f"Added{self._counter}", "symbols": ["P", "Q"]}, "Q"),
            )
        )
        return {"name": f"added{self._counter}", "type": kind, "default": default}


def plain_schema(schema: AvroSchema) -> Any:
    """The schema for fastavro, without logical types: values as they are written."""
    return fastavro.parse_schema(_without_logical(json.loads(schema.formatted("resolved"))))


def _without_logical(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_logical(one) for one in value]
    if isinstance(value, dict):
        # A default is a value, not a schema, and may well have a member of that name.
        return {
            key: one if key == "default" else _without_logical(one)
            for key, one in value.items()
            if key != "logicalType" or not isinstance(one, str)
        }
    return value


def encoded(schema: AvroSchema, values: Sequence[Any]) -> list[bytes]:
    """The values as fastavro writes them."""
    plain = plain_schema(schema)
    payloads = []
    for value in values:
        buffer = io.BytesIO()
        try:
            fastavro.schemaless_writer(buffer, plain, value)
        except ValueError as wrong:
            if "do not match" not in str(wrong):
                raise
            reject()  # fastavro finds no branch for lists of values that name theirs
        payloads.append(buffer.getvalue())
    return payloads


def joined(payloads: Sequence[bytes]) -> tuple[bytes, Int64s, Int64s]:
    """A buffer with rubbish around the payloads, their starts, and their ends."""
    gap = b"\xfe\xff"
    sizes = np.array([len(payload) for payload in payloads], dtype=np.int64)
    starts = np.cumsum(sizes + len(gap)) - sizes
    return gap + gap.join(payloads) + gap, starts, starts + sizes


def read_by_oracle(payload: bytes, writer: AvroSchema, reader: AvroSchema | None = None) -> Any:
    """What fastavro makes of it; EOFError as well for bytes left over."""
    stream = io.BytesIO(payload)
    value = fastavro.schemaless_reader(
        stream,
        plain_schema(writer),
        None if reader is None else plain_schema(reader),
        return_named_type=True,
    )
    if stream.read():
        raise EOFError("bytes left over")
    return value


def expected(node: Node, value: Any) -> Any:
    """What `plain` should show for a value of fastavro's."""
    if isinstance(value, tuple) and not isinstance(node, Union):  # of a union in the writer only
        value = value[1]
    if isinstance(node, Record):
        return {field.name: expected(field.type, value[field.name]) for field in node.fields}
    if isinstance(node, Array):
        return [expected(node.items, one) for one in value]
    if isinstance(node, Map):
        return {key: expected(node.values, one) for key, one in value.items()}
    if isinstance(node, Union):
        return _expected_in_union(node, value)
    logical = logical_type(node)
    if logical is not None and logical.name == "decimal" and logical.precision <= 76:
        return int.from_bytes(value, "big", signed=True)
    if node.kind in (AvroType.FLOAT, AvroType.DOUBLE):
        return bits(value, node.kind is AvroType.FLOAT)
    return value


def _expected_in_union(union: Union, value: Any) -> Any:
    if value is None:
        return None
    values = [branch for branch in union.branches if branch.kind is not AvroType.NULL]
    inner = value[1] if isinstance(value, tuple) else value
    if len(values) == 1:
        return expected(values[0], inner)
    branch = next(one for one in values if _is_of(one, value))
    return {one.full_name: expected(one, inner) if one is branch else None for one in values}


def _is_of(branch: Node, value: Any) -> bool:
    if isinstance(value, tuple):
        return bool(branch.full_name == value[0])
    kinds: dict[type, tuple[AvroType, ...]] = {
        bool: (AvroType.BOOLEAN,),
        int: (AvroType.INT, AvroType.LONG),
        float: (AvroType.FLOAT, AvroType.DOUBLE),
        str: (AvroType.STRING,),
        bytes: (AvroType.BYTES,),
        list: (AvroType.ARRAY,),
        dict: (AvroType.MAP,),
    }
    return branch.kind in kinds[type(value)]


def bits(value: float, is_float: bool) -> Any:
    """A float that can be compared: NaN is NaN, and -0.0 is not 0.0."""
    if math.isnan(value):
        return "nan"
    return struct.pack("<f" if is_float else "<d", value)


def plain(array: Any) -> list[Any]:
    """An Arrow array as Python values that compare: temporal ones as integers, maps as dicts."""
    kind = array.type
    if pa.types.is_temporal(kind):
        array = array.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    elif pa.types.is_decimal(kind):
        return [
            None if one is None else int(one.scaleb(kind.scale, WIDE)) for one in array.to_pylist()
        ]
    elif pa.types.is_floating(kind):
        is_float = pa.types.is_float32(kind)
        return [None if one is None else bits(one, is_float) for one in array.to_pylist()]
    elif pa.types.is_struct(kind):
        members = {field.name: plain(array.field(index)) for index, field in enumerate(kind)}
        return [
            {name: member[row] for name, member in members.items()} if valid else None
            for row, valid in enumerate(array.is_valid().to_pylist())
        ]
    elif pa.types.is_map(kind):
        keys, items = plain(array.keys), plain(array.items)
        return [
            None if one is None else dict(zip(keys[one], items[one], strict=True))
            for one in _stretches(array)
        ]
    elif pa.types.is_list(kind):
        values = plain(array.values)
        return [None if one is None else values[one] for one in _stretches(array)]
    return list(array.to_pylist())


def _stretches(array: Any) -> list[slice | None]:
    offsets = array.offsets.to_pylist()
    return [
        slice(offsets[row], offsets[row + 1]) if valid else None
        for row, valid in enumerate(array.is_valid().to_pylist())
    ]


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows of a batch, as `plain` shows them."""
    columns = {name: plain(batch.column(name)) for name in batch.schema.names}
    return [
        {name: column[row] for name, column in columns.items()} for row in range(batch.num_rows)
    ]


class Oracle:
    """All of the above in one place: what tests ask for by name."""

    maker = Maker
    evolver = Evolver
    logical = LOGICAL
    primitives = PRIMITIVES
    encoded = staticmethod(encoded)
    joined = staticmethod(joined)
    read = staticmethod(read_by_oracle)
    expected = staticmethod(expected)
    rows_of = staticmethod(rows_of)

    @staticmethod
    def parse(schema: Any) -> AvroSchema:
        """A schema from its JSON."""
        return parse(json.dumps(schema))


@pytest.fixture(scope="session")
def oracle() -> Oracle:
    return Oracle()
