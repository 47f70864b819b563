"""JSON in and out the way Avro's Java library does it, because stored texts are compared by bytes.

In: comments are allowed, NaN is not, nesting is bounded. Out: compact, doubles in Java's form
(`1.0E10`), control characters in upper case hexadecimal, everything else as it is.
"""

import json
import math
import re
from json.encoder import encode_basestring
from typing import Final

from penstock.schemas.avro.tree import NESTING_MAX, JsonValue
from penstock.schemas.model import InvalidSchemaError

_COMMENT: Final = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_CONTROL: Final = re.compile(r"[\x00-\x07\x0b\x0e-\x1f]")
_PLAIN_EXPONENTS: Final = range(-3, 7)  # Java writes 0.001 <= x < 10 000 000 without exponent


def read_json(text: str) -> JsonValue:
    """The value, or an InvalidSchemaError that says where the text goes wrong."""
    try:
        text.encode()
        return _loads(text)
    except RecursionError:
        raise InvalidSchemaError(f"the JSON is nested deeper than {NESTING_MAX} levels") from None
    except UnicodeEncodeError:
        raise InvalidSchemaError("the text holds half of a surrogate pair") from None
    except json.JSONDecodeError as wrong:
        if not text.strip():
            raise InvalidSchemaError("the schema is empty") from None
        where = f"line {wrong.lineno} column {wrong.colno}"
        raise InvalidSchemaError(f"not valid JSON: {wrong.msg} at {where}") from None
    except ValueError as wrong:  # a number with thousands of digits
        raise InvalidSchemaError(f"not valid JSON: {wrong}") from None


def _loads(text: str) -> JsonValue:
    try:
        value: JsonValue = json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError:
        if "//" not in text and "/*" not in text:
            raise
        bare = _COMMENT.sub(lambda match: match[1] or " ", text)
        value = json.loads(bare, parse_constant=_refuse_constant)
    return value


def _refuse_constant(word: str) -> JsonValue:
    raise InvalidSchemaError(f"not valid JSON: {word} is not a number in JSON")


def is_too_deep(value: JsonValue) -> bool:
    """Whether a default or a property is nested deeper than the bound."""
    level: list[JsonValue] = [value]
    for _ in range(NESTING_MAX):
        below: list[JsonValue] = []
        for one in level:
            if isinstance(one, dict):
                below.extend(one.values())
            elif isinstance(one, list):
                below.extend(one)
        if not below:
            return False
        level = below
    return True


def write_json(value: JsonValue) -> str:
    """The value as compact text."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return write_text(value)
        case int():
            return str(value)
        case float():
            return write_double(value)
        case list():
            return f"[{','.join([write_json(one) for one in value])}]"
        case dict():
            members = [f"{write_text(key)}:{write_json(one)}" for key, one in value.items()]
            return f"{{{','.join(members)}}}"


def write_text(text: str) -> str:
    """A string in quotes."""
    if _CONTROL.search(text) is None:
        return encode_basestring(text)
    quoted = encode_basestring(_CONTROL.sub("\0", text)).split("\\u0000")
    controls = [f"\\u{ord(one):04X}" for one in _CONTROL.findall(text)]
    return "".join(part + control for part, control in zip(quoted, [*controls, ""], strict=True))


def write_double(number: float) -> str:
    """A double as Java prints it: shortest digits, an exponent outside of 0.001 to 10 million."""
    if math.isnan(number):
        return '"NaN"'
    if math.isinf(number):
        return '"Infinity"' if number > 0 else '"-Infinity"'
    if number == 0:
        return "-0.0" if math.copysign(1, number) < 0 else "0.0"
    sign = "-" if number < 0 else ""
    mantissa, _, exponent_text = f"{abs(number)!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    leading_zeros = len(whole + fraction) - len(digits)
    exponent = len(whole) - leading_zeros - 1 + int(exponent_text or 0)
    digits = digits.rstrip("0") or "0"
    if exponent not in _PLAIN_EXPONENTS:
        return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    padded = digits.ljust(exponent + 1, "0")
    return f"{sign}{padded[: exponent + 1]}.{padded[exponent + 1 :] or '0'}"
