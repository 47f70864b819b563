"""Tree to canonical text: what Avro's Java library 1.12 prints, byte for byte.

Members have a fixed order, a namespace is printed only where it changes, and a type that was
printed before, or that a reference defines, is printed as its name.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from penstock.schemas.avro.jsontext import write_json
from penstock.schemas.avro.tree import (
    Absent,
    Array,
    AvroType,
    Enum,
    Field,
    Fixed,
    Map,
    Name,
    Named,
    Node,
    Properties,
    Record,
    Union,
)
from penstock.schemas.java_json import write_text

_TYPE_NAMES: Final = frozenset(kind.value for kind in AvroType)


def print_schema(root: Node, known: Iterable[str] = ()) -> str:
    """The text of a schema; types in `known` are printed as names."""
    parts: list[str] = []
    _Printer(set(known), parts).print(root, None)
    return "".join(parts)


def print_start(root: Node, characters_max: int) -> str:
    """The text of a schema, cut off at a length without printing the rest."""
    parts: list[str] = []
    with suppress(_LengthReachedError):
        _Printer(set(), parts, characters_max).print(root, None)
    text = "".join(parts)
    return text if len(text) <= characters_max else f"{text[:characters_max]}..."


class _LengthReachedError(Exception):
    """The requested length is printed."""


class _Printer:
    def __init__(
        self, known: set[str], parts: list[str], characters_max: int | None = None
    ) -> None:
        self._known = known
        self._parts = parts
        self._characters_max = characters_max

    def print(self, node: Node, namespace: str | None) -> None:
        if self._characters_max is not None and sum(map(len, self._parts)) > self._characters_max:
            raise _LengthReachedError
        write = self._parts.append
        if isinstance(node, Named):
            self._print_named(node, namespace)
        elif isinstance(node, Union):
            write("[")
            for index, branch in enumerate(node.branches):
                if index:
                    write(",")
                self.print(branch, namespace)
            write("]")
        elif isinstance(node, Array):
            write('{"type":"array","items":')
            self.print(node.items, namespace)
            self._close(node.properties)
        elif isinstance(node, Map):
            write('{"type":"map","values":')
            self.print(node.values, namespace)
            self._close(node.properties)
        elif node.properties:
            write(f'{{"type":"{node.kind}"')
            self._close(node.properties)
        else:
            write(f'"{node.kind}"')

    def _print_named(self, node: Named, namespace: str | None) -> None:
        write = self._parts.append
        if node.name.full in self._known:
            write(write_text(qualified(node.name, namespace)))
            return
        self._known.add(node.name.full)
        is_error = isinstance(node, Record) and node.is_error
        write(f'{{"type":"{"error" if is_error else node.kind}","name":"{node.name.simple}"')
        if node.name.namespace != namespace:
            write(f',"namespace":{write_text(node.name.namespace or "")}')
        if node.doc is not None:
            write(f',"doc":{write_text(node.doc)}')
        if isinstance(node, Record):
            self._print_fields(node)
        elif isinstance(node, Enum):
            write(f',"symbols":{write_json(list(node.symbols))}')
            if node.default is not None:
                write(f',"default":{write_text(node.default)}')
        elif isinstance(node, Fixed):
            write(f',"size":{node.size}')
        self._properties(node.properties)
        if node.aliases:
            aliases = [qualified(alias, node.name.namespace) for alias in node.aliases]
            write(f',"aliases":{write_json(list(aliases))}')
        write("}")

    def _print_fields(self, record: Record) -> None:
        write = self._parts.append
        write(',"fields":[')
        for index, field in enumerate(record.fields):
            write(f'{"," if index else ""}{{"name":"{field.name}","type":')
            self.print(field.type, record.name.namespace)
            self._print_attributes(field)
        write("]")

    def _print_attributes(self, field: Field) -> None:
        write = self._parts.append
        if field.doc is not None:
            write(f',"doc":{write_text(field.doc)}')
        if not isinstance(field.default, Absent):
            write(f',"default":{write_json(field.default)}')
        if field.order != "ascending":
            write(f',"order":"{field.order}"')
        if field.aliases:
            write(f',"aliases":{write_json(list(field.aliases))}')
        self._close(field.properties)

    def _properties(self, properties: Properties) -> None:
        for key, value in properties.items():
            self._parts.append(f",{write_text(key)}:{write_json(value)}")

    def _close(self, properties: Properties) -> None:
        self._properties(properties)
        self._parts.append("}")


def qualified(name: Name, namespace: str | None) -> str:
    """A name as written inside a namespace: short if it can be found that way."""
    if (
        name.namespace is not None
        and name.namespace == namespace
        and name.simple not in _TYPE_NAMES
    ):
        return name.simple
    return name.full
