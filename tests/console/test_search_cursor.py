"""Cursors: read as they were written, and nothing else is one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.console.search.merged_scan import Direction, ScanRange
from penstock.console.search.search_cursor import (
    CursorError,
    SearchCursor,
    read_cursor,
    write_cursor,
)
from penstock.model import Offset

CURSOR = SearchCursor(
    Direction.FORWARD, [ScanRange(0, Offset(7), Offset(2**63 - 1))], 7, 2, 2**63 - 1
)


def test_a_cursor_is_read_as_it_was_written() -> None:
    assert read_cursor(write_cursor(CURSOR, "f"), "f") == CURSOR


def test_a_cursor_of_another_filter_is_refused() -> None:
    with pytest.raises(CursorError, match="another filter"):
        read_cursor(write_cursor(CURSOR, "f"), "g")


def test_a_range_the_wrong_way_round_is_refused() -> None:
    backward = CURSOR._replace(direction=Direction.BACKWARD)
    with pytest.raises(CursorError):
        read_cursor(write_cursor(backward, "f"), "f")


@given(st.text(max_size=80))
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(CursorError):
        read_cursor(text, "f")
