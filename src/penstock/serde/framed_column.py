"""Framed keys or values as an Arrow column, and the headers that come with them.

The headers of a contract are few and repeat, so a column has the different ones once, and for each
row which of them it has.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.columns.arrow_records import HEADERS_TYPE, ArrowArray, with_nulls
from penstock.columns.compiled import Int64s
from penstock.serde.batch_serializers import FramedBatch
from penstock.serde.serializers import Framed

RowHeaders: TypeAlias = Sequence[tuple[str, bytes | None]]

_NO_HEADERS: Final[tuple[RowHeaders, ...]] = ((),)
_TEXT_OR_BYTES: Final = (
    pa.types.is_binary, pa.types.is_large_binary, pa.types.is_string, pa.types.is_large_string,
    pa.types.is_null,
)  # fmt: skip


class FramedColumn(NamedTuple):
    """One row per key or value; null deletes a key, or is no key."""

    contents: ArrowArray  # binary or text
    headers: tuple[RowHeaders, ...] = _NO_HEADERS
    chosen: Int64s | None = None  # which of the headers a row has; None: all the first

    def framed(self) -> list[Framed]:
        """The rows one by one."""
        contents: list[Any] = self.contents.to_pylist()
        chosen = [0] * len(contents) if self.chosen is None else self.chosen.tolist()
        headers: Any = self.headers
        return [Framed(row, headers[at]) for row, at in zip(contents, chosen, strict=True)]


def is_text_or_bytes(rows: Any) -> bool:
    """Whether this is an Arrow array that needs no contract."""
    return isinstance(rows, pa.Array) and any(test(rows.type) for test in _TEXT_OR_BYTES)


def framed_column(rows: "list[Framed] | ArrowArray | Any") -> FramedColumn:
    """Rows that were serialized one by one, or an array of text or bytes."""
    if not isinstance(rows, list):
        return FramedColumn(rows)
    contents = pa.array([row.content for row in rows], pa.large_binary())
    if not any(row.headers for row in rows):
        return FramedColumn(contents)
    different = {tuple(row.headers): 0 for row in rows}
    numbers = {headers: number for number, headers in enumerate(different)}
    chosen = np.array([numbers[tuple(row.headers)] for row in rows], dtype=np.int64)
    return FramedColumn(contents, tuple(numbers), chosen)


def encoded_column(encoded: FramedBatch, is_valid: list[bool] | None) -> FramedColumn:
    """Values that were encoded together; where `is_valid` is False a null is inserted."""
    contents = encoded.as_arrow()
    if is_valid is None:
        return FramedColumn(contents, (encoded.headers,))
    valid = np.array(is_valid)
    return FramedColumn(with_nulls(contents, valid), ((), encoded.headers), valid.astype(np.int64))


def record_headers(
    rows: int, common: RowHeaders, keys: FramedColumn | None, values: FramedColumn
) -> "ArrowArray | None":
    """The column `headers` of records: those that all have, then the key's and the value's."""
    key_headers = _NO_HEADERS if keys is None else keys.headers
    different = [
        [{"key": name, "value": content} for name, content in (*common, *key, *value)]
        for key in key_headers
        for value in values.headers
    ]
    if not any(different):
        return None
    chosen = np.zeros(rows, dtype=np.int64)
    if keys is not None and keys.chosen is not None:
        chosen += keys.chosen * len(values.headers)
    if values.chosen is not None:
        chosen += values.chosen
    lists: ArrowArray = pa.array(different, HEADERS_TYPE)
    return lists.take(chosen)
