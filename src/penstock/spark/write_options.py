"""What a frame's rows become: which columns are which part of a record, and under which schemas.

A WriteRequest is what the user gives, in Python or as the options of `format("penstock")`. With the
columns of a frame it makes a WritePlan, which is small and frozen and is sent to the tasks. A plan
names its columns, and only those are sent.

Columns that are not given are found by Kafka's names, as Spark's Kafka sink does it (`key`,
`value`, `topic`, `headers`, `partition`), or by those of our source (`_key`, `_value`, `_topic`,
`_headers`). With a schema the value is the whole row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from penstock.columns.build_batches import Framing
from penstock.protocol.compression import Codec
from penstock.serde.contract import Contract
from penstock.serde.frame import Side
from penstock.serde.serializers import Serializer
from penstock.spark.connections import (
    BOOTSTRAP,
    client_properties,
    kafka_properties,
    registry_client,
)
from penstock.spark.given_options import GivenOptions, config_error
from penstock.spark.option_rows import SINK_OPTIONS
from penstock.spark.source_columns import RECORD_COLUMNS

if TYPE_CHECKING:
    from penstock.schemas.model import SchemaText

_CODECS: Final = {codec.name.lower(): codec for codec in Codec}
BATCH_BYTES: Final = 200_000  # as one row in the shuffle; Java's collectors dislike larger ones
DEFAULT_FRAMING: Final = Framing(batch_bytes_max=BATCH_BYTES)
_BATCH_BYTES_MIN: Final = 1_024
_BATCH_BYTES_MAX: Final = 64 << 20
_LATEST: Final = "latest"
_OF_SPARK: Final = frozenset({"path", "queryname", BOOTSTRAP})  # given by Spark or Kafka's name

SchemaLike: TypeAlias = Contract | str | Path | None


@dataclass(frozen=True, slots=True)
class PayloadPlan:
    """The keys or the values of records: one column unchanged, or columns under a contract."""

    columns: tuple[str, ...]
    contract: Contract | None = None
    is_row: bool = True  # the columns are fields of a record; else the one column is the value


@dataclass(frozen=True, slots=True)
class WritePlan:
    """From a row to a record."""

    properties: Mapping[str, str]
    topic: str | None  # None: each row names it, in `topic_column`
    topic_column: str | None
    key: PayloadPlan | None
    value: PayloadPlan
    headers: str | None = None
    partition: str | None = None
    timestamp: str | None = None
    registry_url: str | None = None
    framing: Framing = DEFAULT_FRAMING
    trace: tuple[tuple[str, bytes], ...] = ()  # headers of records that name no span

    @property
    def columns(self) -> list[str]:
        """All the columns that are read, once each."""
        payloads = [*(self.key.columns if self.key else ()), *self.value.columns]
        rest = [self.topic_column, self.headers, self.partition, self.timestamp]
        return list(dict.fromkeys([*payloads, *(name for name in rest if name is not None)]))


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """What to write and where: the columns, schemas and topic of a frame's rows.

    `key`, `value`, `headers`, `partition`, `timestamp` and `topic_column` are names of columns.
    `schema` and `key_schema` are a schema's text, an .avsc, .proto or .json file, a `Contract`, or
    `latest`. `kafka` has other properties of a Kafka client, such as `compression.type`. `trace`
    has the headers that name a span; records whose own headers name one keep theirs.
    """

    topic: str | None = None
    _: KW_ONLY
    bootstrap: str = ""
    registry: str | None = None
    key: str | Sequence[str] | None = None
    value: str | Sequence[str] | None = None
    schema: SchemaLike = None
    key_schema: SchemaLike = None
    headers: str | None = None
    partition: str | None = None
    timestamp: str | None = None
    topic_column: str | None = None
    kafka: Mapping[str, str] = field(default_factory=dict)
    trace: tuple[tuple[str, bytes], ...] = ()

    @property
    def properties(self) -> dict[str, str]:
        """The properties of the Kafka client that writes."""
        return client_properties(self.bootstrap, self.kafka)

    def prepared(self) -> "WriteRequest":
        """Register the schemas, or check that they are; the request, bound to those versions.

        Tasks look the schemas up and register nothing. Where a column names the topic there is
        nothing to register yet: the first task that meets a topic registers.
        """
        if self.schema is None and self.key_schema is None:
            return self
        if self.registry is None:
            raise config_error("a schema needs a `registry`, as http://host:8081")
        return replace(
            self,
            key_schema=self._bound(self.key_schema, Side.KEY),
            schema=self._bound(self.schema, Side.VALUE),
        )

    def plan(self, names: Sequence[str]) -> WritePlan:
        """The plan for a frame with these columns."""
        topic_column = self.topic_column
        if self.topic is None and topic_column is None:
            topic_column = _first(names, "topic", "_topic")
            if topic_column is None:
                raise config_error("no topic: give `topic`, or a column of that name")
        is_unchanged = self.schema is None
        properties = self.properties
        plan = WritePlan(
            properties=properties,
            topic=self.topic,
            topic_column=topic_column if self.topic is None else None,
            key=self._key_plan(names),
            value=PayloadPlan(()),
            headers=self.headers
            or _first(names, "_headers", *(["headers"] if is_unchanged else [])),
            partition=self.partition or (_first(names, "partition") if is_unchanged else None),
            timestamp=self.timestamp,
            registry_url=self.registry,
            framing=framing_of(properties),
            trace=self.trace,
        )
        plan = replace(plan, value=self._value_plan(names, plan))
        missing = [name for name in plan.columns if name not in names]
        if missing:
            raise config_error(f"the frame has no column {missing[0]!r}; it has {', '.join(names)}")
        return plan

    def _key_plan(self, names: Sequence[str]) -> PayloadPlan | None:
        key = self.key or _first(names, "_key", *(["key"] if self.schema is None else []))
        return None if key is None else _payload_plan(key, self.key_schema, Side.KEY)

    def _value_plan(self, names: Sequence[str], plan: WritePlan) -> PayloadPlan:
        if self.value is not None:
            return _payload_plan(self.value, self.schema, Side.VALUE)
        if self.schema is None:
            column = _first(names, "value", "_value")
            if column is None:
                raise config_error(
                    "the frame has no column `value`: name the column to write with `value`, or"
                    " give a `schema` to write whole rows"
                )
            return PayloadPlan((column,), is_row=False)
        others = {plan.topic_column, plan.headers, plan.partition, *RECORD_COLUMNS}
        fields = tuple(name for name in names if name not in others)
        return PayloadPlan(fields, contract_of(self.schema))

    def _bound(self, schema: SchemaLike, side: Side) -> Contract | None:
        contract = contract_of(schema)
        if contract is None or self.topic is None:
            return contract
        assert self.registry is not None, "checked by the caller"
        client = registry_client(self.registry)
        serializer = Serializer(client, self.topic, contract, side=side)
        if contract.schema is None:
            client.latest(serializer.subject, fresh=True)  # `prepare` finds it; the query keeps it
        serializer.prepare()
        if contract.message_type is not None:  # a class: its file becomes the schema in every task
            return replace(contract, auto_register=False)
        if contract.schema is None:
            source: SchemaText | None = client.latest(serializer.subject).source
        else:
            source = contract.source(client.register_reference)
        assert source is not None, "a contract that was prepared has a schema"
        return replace(
            contract,
            schema=source.text,
            type=source.type,
            references=source.references,
            auto_register=False,
        )


def contract_of(schema: SchemaLike) -> Contract | None:
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
    """How batches are cut and compressed, by the producer's own settings."""
    name = properties.get("compression.type", "none").lower()
    if name not in _CODECS:
        raise config_error(f"compression.type {name!r} is not one of {', '.join(_CODECS)}")
    size = properties.get("batch.size", str(BATCH_BYTES))
    if not size.isdecimal() or not _BATCH_BYTES_MIN <= int(size) <= _BATCH_BYTES_MAX:
        raise config_error(
            f"batch.size {size!r} is not a number from {_BATCH_BYTES_MIN} to {_BATCH_BYTES_MAX}"
        )
    return Framing(codec=_CODECS[name], batch_bytes_max=int(size))


def sink_options(options: Mapping[str, str]) -> GivenOptions:
    """The options of the sink; Refused if one is not known."""
    given = GivenOptions(options)
    given.refuse_unknown(SINK_OPTIONS, _OF_SPARK)
    return given


def request_from_options(options: Mapping[str, str]) -> WriteRequest:
    """The request that the options of `format("penstock")` describe."""
    given = sink_options(options)
    kafka = kafka_properties(options)
    return WriteRequest(
        given.text("topic"),
        bootstrap=kafka.pop(BOOTSTRAP),
        registry=given.text("registry"),
        key=_one_or_several(given.names("key")),
        value=_one_or_several(given.names("value")),
        schema=given.text("schema"),
        key_schema=given.text("keySchema"),
        headers=given.text("headers"),
        partition=given.text("partition"),
        timestamp=given.text("timestamp"),
        topic_column=given.text("topicColumn"),
        kafka=kafka,
    )


def _one_or_several(names: tuple[str, ...] | None) -> str | tuple[str, ...] | None:
    return names[0] if names is not None and len(names) == 1 else names


def _payload_plan(columns: str | Sequence[str], schema: SchemaLike, side: Side) -> PayloadPlan:
    contract = contract_of(schema)
    if isinstance(columns, str):
        return PayloadPlan((columns,), contract, is_row=False)
    if contract is None:
        raise config_error(f"a {side} of several columns needs a schema")
    return PayloadPlan(tuple(columns), contract)


def _first(names: Sequence[str], *candidates: str) -> str | None:
    return next((name for name in candidates if name in names), None)
