"""What the type of a field is to somebody who compares: scalars by what their bytes can hold."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.schemas.model import Reference
from penstock.schemas.protobuf.names import LOCAL, Known, Names
from penstock.schemas.protobuf.tree import SCALARS, Enum, MapType

_SCALAR_GROUPS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("int32", "int64", "uint32", "uint64", "bool"), "number"),
    **dict.fromkeys(("sint32", "sint64"), "zigzag number"),
    **dict.fromkeys(("string", "bytes"), "string or bytes"),
    **dict.fromkeys(("fixed32", "sfixed32"), "four bytes"),
    **dict.fromkeys(("fixed64", "sfixed64"), "eight bytes"),
    "float": "float",
    "double": "double",
}
_ENUM_GROUP: Final = "number"


class Meaning(NamedTuple):
    """What a field's type is: a scalar (enums count as numbers), a map, or a message."""

    kind: str
    written: str = ""
    name: str = ""  # in full
    scalar: str = ""
    map: MapType | None = None
    known: Known | None = None


def meaning(names: Names, type_: str | MapType, scope: tuple[str, ...], package: str) -> Meaning:
    """The meaning of a field's type, written in that scope of that package."""
    if isinstance(type_, MapType):
        return Meaning("map", map=type_)
    if type_ in SCALARS:
        return Meaning("scalar", scalar=_SCALAR_GROUPS[type_])
    full_name = names.resolved(type_, scope, package)
    if full_name is None:
        return Meaning("message", written=type_)
    known = names.type_of(full_name)
    if isinstance(known.element, Enum):
        return Meaning("scalar", scalar=_ENUM_GROUP)
    map_type = known.element.map_type
    if map_type is not None:
        return Meaning("map", map=map_type)
    return Meaning("message", written=type_, name=full_name, known=known)


def reference_of(known: Known, references: tuple[Reference, ...]) -> tuple[str, int] | None:
    """The subject and version a type comes from; None where only a reference's reference knows."""
    if known.origin == LOCAL:
        return ("", -1)
    for reference in reversed(references):
        if reference.name == known.origin:
            return (reference.subject, reference.version)
    return None
