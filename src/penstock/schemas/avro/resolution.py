"""Why one schema cannot read what another wrote: Avro's schema resolution, as a list of reasons.

Verdicts, kinds, paths and their order are those of the Java library's compatibility checker,
quirks included: records match by their short names, a pair that is being compared already counts
as compatible, and a pair reported once is reported from the same place again.
"""

from typing import Final

from penstock.schemas.avro.printing import print_schema
from penstock.schemas.avro.tree import (
    Array,
    Enum,
    Field,
    Fixed,
    Kind,
    Map,
    Named,
    Node,
    Primitive,
    Record,
    Union,
)
from penstock.schemas.model import Difference

_PROMOTIONS: Final = {
    Kind.LONG: frozenset((Kind.INT,)),
    Kind.FLOAT: frozenset((Kind.INT, Kind.LONG)),
    Kind.DOUBLE: frozenset((Kind.INT, Kind.LONG, Kind.FLOAT)),
    Kind.BYTES: frozenset((Kind.STRING,)),
    Kind.STRING: frozenset((Kind.BYTES,)),
}
_NEVER: Final[frozenset[Kind]] = frozenset()
Differences = tuple[Difference, ...]


class Uncheckable(Exception):
    """The two cannot be compared at all; the message is the peer's."""


def differences(reader: Node, writer: Node) -> Differences:
    """Every reason why `reader` cannot read what `writer` wrote; empty if it can."""
    return _Resolution().compare(reader, writer, "")


class _Resolution:
    def __init__(self) -> None:
        # By identities of the pair; a pair in progress is there with no differences.
        self._compared: dict[tuple[int, int], Differences] = {}

    def compare(self, reader: Node, writer: Node, path: str) -> Differences:
        if reader.kind is writer.kind and isinstance(reader, Primitive):
            return ()
        if reader.shape is not None and reader.shape == writer.shape:
            return ()
        pair = (id(reader), id(writer))
        known = self._compared.get(pair)
        if known is not None:
            return known
        self._compared[pair] = ()
        if reader.kind is writer.kind:
            found = self._compare_alike(reader, writer, path)
        else:
            found = self._compare_unlike(reader, writer, path)
        self._compared[pair] = found
        return found

    def _compare_alike(self, reader: Node, writer: Node, path: str) -> Differences:
        if isinstance(reader, Record) and isinstance(writer, Record):
            return _name_differs(reader, writer, path) + self._compare_fields(reader, writer, path)
        if isinstance(reader, Union) and isinstance(writer, Union):
            return self._compare_unions(reader, writer, path)
        if isinstance(reader, Array) and isinstance(writer, Array):
            return self.compare(reader.items, writer.items, f"{path}/items")
        if isinstance(reader, Map) and isinstance(writer, Map):
            return self.compare(reader.values, writer.values, f"{path}/values")
        if isinstance(reader, Enum) and isinstance(writer, Enum):
            return _name_differs(reader, writer, path) + _symbols_lack(reader, writer, path)
        if isinstance(reader, Fixed) and isinstance(writer, Fixed):
            return _name_differs(reader, writer, path) + _size_differs(reader, writer, path)
        return ()

    def _compare_unlike(self, reader: Node, writer: Node, path: str) -> Differences:
        if isinstance(writer, Union):
            found: Differences = ()
            for index, branch in enumerate(writer.branches):
                found += self.compare(reader, branch, f"{path}/{index}")
            return found
        if isinstance(reader, Union):
            if any(not self.compare(branch, writer, "") for branch in reader.branches):
                return ()
            return (_branch_missing(writer, path),)
        if writer.kind in _PROMOTIONS.get(reader.kind, _NEVER):
            return ()
        return (_type_differs(reader, writer, path),)

    def _compare_unions(self, reader: Union, writer: Union, path: str) -> Differences:
        return tuple(
            _branch_missing(branch, f"{path}/{index}")
            for index, branch in enumerate(writer.branches)
            if self.compare(reader, branch, "")
        )

    def _compare_fields(self, reader: Record, writer: Record, path: str) -> Differences:
        found: Differences = ()
        for index, field in enumerate(reader.fields):
            written = _written_field(field, index, writer)
            if written is not None:
                found += self.compare(field.type, written.type, f"{path}/fields/{index}/type")
            elif field.has_default:
                continue
            elif isinstance(field.type, Enum) and field.type.default is not None:
                # An enum's own default is no default of the field; the peer words it as a mismatch.
                found += self.compare(field.type, writer, f"{path}/fields/{index}/type")
            else:
                found += (_default_missing(field, f"{path}/fields/{index}"),)
        return found


def _written_field(field: Field, index: int, writer: Record) -> Field | None:
    direct = writer.by_name.get(field.name)
    if not field.aliases:
        return direct
    found = [] if direct is None else [direct]
    found += [writer.by_name[alias] for alias in field.aliases if alias in writer.by_name]
    if len(found) > 1:
        shown = f"{field.name} type:{field.type.kind.upper()} pos:{index}"
        raise Uncheckable(
            f"Reader record field {shown} matches multiple fields in writer record schema "
            + print_schema(writer)
        )
    return found[0] if found else None


def _name_differs(reader: Named, writer: Named, path: str) -> Differences:
    if reader.name.simple == writer.name.simple or writer.full_name in reader.alias_names:
        return ()
    where = f"{path}/name"
    description = f"The name of the schema has changed (path '{where}')"
    return (Difference("NAME_MISMATCH", where, description, f"expected: {writer.full_name}"),)


def _symbols_lack(reader: Enum, writer: Enum, path: str) -> Differences:
    lacking = sorted(set(writer.symbols) - set(reader.symbols))
    if not lacking or reader.default is not None:
        return ()
    where, listed = f"{path}/symbols", f"[{', '.join(lacking)}]"
    description = (
        f"The %(reader)s schema is missing enum symbols '{listed}' at path '{where}' "
        "in the %(writer)s schema"
    )
    return (Difference("MISSING_ENUM_SYMBOLS", where, description, listed),)


def _size_differs(reader: Fixed, writer: Fixed, path: str) -> Differences:
    if reader.size == writer.size:
        return ()
    where = f"{path}/size"
    description = (
        f"The size of FIXED type field at path '{where}' in the %(reader)s schema does not match "
        "with the %(writer)s schema"
    )
    additional = f"expected: {writer.size}, found: {reader.size}"
    return (Difference("FIXED_SIZE_MISMATCH", where, description, additional),)


def _type_differs(reader: Node, writer: Node, path: str) -> Difference:
    where = path or "/"
    description = (
        f"The type (path '{where}') of a field in the %(reader)s schema does not match "
        "with the %(writer)s schema"
    )
    kinds = (reader.kind.upper(), writer.kind.upper())
    additional = f"reader type: {kinds[0]} not compatible with writer type: {kinds[1]}"
    return Difference("TYPE_MISMATCH", where, description, additional)


def _branch_missing(writer: Node, path: str) -> Difference:
    where = path or "/"
    description = (
        f"The %(reader)s schema is missing a type inside a union field at path '{where}' "
        "in the %(writer)s schema"
    )
    additional = f"reader union lacking writer type: {writer.kind.upper()}"
    return Difference("MISSING_UNION_BRANCH", where, description, additional)


def _default_missing(field: Field, path: str) -> Difference:
    description = (
        f"The field '{field.name}' at path '{path}' in the %(reader)s schema has no default value "
        "and is missing in the %(writer)s schema"
    )
    return Difference("READER_FIELD_MISSING_DEFAULT_VALUE", path, description, field.name)
