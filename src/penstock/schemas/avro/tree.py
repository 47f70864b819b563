"""An Avro schema as a graph of nodes: a named type is one node wherever it is used.

Nodes are built by `parse` and not changed afterwards. Equality of nodes is identity: two
definitions of the same name are two nodes, and it matters in which one a difference is.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, TypeAlias

JsonValue: TypeAlias = bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"] | None
Properties = Mapping[str, JsonValue]

NESTING_MAX: Final = 100  # levels of types within types; a deeper schema is refused


class AvroType(StrEnum):
    """The fourteen types, by their names in a schema."""

    NULL = "null"
    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    BYTES = "bytes"
    STRING = "string"
    ARRAY = "array"
    MAP = "map"
    UNION = "union"
    RECORD = "record"
    ENUM = "enum"
    FIXED = "fixed"


class Absent:
    """The type of `ABSENT`: a field has no default. A default of null is not absent."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = Absent()


class Name:
    """A name split into its namespace, which may be None, and the rest."""

    __slots__ = ("full", "namespace", "simple")

    def __init__(self, simple: str, namespace: str | None) -> None:
        self.simple: Final = simple
        self.namespace: Final = namespace
        self.full: Final = f"{namespace}.{simple}" if namespace else simple


class Node:
    """Any type. `properties` are the members without a meaning in Avro, in their order."""

    __slots__ = ("kind", "properties", "shape")

    def __init__(self, kind: AvroType, properties: Properties) -> None:
        self.kind: Final = kind
        self.properties: Final = properties
        self.shape: str | None = None  # set by `shapes`

    @property
    def full_name(self) -> str:
        """The name that identifies this type in a union."""
        return self.kind.value

    @property
    def parts(self) -> "Sequence[Node]":
        """The types that this type consists of."""
        return ()


class Primitive(Node):
    """A type without parts."""

    __slots__ = ()


class Array(Node):
    """A sequence of items of one type."""

    __slots__ = ("items",)

    def __init__(self, items: Node, properties: Properties) -> None:
        super().__init__(AvroType.ARRAY, properties)
        self.items: Node = items

    @property
    def parts(self) -> Sequence[Node]:
        """The type of the items."""
        return (self.items,)


class Map(Node):
    """Values of one type under string keys."""

    __slots__ = ("values",)

    def __init__(self, values: Node, properties: Properties) -> None:
        super().__init__(AvroType.MAP, properties)
        self.values: Node = values

    @property
    def parts(self) -> Sequence[Node]:
        """The type of the values."""
        return (self.values,)


class Union(Node):
    """One of several types."""

    __slots__ = ("branches",)

    def __init__(self, branches: list[Node]) -> None:
        super().__init__(AvroType.UNION, {})
        self.branches: list[Node] = branches

    @property
    def parts(self) -> Sequence[Node]:
        """The branches."""
        return self.branches


class Named(Node):
    """A type with a name: record, enum or fixed."""

    __slots__ = ("aliases", "doc", "name")

    def __init__(
        self,
        kind: AvroType,
        name: Name,
        doc: str | None,
        aliases: Sequence[Name],
        properties: Properties,
    ) -> None:
        super().__init__(kind, properties)
        self.name: Final = name
        self.doc: Final = doc
        self.aliases: Final = aliases

    @property
    def full_name(self) -> str:
        """The name with its namespace."""
        return self.name.full

    @property
    def alias_names(self) -> list[str]:
        """The aliases as they are matched: one without a namespace gets a leading dot."""
        has_namespace = self.name.namespace is not None
        return [
            f".{alias.simple}" if has_namespace and alias.namespace is None else alias.full
            for alias in self.aliases
        ]


class Field:
    """A field of a record."""

    __slots__ = ("aliases", "default", "doc", "name", "order", "properties", "type")

    def __init__(
        self,
        name: str,
        type_: Node,
        doc: str | None,
        default: JsonValue | Absent,
        order: str,
        aliases: Sequence[str],
        properties: Properties,
    ) -> None:
        self.name: Final = name
        self.type: Node = type_
        self.doc: Final = doc
        self.default: Final = default
        self.order: Final = order
        self.aliases: Final = aliases
        self.properties: Final = properties

    @property
    def has_default(self) -> bool:
        """Whether a reader can fill it in if the writer does not have it."""
        return not isinstance(self.default, Absent)


class Record(Named):
    """Fields in order. An error is a record that a remote call can raise."""

    __slots__ = ("by_name", "fields", "is_error")

    def __init__(
        self,
        name: Name,
        doc: str | None,
        aliases: Sequence[Name],
        properties: Properties,
        fields: Sequence[Field],
        *,
        is_error: bool,
    ) -> None:
        super().__init__(AvroType.RECORD, name, doc, aliases, properties)
        self.fields: Final = fields
        self.by_name: Final = {field.name: field for field in fields}
        self.is_error: Final = is_error

    @property
    def parts(self) -> Sequence[Node]:
        """The types of the fields."""
        return [field.type for field in self.fields]


class Enum(Named):
    """One of a list of symbols."""

    __slots__ = ("default", "symbols")

    def __init__(
        self,
        name: Name,
        doc: str | None,
        aliases: Sequence[Name],
        properties: Properties,
        symbols: Sequence[str],
        default: str | None,
    ) -> None:
        super().__init__(AvroType.ENUM, name, doc, aliases, properties)
        self.symbols: Final = symbols
        self.default: Final = default


class Fixed(Named):
    """A given number of bytes."""

    __slots__ = ("size",)

    def __init__(
        self,
        name: Name,
        doc: str | None,
        aliases: Sequence[Name],
        properties: Properties,
        size: int,
    ) -> None:
        super().__init__(AvroType.FIXED, name, doc, aliases, properties)
        self.size: Final = size


class Pending(Node):
    """A name used before its definition; `parse` replaces it with the definition."""

    __slots__ = ("candidates", "path")

    def __init__(self, candidates: tuple[str, ...], path: str) -> None:
        super().__init__(AvroType.RECORD, {})
        self.candidates: Final = candidates
        self.path: Final = path


PRIMITIVES: Final[Mapping[str, Primitive]] = {
    kind.value: Primitive(kind, {})
    for kind in (
        AvroType.NULL,
        AvroType.BOOLEAN,
        AvroType.INT,
        AvroType.LONG,
        AvroType.FLOAT,
        AvroType.DOUBLE,
        AvroType.BYTES,
        AvroType.STRING,
    )
}
