"""Values as JSON that a page reads without loss."""

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.console.page_values import SAFE_INTEGER_MAX, page_value, plain_side

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (SAFE_INTEGER_MAX, SAFE_INTEGER_MAX),
        (SAFE_INTEGER_MAX + 1, "9007199254740992"),
        (-(2**63), "-9223372036854775808"),
        (b"\x00\x01\x02", {"base64": "AAEC"}),
        (Decimal("1.10"), "1.10"),
        (date(2026, 11, 18), "2026-11-18"),
        (datetime(2026, 11, 18, tzinfo=UTC), "2026-11-18T00:00:00+00:00"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (math.inf, "inf"),
        ({1: (True, None)}, {"1": [True, None]}),
    ],
)
def test_a_value_is_shown_without_loss(value: Any, shown: Any) -> None:
    assert page_value(value) == shown


@given(VALUES)
def test_any_value_can_be_sent(value: Any) -> None:
    msgspec.json.encode(page_value(value))


@pytest.mark.parametrize(
    ("content", "is_key", "form", "value"),
    [
        (b'{"a": 1}', False, "json", {"a": 1}),
        (b"17", False, "json", 17),
        (b"17", True, "text", "17"),
        (b'{"a": 1}', True, "json", {"a": 1}),
        (b"plain", False, "text", "plain"),
        (b"\xff", False, "bytes", b"\xff"),
        (b"[" * 100_000, False, "text", "[" * 100_000),
    ],
)
def test_bytes_without_a_schema_are_json_text_or_bytes(
    content: bytes, is_key: bool, form: str, value: Any
) -> None:
    side = plain_side(content, is_key=is_key)
    assert (side.format, side.value) == (form, value)
