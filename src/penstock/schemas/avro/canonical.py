"""Tree to canonical text: what Avro's Java library 1.12 prints, byte for byte.

Members come in a fixed order, a namespace only where it changes, and a type that was printed
before, or is known from a reference, by its name.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from penstock.schemas.avro.jsontext import write_json, write_text
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

_TYPE_NAMES: Final = frozenset(kind.value for kind in AvroType)


def print_schema(root: Node, known: Iterable[str] = ()) -> str:
    """The text of a schema; names in `known` are not defined again."""
    parts: list[str] = []
    _Printer(set(known), parts).print(root, None)
    return "".join(parts)


def print_start(root: Node, characters_max: int) -> str:
    """The text of a schema; of a long one only its beginning, without printing the rest."""
    parts: list[str] = []
    with suppress(_LongEnough):
        _Printer(set(), parts, characters_max).print(root, None)
    text = "".join(parts)
    return text if len(text) <= characters_max else f"{text[:characters_max]}..."


class _LongEnough(Exception):
    """As much is printed as was asked for."""


class _Printer:
    def __init__(
        self, known: set[str], parts: list[str], characters_max: int | None = None
    ) -> None:
        self._known = known
        self._parts = parts
        self._characters_max = characters_max

    def print(self, node: Node, space: str | None) -> None:
        if self._characters_max is not None and sum(map(len, self._parts)) > self._characters_max:
            raise _LongEnough
        write = self._parts.append
        if isinstance(node, Named):
            self._print_named(node, space)
        elif isinstance(node, Union):
            write("[")
            for index, branch in enumerate(node.branches):
                if index:
                    write(",")
                self.print(branch, space)
            write("]")
        elif isinstance(node, Array):
            write('{"type":"array","items":')
            self.print(node.items, space)
            self._close(node.properties)
        elif isinstance(node, Map):
            write('{"type":"map","values":')
            self.print(node.values, space)
            self._close(node.properties)
        elif node.properties:
            write(f'{{"type":"{node.kind}"')
            self._close(node.properties)
        else:
            write(f'"{node.kind}"')

    def _print_named(self, node: Named, space: str | None) -> None:
        write = self._parts.append
        if node.name.full in self._known:
            write(write_text(qualified(node.name, space)))
            return
        self._known.add(node.name.full)
        is_error = isinstance(node, Record) and node.is_error
        write(f'{{"type":"{"error" if is_error else node.kind}","name":"{node.name.simple}"')
        if node.name.space != space:
            write(f',"namespace":{write_text(node.name.space or "")}')
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
            aliases = [qualified(alias, node.name.space) for alias in node.aliases]
            write(f',"aliases":{write_json(list(aliases))}')
        write("}")

    def _print_fields(self, record: Record) -> None:
        write = self._parts.append
        write(',"fields":[')
        for index, field in enumerate(record.fields):
            write(f'{"," if index else ""}{{"name":"{field.name}","type":')
            self.print(field.type, record.name.space)
            self._print_rest(field)
        write("]")

    def _print_rest(self, field: Field) -> None:
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


def qualified(name: Name, space: str | None) -> str:
    """A name as it is written inside a namespace: short if that is enough to find it."""
    if name.space is not None and name.space == space and name.simple not in _TYPE_NAMES:
        return name.simple
    return name.full
