"""The schemas of kio's generated dataclasses: the only place that reads their annotations.

A message is a dataclass per version; a field is a primitive, a structure, or an array of either.
"""

from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeAlias, Union, cast, get_args, get_origin

from kio.static.protocol import Entity

EntityType: TypeAlias = type[Entity]


@dataclass(frozen=True, slots=True)
class FieldShape:
    """One field of a message in one version."""

    name: str
    primitive: str | None  # Kafka's type, or that of an array's items; None: a structure
    structure: EntityType | None  # the dataclass, or that of an array's items; None: a primitive
    is_array: bool
    nullable: bool  # of the field itself; an array's items are never null
    tag: int | None  # not None: sent only when it differs from the default
    has_default: bool
    default: object  # None if the schema has none


@cache
def shapes_of(entity_type: EntityType) -> tuple[FieldShape, ...]:
    """The fields in wire order; tagged ones are among them."""
    return tuple(_shape(field) for field in fields(entity_type))


def is_flexible(entity_type: EntityType) -> bool:
    flexible: bool = entity_type.__flexible__
    return flexible


def _shape(field: Field[Any]) -> FieldShape:
    bare, nullable = _without_null(field.type)
    is_array = get_origin(bare) is tuple
    if is_array:
        bare, _ = _without_null(get_args(bare)[0])
    # Every dataclass among kio's field types is an entity.
    structure = cast("EntityType", bare) if is_dataclass(bare) else None
    has_default = field.default is not MISSING
    return FieldShape(
        name=field.name,
        primitive=None if structure else field.metadata["kafka_type"],
        structure=structure,
        is_array=is_array,
        nullable=nullable,
        tag=field.metadata.get("tag"),
        has_default=has_default,
        default=field.default if has_default else None,
    )


def _without_null(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) not in (UnionType, Union):
        return annotation, False
    (bare,) = (choice for choice in get_args(annotation) if choice is not NoneType)
    return bare, True
