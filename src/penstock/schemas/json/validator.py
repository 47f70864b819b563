"""jsonschema-rs behind two questions: is this a schema, and does this value satisfy it?

Its retrieval is switched off; it sees the documents it is given and nothing else.
"""

from functools import lru_cache
from typing import Final

import jsonschema_rs

from penstock.schemas.json.jsontext import JsonObject, JsonValue
from penstock.schemas.json.references import Documents, Draft, pointer_of
from penstock.schemas.model import InvalidSchemaError

_VALIDATORS: Final[dict[Draft, type[jsonschema_rs.Validator]]] = {
    Draft.DRAFT_4: jsonschema_rs.Draft4Validator,
    Draft.DRAFT_6: jsonschema_rs.Draft6Validator,
    Draft.DRAFT_7: jsonschema_rs.Draft7Validator,
    Draft.DRAFT_2019_09: jsonschema_rs.Draft201909Validator,
    Draft.DRAFT_2020_12: jsonschema_rs.Draft202012Validator,
}
_REGEX_BYTES_MAX: Final = 1 << 20  # a pattern that compiles to more is refused
_SHOWN_CHARACTERS_MAX: Final = 200


def compiled(documents: Documents, *, asserts_formats: bool = False) -> jsonschema_rs.Validator:
    """A validator for the schema, or an InvalidSchemaError that points at what is wrong.

    By default `format` is an annotation, as the drafts from 2019-09 on have it.
    """
    validator = _VALIDATORS[documents.draft]
    try:
        registry = jsonschema_rs.Registry(
            [(address, _bridged(one)) for address, one in documents.resources.items()],
            draft=documents.draft.value,
        )
        return validator(
            _as_schema(_bridged(documents.root)),
            registry=registry,
            base_uri=documents.base,
            pattern_options=jsonschema_rs.FancyRegexOptions(size_limit=_REGEX_BYTES_MAX),
            validate_formats=asserts_formats,
            offline=True,
        )
    except jsonschema_rs.ValidationError as wrong:
        if isinstance(wrong.kind, jsonschema_rs.ValidationErrorKind.Referencing):
            documents.refuse_dangling()
        raise InvalidSchemaError(_located(wrong.message, wrong.instance_path)) from None
    except jsonschema_rs.ReferencingError as wrong:
        documents.refuse_dangling()
        raise InvalidSchemaError(_shortened(wrong.message)) from None
    except ValueError as wrong:  # nested too deeply for it, or not convertible
        raise InvalidSchemaError(_shortened(str(wrong))) from None


def validation_error(validator: jsonschema_rs.Validator, value: object) -> str | None:
    """What is wrong with a value, and where in it; None if it is valid."""
    try:
        validator.validate(value)
    except jsonschema_rs.ValidationError as wrong:
        return _located(wrong.message, wrong.instance_path)
    except ValueError as wrong:  # such as a dictionary whose keys are not strings
        return _shortened(str(wrong))
    return None


def _as_schema(document: JsonValue) -> JsonObject | bool:
    assert isinstance(document, dict | bool)
    return document


def _bridged(document: JsonValue) -> JsonValue:
    """With all definitions in `$defs` too, where the peer finds them as well.

    A dialect that is not known is taken away: the peer reads such a schema as draft 7.
    """
    if not isinstance(document, dict):
        return document
    bridged = dict(document)
    bridged.pop("$schema", None)
    known, definitions = bridged.get("$defs", {}), bridged.get("definitions")
    if isinstance(definitions, dict) and isinstance(known, dict):
        bridged["$defs"] = {**definitions, **known}
    return bridged


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
    """Whether a property name is one of those a pattern means; in bounded time."""
    validator = _pattern(pattern)
    return validator is not None and validator.is_valid(name)
