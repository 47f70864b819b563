"""Which columns of a frame become which part of a record, and under which contracts.

A request is what the user said; with the columns of a frame it makes a plan, which is small and
frozen and travels to the tasks. A plan names its columns; no others are shipped.

Where nothing is said, columns are taken by Kafka's own names, as Spark's Kafka sink takes them
(`key`, `value`, `topic`, `headers`, `partition`), or by those of our source (`_key`, `_value`,
`_topic`, `_headers`). Under a contract, what is not said is the whole row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from penstock.columns.build_batches import Framing
from penstock.errors import ErrorCode, Refused
from penstock.protocol.compression import Codec
from penstock.schemas.model import SchemaText
from penstock.serde.contract import Contract
from penstock.serde.frame import Side
from penstock.serde.serializers import Serializer
from penstock.spark.connections import kafka_properties, registry

METADATA: Final = frozenset(  # what the source adds to a row; never part of a value
    {
        "_key",
        "_value",
        "_topic",
        "_partition",
        "_offset",
        "_timestamp",
        "_headers",
        "_schema_id",
        "_error",
    }
)
_CODECS: Final = {codec.name.lower(): codec for codec in Codec}
BATCH_BYTES: Final = 200_000  # as one row in the shuffle; Java's collectors dislike larger ones
USUAL_FRAMING: Final = Framing(batch_bytes_max=BATCH_BYTES)
_BATCH_BYTES_LEAST: Final = 1_024
_BATCH_BYTES_MAX: Final = 64 << 20
_LATEST: Final = "latest"


@dataclass(frozen=True, slots=True)
class SidePlan:
    """The keys or the values of the records: one column as it is, or columns under a contract."""

    columns: tuple[str, ...]
    contract: Contract | None = None
    is_row: bool = True  # the columns are fields of a record; else the one column is the value


@dataclass(frozen=True, slots=True)
class WritePlan:
    """From a row to a record."""

    properties: Mapping[str, str]
    topic: str | None  # None: each row says, in `topic_column`
    topic_column: str | None
    key: SidePlan | None
    value: SidePlan
    headers: str | None = None
    partition: str | None = None
    timestamp: str | None = None
    registry_url: str | None = None
    framing: Framing = USUAL_FRAMING

    @property
    def columns(self) -> list[str]:
        """All the columns that are read, once each."""
        sides = [*(self.key.columns if self.key else ()), *self.value.columns]
        rest = [self.topic_column, self.headers, self.partition, self.timestamp]
        return list(dict.fromkeys([*sides, *(name for name in rest if name is not None)]))


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """What a user asks for, before any frame is seen."""

    properties: Mapping[str, str]
    topic: str | None = None
    topic_column: str | None = None
    key: str | Sequence[str] | None = None
    value: str | Sequence[str] | None = None
    key_schema: Contract | None = None
    schema: Contract | None = None
    headers: str | None = None
    partition: str | None = None
    timestamp: str | None = None
    registry_url: str | None = None
    framing: Framing = USUAL_FRAMING

    def plan(self, names: Sequence[str]) -> WritePlan:
        """The plan for a frame with these columns."""
        topic_column = self.topic_column
        if self.topic is None and topic_column is None:
            topic_column = _first(names, "topic", "_topic")
            if topic_column is None:
                raise _refused("which topic? Say `topic`, or give the frame a column of that name")
        is_plain = self.schema is None
        plan = WritePlan(
            properties=self.properties,
            topic=self.topic,
            topic_column=topic_column if self.topic is None else None,
            key=self._key(names, is_plain),
            value=SidePlan((), self.schema),
            headers=self.headers or _first(names, "_headers", *(["headers"] if is_plain else [])),
            partition=self.partition or (_first(names, "partition") if is_plain else None),
            timestamp=self.timestamp,
            registry_url=self.registry_url,
            framing=self.framing,
        )
        plan = replace(plan, value=self._value(names, plan))
        missing = [name for name in plan.columns if name not in names]
        if missing:
            raise _refused(f"the frame has no column {missing[0]!r}; it has {', '.join(names)}")
        return plan

    def _key(self, names: Sequence[str], is_plain: bool) -> SidePlan | None:
        key = self.key or _first(names, "_key", *(["key"] if is_plain else []))
        return None if key is None else _side(key, self.key_schema, Side.KEY)

    def _value(self, names: Sequence[str], plan: WritePlan) -> SidePlan:
        if self.value is not None:
            return _side(self.value, self.schema, Side.VALUE)
        if self.schema is None:
            column = _first(names, "value", "_value")
            if column is None:
                raise _refused(
                    "the frame has no column `value`: name the column to write with `value`, or"
                    " give a `schema` to write whole rows with"
                )
            return SidePlan((column,), None, is_row=False)
        apart = {plan.topic_column, plan.headers, plan.partition, *METADATA}
        return SidePlan(tuple(name for name in names if name not in apart), self.schema)


def prepared(request: WriteRequest) -> WriteRequest:
    """Register the contracts, or check that they are; the request, bound to what was found.

    Tasks look the schemas up and register nothing. With topics by column there is nothing to ask
    for yet: the first task that meets a topic registers.
    """
    if request.schema is None and request.key_schema is None:
        return request
    if request.registry_url is None:
        raise _refused("a schema needs a `registry` to be kept in: http://host:8081")
    return replace(
        request,
        key_schema=_bound(request, request.key_schema, Side.KEY),
        schema=_bound(request, request.schema, Side.VALUE),
    )


def _bound(request: WriteRequest, contract: Contract | None, side: Side) -> Contract | None:
    if contract is None or request.topic is None:
        return contract
    assert request.registry_url is not None, "checked before"
    client = registry(request.registry_url)
    serializer = Serializer(client, request.topic, contract, side=side)
    if contract.schema is None:
        client.latest(serializer.subject, fresh=True)  # what `prepare` finds, and the query keeps
    serializer.prepare()
    if contract.message_type is not None:  # a class: its file is made a schema wherever it is
        return replace(contract, auto_register=False)
    if contract.schema is None:
        source: SchemaText | None = client.latest(serializer.subject).source
    else:
        source = contract.source(client.refer)
    assert source is not None, "a contract that was prepared has a schema"
    return replace(
        contract,
        schema=source.text,
        type=source.type,
        references=source.references,
        auto_register=False,
    )


def contract_of(schema: Contract | str | Path | None) -> Contract | None:
    """A contract as users give it: itself, a schema's text or file, or `latest`."""
    match schema:
        case None | Contract():
            return schema
        case str() if schema.strip().lower() == _LATEST:
            return Contract()
        case str() if schema.lstrip().startswith(("{", "[", '"', "syntax")) or "\n" in schema:
            return Contract(schema)
        case str():
            return Contract(Path(schema))
        case Path():
            return Contract(schema)


def framing_of(properties: Mapping[str, str]) -> Framing:
    """How batches are cut and packed, by the producer's own settings."""
    name = properties.get("compression.type", "none").lower()
    if name not in _CODECS:
        raise _refused(f"compression.type {name!r} is none of {', '.join(_CODECS)}")
    size = properties.get("batch.size", str(BATCH_BYTES))
    if not size.isdecimal() or not _BATCH_BYTES_LEAST <= int(size) <= _BATCH_BYTES_MAX:
        raise _refused(f"batch.size {size!r} is no number of bytes a batch may have")
    return Framing(codec=_CODECS[name], batch_bytes_max=int(size))


def request_from_options(options: Mapping[str, str]) -> WriteRequest:
    """The same by the options of `format("penstock")`."""
    said = {name.lower(): value for name, value in options.items()}
    properties = kafka_properties(options)
    return WriteRequest(
        properties=properties,
        topic=said.get("topic"),
        topic_column=said.get("topiccolumn"),
        key=_names(said.get("key")),
        value=_names(said.get("value")),
        key_schema=contract_of(said.get("keyschema")),
        schema=contract_of(said.get("schema", said.get("valueschema"))),
        headers=said.get("headers"),
        partition=said.get("partition"),
        timestamp=said.get("timestamp"),
        registry_url=said.get("registry"),
        framing=framing_of(properties),
    )


def _names(text: str | None) -> str | tuple[str, ...] | None:
    if text is None or "," not in text:
        return text
    return tuple(name.strip() for name in text.split(","))


def _side(columns: str | Sequence[str], contract: Contract | None, side: Side) -> SidePlan:
    if isinstance(columns, str):
        return SidePlan((columns,), contract, is_row=False)
    if contract is None:
        raise _refused(f"a {side} of several columns needs a schema to be written with")
    return SidePlan(tuple(columns), contract)


def _first(names: Sequence[str], *wanted: str) -> str | None:
    return next((name for name in wanted if name in names), None)


def _refused(why: str) -> Refused:
    return Refused(ErrorCode.invalid_config, why)
