"""Reads one Avro value without parts, as the reader's type has it.

Each function takes the payload, a position and the budget, and returns the value and the position
after it. Values are Python's: dates, times, Decimal and UUID for the logical types that have one,
ints for nanoseconds. `plain` functions leave out that last step: numbers and bytes in the reader's
units.
"""

import datetime
import re
import uuid
from collections.abc import Callable
from decimal import Context, Decimal
from struct import Struct
from typing import Any, Final, TypeAlias

from penstock.schemas.avro.tree import AvroType, Enum, Fixed, Node
from penstock.serde.avro.logical_types import (
    DecimalMeaning,
    NumberMeaning,
    decimal_meaning,
    decimal_of,
    is_uuid_text,
    keeps_meaning,
    number_meaning,
)
from penstock.serde.avro.matching import same_name
from penstock.serde.avro.varints import Budget, UnreadableError, read_size, read_varint

Read: TypeAlias = Callable[[bytes, int, Budget], tuple[Any, int]]

_INT_MIN: Final = -(2**31)
_INT_MAX: Final = 2**31 - 1
_FLOAT: Final = Struct("<f")
_DOUBLE: Final = Struct("<d")
_FLOAT_BITS: Final = 24
_INTEGRAL: Final = (AvroType.INT, AvroType.LONG)
_FLOATING: Final = (AvroType.FLOAT, AvroType.DOUBLE)
_TEXTUAL: Final = (AvroType.STRING, AvroType.BYTES)
_EXACT: Final = Context(prec=400)
_DECIMAL_BYTES_MAX: Final = 40  # what has more digits than that fits no decimal
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_LOCAL_EPOCH: Final = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 - a local time has no zone
_EPOCH_DAY: Final = datetime.date(1970, 1, 1).toordinal()
_MIDNIGHT: Final = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 - only its time is used
_UUID: Final = re.compile("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII)


def scalar_reader(writer: Node, reader: Node, *, plain: bool) -> Read | None:
    """For a reader's type without parts; None if it cannot read what was written."""
    if isinstance(reader, Enum):
        return _enum(writer, reader) if isinstance(writer, Enum) else None
    if isinstance(reader, Fixed):
        return _fixed(writer, reader, plain=plain) if isinstance(writer, Fixed) else None
    if reader.kind in _TEXTUAL:
        return _textual(writer, reader, plain=plain) if writer.kind in _TEXTUAL else None
    if reader.kind in _INTEGRAL:
        meaning = number_meaning(writer, reader) if writer.kind in _INTEGRAL else None
        return None if meaning is None else _number(writer.kind, meaning, plain=plain)
    if reader.kind in _FLOATING:
        return _floating(writer.kind, reader.kind)
    if reader.kind is not writer.kind:
        return None
    return _null if reader.kind is AvroType.NULL else _boolean


def _null(_payload: bytes, at: int, _: Budget) -> tuple[None, int]:
    return None, at


def _boolean(payload: bytes, at: int, _: Budget) -> tuple[bool, int]:
    byte = payload[at]
    if byte > 1:
        raise UnreadableError("BOOLEAN", "a boolean that is neither 0 nor 1", at)
    return byte == 1, at + 1


def _long(payload: bytes, at: int, _: Budget) -> tuple[int, int]:
    byte = payload[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    return read_varint(payload, at)


def _int(payload: bytes, at: int, _: Budget) -> tuple[int, int]:
    byte = payload[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    number, after = read_varint(payload, at)
    if not _INT_MIN <= number <= _INT_MAX:
        raise UnreadableError("INT_RANGE", "an int of more than 32 bits", at)
    return number, after


def _number(kind: AvroType, meaning: NumberMeaning, *, plain: bool) -> Read:
    name, least, greatest, factor, divisor = meaning
    if not name:
        return _int if kind is AvroType.INT else _long
    code = "UNRESOLVABLE" if meaning.is_converted else "INT_RANGE"
    code = "TIME_RANGE" if name.startswith("time-") else code
    make: Callable[[int], Any] = int if plain else _MOMENTS.get(name, int)

    def read(payload: bytes, at: int, _: Budget) -> tuple[Any, int]:
        number, after = read_varint(payload, at)
        if not least <= number <= greatest:
            raise UnreadableError(code, f"{number} is no {name}", at)
        return make(number * factor // divisor), after

    return read


def _date(days: int) -> datetime.date:
    return datetime.date.fromordinal(_EPOCH_DAY + days)


def _time_of_day(micros: int) -> datetime.time:
    return (_MIDNIGHT + datetime.timedelta(0, 0, micros)).time()


_MOMENTS: Final[dict[str, Callable[[int], Any]]] = {  # nanoseconds stay a number
    "date": _date,
    "time-millis": lambda number: _time_of_day(number * 1000),
    "time-micros": _time_of_day,
    "timestamp-millis": lambda number: _EPOCH + datetime.timedelta(0, 0, number * 1000),
    "timestamp-micros": lambda number: _EPOCH + datetime.timedelta(0, 0, number),
    "local-timestamp-millis": lambda number: _LOCAL_EPOCH + datetime.timedelta(0, 0, number * 1000),
    "local-timestamp-micros": lambda number: _LOCAL_EPOCH + datetime.timedelta(0, 0, number),
}


def _floating(written: AvroType, read: AvroType) -> Read | None:
    if written in _INTEGRAL:
        inner = _int if written is AvroType.INT else _long
        widen: Callable[[int], float] = _nearest_float if read is AvroType.FLOAT else float

        def promoted(payload: bytes, at: int, budget: Budget) -> tuple[float, int]:
            number, after = inner(payload, at, budget)
            return widen(number), after

        return promoted
    if written not in _FLOATING or (written, read) == (AvroType.DOUBLE, AvroType.FLOAT):
        return None
    unpack, size = (_FLOAT if written is AvroType.FLOAT else _DOUBLE).unpack_from, _SIZES[written]

    def exact(payload: bytes, at: int, _: Budget) -> tuple[float, int]:
        after = at + size
        if after > len(payload):
            raise IndexError
        return unpack(payload, at)[0], after

    return exact


_SIZES: Final = {AvroType.FLOAT: 4, AvroType.DOUBLE: 8}


def _nearest_float(number: int) -> float:
    """The float of 32 bits that is nearest to an integer, ties to even, in one rounding."""
    spare = number.bit_length() - _FLOAT_BITS
    if spare <= 0:
        return float(number)
    half, low = 1 << (spare - 1), abs(number) & ((1 << spare) - 1)
    kept = abs(number) >> spare
    kept += low > half or (low == half and kept & 1)
    return float(kept << spare) * (1 if number > 0 else -1)


def _textual(writer: Node, reader: Node, *, plain: bool) -> Read | None:
    if decimal_of(reader) is not None:
        meaning = decimal_meaning(writer, reader)
        return None if meaning is None else _decimal(read_size, meaning, None, plain=plain)
    if not keeps_meaning(writer, reader):
        return None
    if is_uuid_text(reader):
        return _plain_uuid if plain else _uuid
    if reader.kind is AvroType.STRING:
        return _text
    return _text_bytes if writer.kind is AvroType.STRING else _bytes


def _text(payload: bytes, at: int, _: Budget) -> tuple[str, int]:
    byte = payload[at]
    if byte < 0x80 and not byte & 1:  # nearly all
        start = at + 1
        end = start + (byte >> 1)
        if end > len(payload):
            raise IndexError
    else:
        start, end = read_size(payload, at)
    try:
        return payload[start:end].decode(), end
    except UnicodeDecodeError:
        raise UnreadableError("UTF8", "a string that is not UTF-8", at) from None


def _bytes(payload: bytes, at: int, _: Budget) -> tuple[bytes, int]:
    start, end = read_size(payload, at)
    return payload[start:end], end


def _text_bytes(payload: bytes, at: int, budget: Budget) -> tuple[bytes, int]:
    text, end = _text(payload, at, budget)  # what was written as text must be text
    return text.encode(), end


def _plain_uuid(payload: bytes, at: int, budget: Budget) -> tuple[str, int]:
    text, end = _text(payload, at, budget)
    if not is_uuid(text):
        raise UnreadableError("UUID", f"{text[:36]!r} is not a UUID", at)
    return text, end


def is_uuid(text: str) -> bool:
    """Whether a text is a UUID as it is usually written."""
    return _UUID.fullmatch(text) is not None


def _uuid(payload: bytes, at: int, budget: Budget) -> tuple[uuid.UUID, int]:
    text, end = _plain_uuid(payload, at, budget)
    return uuid.UUID(text), end


def _decimal(
    place: Callable[[bytes, int], tuple[int, int]],
    meaning: DecimalMeaning,
    size: int | None,
    *,
    plain: bool,
) -> Read:
    precision, scale, shift, is_converted = meaning
    code = "UNRESOLVABLE" if is_converted else "DECIMAL_RANGE"
    end_number = 10**precision
    power = 10 ** abs(shift)

    def read(payload: bytes, at: int, _: Budget) -> tuple[Any, int]:
        start, end = place(payload, at)
        content = payload[start:end]
        number = int.from_bytes(content, "big", signed=True)
        if number.bit_length() > 8 * _DECIMAL_BYTES_MAX:
            raise UnreadableError(code, f"a decimal of more than {precision} digits", at)
        if shift > 0:
            number *= power
        elif shift < 0:
            number, lost = divmod(number, power)
            if lost:
                raise UnreadableError(code, f"a decimal has more than {scale} decimal places", at)
        if not -end_number < number < end_number:
            raise UnreadableError(code, f"a decimal of more than {precision} digits", at)
        if not plain:
            return Decimal(number).scaleb(-scale, _EXACT), end
        return (_unscaled(number, size) if shift else content), end

    return read


def _unscaled(number: int, size: int | None) -> bytes:
    least = (number if number >= 0 else ~number).bit_length() // 8 + 1
    return number.to_bytes(least if size is None else max(size, least), "big", signed=True)


def _fixed(writer: Fixed, reader: Fixed, *, plain: bool) -> Read | None:
    size = reader.size
    if not same_name(writer, reader) or writer.size != size:
        return None

    def place(payload: bytes, at: int) -> tuple[int, int]:
        if at + size > len(payload):
            raise IndexError
        return at, at + size

    if decimal_of(reader) is not None:
        meaning = decimal_meaning(writer, reader)
        return None if meaning is None else _decimal(place, meaning, size, plain=plain)
    if not keeps_meaning(writer, reader):
        return None

    def read(payload: bytes, at: int, _: Budget) -> tuple[bytes, int]:
        start, end = place(payload, at)
        return payload[start:end], end

    return read


def _enum(writer: Enum, reader: Enum) -> Read | None:
    if not same_name(writer, reader):
        return None
    known = set(reader.symbols)
    symbols = [symbol if symbol in known else reader.default for symbol in writer.symbols]
    count = len(symbols)

    def read(payload: bytes, at: int, _: Budget) -> tuple[str, int]:
        index, after = read_varint(payload, at)
        if not 0 <= index < count:
            raise UnreadableError("ENUM", f"an enum has no symbol {index}", at)
        symbol = symbols[index]
        if symbol is None:
            detail = f"the reader's enum has no symbol {writer.symbols[index]}, and no default"
            raise UnreadableError("SYMBOL", detail, at)
        return symbol, after

    return read
