"""Read and write JSON as Avro's Java library does, because stored texts are compared by bytes.

Reading allows comments, refuses NaN and limits nesting. Writing is compact, with doubles in Java's
form (`1.0E10`) and control characters in upper case hexadecimal; everything else is unescaped.
"""

import json
import math
import re
from typing import Final

from penstock.schemas.avro.tree import NESTING_MAX, JsonValue
from penstock.schemas.java_json import not_json, refuse_constant, write_text
from penstock.schemas.model import InvalidSchemaError

_COMMENT: Final = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_WITHOUT_EXPONENT: Final = range(-3, 7)  # Java writes 0.001 <= x < 10 000 000 without exponent


def read_json(text: str) -> JsonValue:
    """The value; InvalidSchemaError with line and column if the text is not JSON."""
    try:
        text.encode()
        return _loads(text)
    except RecursionError:
        raise InvalidSchemaError(f"the JSON is nested deeper than {NESTING_MAX} levels") from None
    except UnicodeEncodeError:
        raise InvalidSchemaError("the text contains half of a surrogate pair") from None
    except json.JSONDecodeError as error:
        raise not_json(text, error) from None
    except ValueError as error:  # a number with thousands of digits
        raise InvalidSchemaError(f"not valid JSON: {error}") from None


def _loads(text: str) -> JsonValue:
    try:
        value: JsonValue = json.loads(text, parse_constant=refuse_constant)
    except json.JSONDecodeError:
        if "//" not in text and "/*" not in text:
            raise
        without_comments = _COMMENT.sub(lambda match: match[1] or " ", text)
        value = json.loads(without_comments, parse_constant=refuse_constant)
    return value


def is_too_deep(value: JsonValue) -> bool:
    """Whether a default or a property is nested deeper than NESTING_MAX."""
    level: list[JsonValue] = [value]
    for _ in range(NESTING_MAX):
        below: list[JsonValue] = []
        for outer in level:
            if isinstance(outer, dict):
                below.extend(outer.values())
            elif isinstance(outer, list):
                below.extend(outer)
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
            return f"[{','.join([write_json(item) for item in value])}]"
        case dict():
            members = [f"{write_text(key)}:{write_json(member)}" for key, member in value.items()]
            return f"{{{','.join(members)}}}"


def write_double(number: float) -> str:
    """A double as Java prints it: shortest digits, with an exponent below 0.001 and from 10^7."""
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
    if exponent not in _WITHOUT_EXPONENT:
        return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    padded = digits.ljust(exponent + 1, "0")
    return f"{sign}{padded[: exponent + 1]}.{padded[exponent + 1 :] or '0'}"
