"""Python's decimals, UUIDs, dates and times as the numbers and bytes that Avro writes.

Each conversion takes values of exactly one type and raises ValueError for any other: those are left
to fastavro.
"""

import datetime
from collections.abc import Callable
from decimal import Context, Decimal
from functools import partial
from typing import Any, Final
from uuid import UUID

from penstock.schemas.avro.tree import Fixed, Node
from penstock.schemas.avro.types import logical_type
from penstock.serde.avro.event_scalars import is_uuid
from penstock.serde.avro.logical_types import DECIMAL_DIGITS_MAX, decimal_of

_EXACT: Final = Context(prec=4 * DECIMAL_DIGITS_MAX)  # never rounds what has a chance to fit
_EPOCH_DAY: Final = datetime.date(1970, 1, 1).toordinal()
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_LOCAL_EPOCH: Final = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 - a local time has no zone
_MICROSECOND: Final = datetime.timedelta(microseconds=1)
_PER_MILLI: Final = 1000
_UNITS: Final = {"millis": (1, _PER_MILLI), "micros": (1, 1), "nanos": (1000, 1)}


def decimal_writer(node: Node) -> Callable[[Any], bytes | None]:
    """The unscaled number, big-endian: as few bytes as do, or all of a fixed. None: no room."""
    decimal = decimal_of(node)
    assert decimal is not None
    size = node.size if isinstance(node, Fixed) else None
    return partial(_unscaled, scale=decimal.scale, end=10**decimal.precision, size=size)


def _unscaled(value: Any, *, scale: int, end: int, size: int | None) -> bytes | None:
    if type(value) is not Decimal:
        raise ValueError("no decimal")
    scaled = value.scaleb(scale, _EXACT)
    number = int(scaled)  # raises for what is no number
    if number != scaled or not -end < number < end:
        return None
    least = ((number if number >= 0 else ~number).bit_length() >> 3) + 1
    if size is not None and size < least:
        return None
    return number.to_bytes(least if size is None else size, "big", signed=True)


def uuid_bytes(value: Any) -> bytes:
    """The text of a UUID, or of what is one already."""
    if type(value) is str and is_uuid(value):
        return value.encode()
    if type(value) is not UUID:
        raise ValueError("no UUID")
    return str(value).encode()


def moment_reader(node: Node) -> Callable[[Any], int] | None:
    """What makes a number of Python's own value of a logical type; None if there is none such."""
    logical = logical_type(node)
    name = "" if logical is None else logical.name
    if name == "date":
        return _days
    head, _, unit = name.rpartition("-")
    if unit not in _UNITS:
        return None
    factor, divisor = _UNITS[unit]
    if head == "time":
        return partial(_time_of_day, divisor=divisor)
    is_local = head.startswith("local")
    return partial(_since_epoch, is_local=is_local, factor=factor, divisor=divisor)


def _days(value: Any) -> int:
    if type(value) is not datetime.date:
        raise ValueError("no date")
    return value.toordinal() - _EPOCH_DAY


def _time_of_day(value: Any, *, divisor: int) -> int:
    if type(value) is not datetime.time:
        raise ValueError("no time of day")
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return (seconds * 1_000_000 + value.microsecond) // divisor


def _since_epoch(value: Any, *, is_local: bool, factor: int, divisor: int) -> int:
    """A local time has no zone and the others have one: anything else would be a guess."""
    if type(value) is not datetime.datetime or (value.tzinfo is None) != is_local:
        raise ValueError("no such moment")
    since: datetime.timedelta = value - (_LOCAL_EPOCH if is_local else _EPOCH)
    return since // _MICROSECOND * factor // divisor
