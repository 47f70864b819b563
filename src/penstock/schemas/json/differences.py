"""The kinds of differences between two JSON Schemas: names, sentences, and which are allowed.

Names and sentences are Confluent's, because people and tools match on them.
"""

from typing import Final, NamedTuple

from penstock.schemas.model import Difference, Policy


class JsonDifference(NamedTuple):
    """A difference between two schemas, and its path below them."""

    kind: str
    path: tuple[str, ...] = ()


def difference_at(kind: str, *steps: str) -> JsonDifference:
    """A difference some steps below the compared schemas."""
    return JsonDifference(kind, steps)


_WIDENINGS: Final = frozenset(
    {
        "SCHEMA_REMOVED",
        "TYPE_EXTENDED",
        "MAX_LENGTH_INCREASED",
        "MAX_LENGTH_REMOVED",
        "MIN_LENGTH_DECREASED",
        "MIN_LENGTH_REMOVED",
        "PATTERN_REMOVED",
        "MAXIMUM_INCREASED",
        "MAXIMUM_REMOVED",
        "MINIMUM_DECREASED",
        "MINIMUM_REMOVED",
        "EXCLUSIVE_MAXIMUM_INCREASED",
        "EXCLUSIVE_MAXIMUM_REMOVED",
        "EXCLUSIVE_MINIMUM_DECREASED",
        "EXCLUSIVE_MINIMUM_REMOVED",
        "MULTIPLE_OF_REDUCED",
        "MULTIPLE_OF_REMOVED",
        "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED",
        "REQUIRED_ATTRIBUTE_REMOVED",
        "DEPENDENCY_ARRAY_NARROWED",
        "DEPENDENCY_ARRAY_REMOVED",
        "DEPENDENCY_SCHEMA_REMOVED",
        "MAX_PROPERTIES_INCREASED",
        "MAX_PROPERTIES_REMOVED",
        "MIN_PROPERTIES_DECREASED",
        "MIN_PROPERTIES_REMOVED",
        "ADDITIONAL_PROPERTIES_ADDED",
        "ADDITIONAL_PROPERTIES_EXTENDED",
        "UNEVALUATED_PROPERTIES_ADDED",
        "UNEVALUATED_PROPERTIES_EXTENDED",
        "PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL",
        "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL",
        "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",
        "PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        "PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL",
        "PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "MAX_ITEMS_INCREASED",
        "MAX_ITEMS_REMOVED",
        "MIN_ITEMS_DECREASED",
        "MIN_ITEMS_REMOVED",
        "MAX_CONTAINS_INCREASED",
        "MAX_CONTAINS_REMOVED",
        "MIN_CONTAINS_DECREASED",
        "MIN_CONTAINS_REMOVED",
        "UNIQUE_ITEMS_REMOVED",
        "ADDITIONAL_ITEMS_ADDED",
        "ADDITIONAL_ITEMS_EXTENDED",
        "UNEVALUATED_ITEMS_ADDED",
        "UNEVALUATED_ITEMS_EXTENDED",
        "ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL",
        "ITEM_ADDED_TO_CLOSED_CONTENT_MODEL",
        "ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        "ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL",
        "ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "ENUM_ARRAY_EXTENDED",
        "COMBINED_TYPE_EXTENDED",
        "PRODUCT_TYPE_NARROWED",
        "SUM_TYPE_EXTENDED",
        "NOT_TYPE_NARROWED",
    }
)
ALLOWED: Final = {
    Policy.STRICT: _WIDENINGS,
    Policy.LENIENT: _WIDENINGS
    | {
        "ADDITIONAL_PROPERTIES_NARROWED",
        "ADDITIONAL_PROPERTIES_REMOVED",
        "UNEVALUATED_PROPERTIES_NARROWED",
        "UNEVALUATED_PROPERTIES_REMOVED",
        "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL",
        "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL",
        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    },
}

_KEYWORD_ADDED: Final = (
    "The keyword at path '{path}' in the %(reader)s schema is not present in the %(writer)s schema"
)
_MORE: Final = (
    "The value at path '{path}' in the %(reader)s schema is more than its value in the "
    "%(writer)s schema"
)
_LESS: Final = (
    "The value at path '{path}' in the %(reader)s schema is less than its value in the "
    "%(writer)s schema"
)
_VALUE_DIFFERS: Final = (
    "The value at path '{path}' is different between the %(reader)s and %(writer)s schema"
)
_FEWER_ELEMENTS: Final = (
    "An array or combined type at path '{path}' has fewer elements in the %(reader)s schema than "
    "the %(writer)s schema"
)
_MORE_ELEMENTS: Final = (
    "An array or combined type at path '{path}' has more elements in the %(reader)s schema than "
    "the %(writer)s schema"
)
_TYPE_DIFFERS: Final = (
    "A type at path '{path}' is different between the %(reader)s schema and the %(writer)s schema"
)
_ADDED_TO_OPEN: Final = (
    "The %(reader)s schema has an open content model and has a property or item at path '{path}' "
    "which is missing in the %(writer)s schema"
)
_REQUIRED_ADDED: Final = (
    "The %(reader)s schema has an unopen content model and has a required property at path "
    "'{path}' which is missing in the %(writer)s schema"
)
_REMOVED_FROM_CLOSED: Final = (
    "The %(reader)s has a closed content model and is missing a property or item present at path "
    "'{path}' in the %(writer)s schema"
)
_REMOVED_NOT_COVERED: Final = (
    "A property or item is missing in the %(reader)s schema but present at path '{path}' in the "
    "%(writer)s schema and is not covered by its partially open content model"
)
_ADDED_NOT_COVERED: Final = (
    "The %(reader)s schema has a property or item at path '{path}' which is missing in the "
    "%(writer)s schema and is not covered by its partially open content model"
)
_SCHEMA_ADDED: Final = (  # Confluent has no sentence for it
    "The %(reader)s schema has a schema at path '{path}' where the %(writer)s schema has none"
)
_SENTENCES: Final = {
    "SCHEMA_ADDED": _SCHEMA_ADDED,
    "TYPE_CHANGED": _TYPE_DIFFERS,
    "TYPE_NARROWED": _TYPE_DIFFERS,
    "COMBINED_TYPE_CHANGED": _TYPE_DIFFERS,
    "COMBINED_TYPE_SUBSCHEMAS_CHANGED": _TYPE_DIFFERS,
    "ENUM_ARRAY_CHANGED": _TYPE_DIFFERS,
    "ENUM_ARRAY_NARROWED": _FEWER_ELEMENTS,
    "SUM_TYPE_NARROWED": _FEWER_ELEMENTS,
    "ADDITIONAL_ITEMS_NARROWED": _FEWER_ELEMENTS,
    "ADDITIONAL_PROPERTIES_NARROWED": _FEWER_ELEMENTS,
    "UNEVALUATED_ITEMS_NARROWED": _FEWER_ELEMENTS,
    "UNEVALUATED_PROPERTIES_NARROWED": _FEWER_ELEMENTS,
    "DEPENDENCY_ARRAY_EXTENDED": _MORE_ELEMENTS,
    "PRODUCT_TYPE_EXTENDED": _MORE_ELEMENTS,
    "NOT_TYPE_EXTENDED": _MORE_ELEMENTS,
    "PATTERN_CHANGED": _VALUE_DIFFERS,
    "MULTIPLE_OF_CHANGED": _VALUE_DIFFERS,
    "MULTIPLE_OF_EXPANDED": _MORE,
    "DEPENDENCY_ARRAY_CHANGED": _VALUE_DIFFERS,
    "ADDITIONAL_ITEMS_REMOVED": _KEYWORD_ADDED,
    "ADDITIONAL_PROPERTIES_REMOVED": _KEYWORD_ADDED,
    "UNEVALUATED_ITEMS_REMOVED": _KEYWORD_ADDED,
    "UNEVALUATED_PROPERTIES_REMOVED": _KEYWORD_ADDED,
    "REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL": _ADDED_TO_OPEN,
    "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL": _ADDED_TO_OPEN,
    "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL": _ADDED_TO_OPEN,
    "ITEM_ADDED_TO_OPEN_CONTENT_MODEL": _ADDED_TO_OPEN,
    "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL": _REQUIRED_ADDED,
    "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL": _REMOVED_FROM_CLOSED,
    "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL": _REMOVED_FROM_CLOSED,
    "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": _REMOVED_NOT_COVERED,
    "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": _REMOVED_NOT_COVERED,
    "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": _ADDED_NOT_COVERED,
    "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": _ADDED_NOT_COVERED,
}
_BY_ENDING: Final = (
    ("_ADDED", _KEYWORD_ADDED),
    ("_INCREASED", _MORE),
    ("_DECREASED", _LESS),
)


def path_of(difference: JsonDifference) -> str:
    """The path as a JSON pointer."""
    return "#/" + "/".join(difference.path)


def as_difference(difference: JsonDifference) -> Difference:
    """The difference with its sentence."""
    kind, path = difference.kind, path_of(difference)
    sentence = _SENTENCES.get(kind)
    if sentence is None:
        sentence = next(text for ending, text in _BY_ENDING if kind.endswith(ending))
    return Difference(kind, path, sentence.format(path=path))
