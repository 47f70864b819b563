"""Read and write JSON without losing key order or digits of numbers.

Confluent prints numbers as Jackson's exact decimals, so `1e2` is stored as `1E+2` and `1.50` stays
`1.50`. Sizes and nesting are limited, so recursive functions can process every value read here.
"""

import hashlib
import json
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Final, TypeAlias

from penstock.schemas.java_json import not_json, refuse_constant, write_text
from penstock.schemas.model import InvalidSchemaError

JsonValue: TypeAlias = "dict[str, JsonValue] | list[JsonValue] | str | int | Decimal | bool | None"
JsonObject: TypeAlias = dict[str, JsonValue]

CHARACTERS_MAX: Final = 16 << 20  # of one document
NESTING_MAX: Final = 200  # levels of objects and arrays
DIGITS_MAX: Final = 1_000  # of one number, Jackson's limit
EXPONENT_MAX: Final = 10_000  # of one number; arithmetic on more would exhaust the memory
_CONTROL: Final = "\\u00"  # of control characters, which Java writes in upper case hexadecimal
_REFERENCES: Final = ("$ref'", "$dynamicRef'", "$recursiveRef'")  # as `repr` prints the keys


def read_json(text: str) -> JsonValue:
    """The value; InvalidSchemaError with line and column if the text is not JSON."""
    if len(text) > CHARACTERS_MAX:
        raise InvalidSchemaError(f"the schema is longer than {CHARACTERS_MAX} characters")
    try:
        text.encode()
        value: JsonValue = json.loads(
            text, parse_float=_decimal, parse_int=_integer, parse_constant=refuse_constant
        )
    except RecursionError:
        raise InvalidSchemaError(_too_deep()) from None
    except UnicodeEncodeError:
        raise InvalidSchemaError("the text contains half of a surrogate pair") from None
    except json.JSONDecodeError as error:
        raise not_json(text, error) from None
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
    return number or abs(number)  # Java's decimals have no negative zero


def _is_too_deep(value: JsonValue) -> bool:
    level: list[JsonValue] = [value]
    for _ in range(NESTING_MAX):
        objects = [outer for outer in level if type(outer) is dict]
        arrays = [outer for outer in level if type(outer) is list]
        level = [inner for outer in objects for inner in outer.values()]
        level += [inner for outer in arrays for inner in outer]
        if not level:
            return False
    return any(isinstance(inner, dict | list) for inner in level)


def write_json(value: JsonValue, *, in_order: bool = False) -> str:
    """The value as compact text; with `in_order`, the keys of all objects are sorted."""
    if not in_order:
        try:
            text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        except TypeError:  # it contains decimals, which must be printed exactly
            text = _CONTROL
        if _CONTROL not in text:
            return text
    return _writer(in_order=in_order)(value)


def write_start(value: JsonValue, characters_max: int) -> str:
    """The value as compact text, cut off at a length without writing the rest."""
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
                return f"[{','.join([write(item) for item in value])}]"
            case None:
                return "null"
            case bool():
                return "true" if value else "false"
            case int() | Decimal():
                return str(value)

    return write


def _utf16(key: str) -> bytes:
    """Java sorts by UTF-16 units, not by code points."""
    return key.encode("utf-16-be", "surrogatepass")


def same_value_key(value: JsonValue) -> object:
    """A hashable key that is equal for values that are equal in JSON Schema."""
    match value:
        case dict():
            return frozenset([(key, same_value_key(member)) for key, member in value.items()])
        case list():
            return ("list", *[same_value_key(item) for item in value])
        case bool() | None:
            return ("word", value)
        case _:
            return value


def fingerprint(value: JsonValue) -> bytes | None:
    """Equal for equal texts, key order included; None for a value that contains a reference."""
    text = repr(value)  # distinguishes the same values as JSON, in a third of the time
    if "$" in text and any(keyword in text for keyword in _REFERENCES):
        return None
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()
