"""Compile a schema and validate values, with jsonschema-rs.

It gets all documents as arguments and never retrieves one.
"""

from functools import lru_cache
from typing import Final

import jsonschema_rs

from penstock.schemas.json.jsontext import JsonObject, JsonValue
from penstock.schemas.json.references import Documents, JsonDraft, pointer_of
from penstock.schemas.model import InvalidSchemaError

_VALIDATORS: Final[dict[JsonDraft, type[jsonschema_rs.Validator]]] = {
    JsonDraft.DRAFT_4: jsonschema_rs.Draft4Validator,
    JsonDraft.DRAFT_6: jsonschema_rs.Draft6Validator,
    JsonDraft.DRAFT_7: jsonschema_rs.Draft7Validator,
    JsonDraft.DRAFT_2019_09: jsonschema_rs.Draft201909Validator,
    JsonDraft.DRAFT_2020_12: jsonschema_rs.Draft202012Validator,
}
_REGEX_BYTES_MAX: Final = 1 << 20  # of one compiled pattern
_SHOWN_CHARACTERS_MAX: Final = 200


def compiled(documents: Documents, *, asserts_formats: bool = False) -> jsonschema_rs.Validator:
    """A validator for the schema; InvalidSchemaError with a path if it is not valid.

    By default `format` is an annotation, as in the drafts since 2019-09.
    """
    validator = _VALIDATORS[documents.draft]
    try:
        registry = jsonschema_rs.Registry(
            [(address, _adapted(document)) for address, document in documents.resources.items()],
            draft=documents.draft.value,
        )
        return validator(
            _as_schema(_adapted(documents.root)),
            registry=registry,
            base_uri=documents.base,
            pattern_options=jsonschema_rs.FancyRegexOptions(size_limit=_REGEX_BYTES_MAX),
            validate_formats=asserts_formats,
            offline=True,
        )
    except jsonschema_rs.ValidationError as error:
        if isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Referencing):
            documents.refuse_dangling()
        raise InvalidSchemaError(_located(error.message, error.instance_path)) from None
    except jsonschema_rs.ReferencingError as error:
        documents.refuse_dangling()
        raise InvalidSchemaError(_shortened(error.message)) from None
    except ValueError as error:  # nested too deeply, or not convertible
        raise InvalidSchemaError(_shortened(str(error))) from None


def validation_error(validator: jsonschema_rs.Validator, value: object) -> str | None:
    """Why a value is invalid, with its path; None if it is valid."""
    try:
        validator.validate(value)
    except jsonschema_rs.ValidationError as error:
        return _located(error.message, error.instance_path)
    except ValueError as error:  # for example a dictionary whose keys are not strings
        return _shortened(str(error))
    return None


def _as_schema(document: JsonValue) -> JsonObject | bool:
    assert isinstance(document, dict | bool)
    return document


def _adapted(document: JsonValue) -> JsonValue:
    """With all definitions in `$defs` too, because Confluent finds them under either keyword.

    Without `$schema`: the draft is decided already, and an unknown one counts as draft 7.
    """
    if not isinstance(document, dict):
        return document
    adapted = dict(document)
    adapted.pop("$schema", None)
    known, definitions = adapted.get("$defs", {}), adapted.get("definitions")
    if isinstance(definitions, dict) and isinstance(known, dict):
        adapted["$defs"] = {**definitions, **known}
    return adapted


def _located(message: str, path: list[str | int]) -> str:
    return f"{_shortened(message)} at {pointer_of(path)}"


def _shortened(message: str) -> str:
    if len(message) <= _SHOWN_CHARACTERS_MAX:
        return message
    half = _SHOWN_CHARACTERS_MAX // 2
    return f"{message[:half]} … {message[-half:]}"


@lru_cache(maxsize=1_000)
def _pattern(pattern: str) -> jsonschema_rs.Validator | None:
    try:
        return jsonschema_rs.Draft7Validator({"pattern": pattern})
    except ValueError:  # not a regular expression
        return None


def matches(pattern: str, name: str) -> bool:
    """Whether a pattern matches a property name; in bounded time."""
    validator = _pattern(pattern)
    return validator is not None and validator.is_valid(name)
