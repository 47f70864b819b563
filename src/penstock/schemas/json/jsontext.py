"""JSON in and out without losing anything: key order, the digits of numbers, exact decimals.

The peer prints what Jackson read with exact decimals, so `1e2` is stored as `1E+2` and `1.50` stays
`1.50`. Texts and nesting are bounded; a value that went through here can be walked recursively.
"""

import hashlib
import json
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Final, TypeAlias

from penstock.schemas.avro.jsontext import write_text
from penstock.schemas.model import InvalidSchemaError

JsonValue: TypeAlias = "dict[str, JsonValue] | list[JsonValue] | str | int | Decimal | bool | None"
JsonObject: TypeAlias = dict[str, JsonValue]

CHARACTERS_MAX: Final = 16 << 20  # of one document; a longer one is refused
NESTING_MAX: Final = 200  # levels of objects and arrays; deeper ones are refused
DIGITS_MAX: Final = 1_000  # of one number, as Jackson has it
EXPONENT_MAX: Final = 10_000  # of one number; beyond, arithmetic would fill the memory
_CONTROL: Final = "\\u00"  # of control characters, whose hexadecimal digits Java has in upper case
_REFERENCES: Final = ("$ref'", "$dynamicRef'", "$recursiveRef'")  # as Python writes the keys


def read_json(text: str) -> JsonValue:
    """The value, or an InvalidSchemaError that says where the text goes wrong."""
    if len(text) > CHARACTERS_MAX:
        raise InvalidSchemaError(f"the schema is longer than {CHARACTERS_MAX} characters")
    try:
        text.encode()
        value: JsonValue = json.loads(
            text, parse_float=_decimal, parse_int=_integer, parse_constant=_refuse_constant
        )
    except RecursionError:
        raise InvalidSchemaError(_too_deep()) from None
    except UnicodeEncodeError:
        raise InvalidSchemaError("the text holds half of a surrogate pair") from None
    except json.JSONDecodeError as wrong:
        if not text.strip():
            raise InvalidSchemaError("the schema is empty") from None
        where = f"line {wrong.lineno} column {wrong.colno}"
        raise InvalidSchemaError(f"not valid JSON: {wrong.msg} at {where}") from None
    if _is_too_deep(value):
        raise InvalidSchemaError(_too_deep())
    return value


def _too_deep() -> str:
    return f"the JSON is nested deeper than {NESTING_MAX} levels"


def _integer(digits: str) -> int:
    if len(digits) > DIGITS_MAX:
        raise InvalidSchemaError(f"not valid JSON: a number has more than {DIGITS_MAX} digits")
    return int(digits)


def _decimal(digits: str) -> Decimal:
    if len(digits) > DIGITS_MAX:
        raise InvalidSchemaError(f"not valid JSON: a number has more than {DIGITS_MAX} digits")
    try:
        number = Decimal(digits)
    except InvalidOperation:
        raise InvalidSchemaError(f"not valid JSON: the number {digits} is out of range") from None
    if abs(number.adjusted()) > EXPONENT_MAX:
        raise InvalidSchemaError(f"not valid JSON: the number {digits} is out of range")
    return number if number else abs(number)  # Java's decimals know no negative zero


def _refuse_constant(word: str) -> JsonValue:
    raise InvalidSchemaError(f"not valid JSON: {word} is not a number in JSON")


def _is_too_deep(value: JsonValue) -> bool:
    level: list[JsonValue] = [value]
    for _ in range(NESTING_MAX):
        objects = [one for one in level if type(one) is dict]
        arrays = [one for one in level if type(one) is list]
        level = [inner for one in objects for inner in one.values()]
        level += [inner for one in arrays for inner in one]
        if not level:
            return False
    return any(isinstance(one, dict | list) for one in level)


def write_json(value: JsonValue, *, in_order: bool = False) -> str:
    """The value as compact text; in order means with the keys of all objects sorted."""
    if not in_order:
        try:
            text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        except TypeError:  # it holds decimals, and those must be printed exactly
            text = _CONTROL
        if _CONTROL not in text:
            return text
    return _writer(in_order=in_order)(value)


def write_start(value: JsonValue, characters_max: int) -> str:
    """The value as compact text; of a long one only the beginning, without writing the rest."""
    encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=float)
    parts: list[str] = []
    characters = 0
    for part in encoder.iterencode(value):
        parts.append(part)
        characters += len(part)
        if characters > characters_max:
            return "".join(parts)[:characters_max]
    return write_json(value)


def _writer(*, in_order: bool) -> Callable[[JsonValue], str]:
    def write(value: JsonValue) -> str:
        match value:
            case str():
                return write_text(value)
            case dict():
                keys = sorted(value, key=_utf16) if in_order else value
                return f"{{{','.join([f'{write_text(key)}:{write(value[key])}' for key in keys])}}}"
            case list():
                return f"[{','.join([write(one) for one in value])}]"
            case None:
                return "null"
            case bool():
                return "true" if value else "false"
            case int() | Decimal():
                return str(value)

    return write


def _utf16(key: str) -> bytes:
    """Java sorts by the halves of surrogate pairs, not by code points."""
    return key.encode("utf-16-be", "surrogatepass")


def same_value_key(value: JsonValue) -> object:
    """Something hashable that is equal for two values which JSON Schema takes to be equal."""
    match value:
        case dict():
            return frozenset([(key, same_value_key(one)) for key, one in value.items()])
        case list():
            return ("list", *[same_value_key(one) for one in value])
        case bool() | None:
            return ("word", value)
        case _:
            return value


def fingerprint(value: JsonValue) -> bytes | None:
    """Equal for values written alike, key order included; None for one with a reference in it."""
    text = repr(value)  # tells apart what JSON does, and costs a third of writing JSON
    if "$" in text and any(keyword in text for keyword in _REFERENCES):
        return None
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()
