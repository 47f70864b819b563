"""What a written value means to a reader: the one rule about logical types.

The reader's logical type decides. A value is converted where the units allow it:

    timestamp-*        to timestamp-* of another unit; finer digits are dropped, towards the past
    local-timestamp-*  to local-timestamp-*, in the same way
    date               to local-timestamp-*: midnight
    time-millis        to time-micros
    decimal            to a decimal of another scale or precision, if no digit is lost

Where one side has no logical type, the number or the bytes stay as they are written. Any other two
logical types do not go together: such a value cannot be read. A time zone is never guessed, so a
timestamp is not a local timestamp, and a date is not a timestamp.

Dates and times are those of the years 1 to 9999, as Python, Spark and SQL have them. A decimal of
more than 76 digits, a big-decimal and a duration are read as their bytes, a uuid on a fixed too.
"""

from typing import Final, NamedTuple

from penstock.schemas.avro.tree import AvroType, Node
from penstock.schemas.avro.types import LogicalType, logical_type

DECIMAL_DIGITS_MAX: Final = 76  # the widest that Arrow has
_PER_SECOND: Final = {"millis": 10**3, "micros": 10**6, "nanos": 10**9}
_DAY_S: Final = 86_400
_FIRST_DAY: Final = -719_162  # 0001-01-01, in days from 1970-01-01
_END_DAY: Final = 2_932_897  # 10000-01-01
_BITS: Final = {AvroType.INT: 31, AvroType.LONG: 63}


class NumberMeaning(NamedTuple):
    """How a written int or long becomes the reader's: within bounds, times factor // divisor."""

    name: str  # of the reader's logical type; empty if it has none
    least: int  # of the written number
    greatest: int
    factor: int = 1
    divisor: int = 1

    @property
    def is_converted(self) -> bool:
        """Whether the reader's number is another one than was written."""
        return self.factor != self.divisor


class DecimalMeaning(NamedTuple):
    """How a written decimal becomes the reader's: times ten to the power of `shift`."""

    precision: int
    scale: int
    shift: int
    is_converted: bool  # it was written as another decimal


def number_meaning(writer: Node, reader: Node) -> NumberMeaning | None:
    """For a reader's int or long; None if it cannot read such a number."""
    if writer.kind is not reader.kind and (writer.kind, reader.kind) != (
        AvroType.INT,
        AvroType.LONG,
    ):
        return None
    written, name = _name(writer), _name(reader)
    change = (1, 1) if not written or not name else _unit_change(written, name)
    if change is None:
        return None
    factor, divisor = change
    least, end = _bounds(name, reader.kind)
    bits = _BITS[writer.kind]
    return NumberMeaning(
        name,
        max(-(1 << bits), -(-least * divisor // factor)),
        min((1 << bits) - 1, (end * divisor - 1) // factor),
        factor,
        divisor,
    )


def decimal_meaning(writer: Node, reader: Node) -> DecimalMeaning | None:
    """For a reader's decimal; None if it cannot read what was written."""
    read, written = decimal_of(reader), logical_type(writer)
    assert read is not None, "the reader's is a decimal"
    if writer.kind is not reader.kind:
        return None
    if written is None:
        return DecimalMeaning(read.precision, read.scale, 0, is_converted=False)
    shift = read.scale - written.scale
    if written.name != "decimal" or (shift and written.precision > DECIMAL_DIGITS_MAX):
        return None
    return DecimalMeaning(read.precision, read.scale, shift, is_converted=written != read)


def keeps_meaning(writer: Node, reader: Node) -> bool:
    """Whether text or bytes that are read as they are written mean to the reader what they say."""
    written, read = logical_type(writer), logical_type(reader)
    if written is None or read is None or written.name != read.name:
        return written is None or read is None
    return written.scale == read.scale


def decimal_of(node: Node) -> LogicalType | None:
    """The decimal that a bytes or fixed is read as."""
    logical = logical_type(node)
    if logical is None or logical.name != "decimal":
        return None
    return logical if logical.precision <= DECIMAL_DIGITS_MAX else None


def is_restricted(node: Node) -> bool:
    """Whether a logical type allows only some of the numbers of an int or long."""
    if node.kind not in _BITS:
        return False
    bits = _BITS[node.kind]
    return _bounds(_name(node), node.kind) != (-(1 << bits), 1 << bits)


def is_uuid_text(node: Node) -> bool:
    """Whether a string is a UUID in its 36 characters."""
    return node.kind is AvroType.STRING and _name(node) == "uuid"


def described(node: Node) -> str:
    """A type with what it means, for people."""
    logical = logical_type(node)
    if logical is None:
        return node.full_name
    if logical.name == "decimal":
        return f"decimal({logical.precision}, {logical.scale})"
    return logical.name


def _name(node: Node) -> str:
    logical = logical_type(node)
    return "" if logical is None else logical.name


def _unit_change(written: str, read: str) -> tuple[int, int] | None:
    """Factor and divisor; None where there is no conversion."""
    if written == read:
        return 1, 1
    of, _, of_unit = written.rpartition("-")
    to, _, to_unit = read.rpartition("-")
    if written == "date" and to == "local-timestamp":
        return _DAY_S * _PER_SECOND[to_unit], 1
    if of != to or of_unit not in _PER_SECOND:
        return None
    many, few = _PER_SECOND[to_unit], _PER_SECOND[of_unit]
    return (many // few, 1) if many >= few else (1, few // many)


def _bounds(name: str, kind: AvroType) -> tuple[int, int]:
    """The least number that a reader's type allows, and one more than the greatest."""
    if name == "date":
        return _FIRST_DAY, _END_DAY
    head, _, unit = name.rpartition("-")
    if head == "time":
        return 0, _DAY_S * _PER_SECOND[unit]
    least, end = -(1 << _BITS[kind]), 1 << _BITS[kind]
    if head.endswith("timestamp"):
        second = _PER_SECOND[unit]
        return (
            max(least, _FIRST_DAY * _DAY_S * second),
            min(end, _END_DAY * _DAY_S * second),
        )
    return least, end
