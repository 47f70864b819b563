"""Filters of records: what they mean, what is wrong with one, and that any text is safe."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.console.filter.filter_tokens import FilterError
from penstock.console.filter.matching import matches
from penstock.console.filter.parse_filter import parse_filter


class GivenRecord:
    """A record with these contents."""

    partition, offset, timestamp = 1, 42, 1_700_000_000_000
    key: Any = "berlin"

    def __init__(self, value: Any = None) -> None:
        self.value = value
        self.headers = {"source": b"shop", "empty": None, "raw": b"\xff\x00"}


ORDER = GivenRecord(
    {
        "cents": 1250,
        "paid": True,
        "rate": 0.1,
        "exact": Decimal("1.10"),
        "big": 2**53 + 1,
        "customer": {"id": 7, "name": "Ada"},
        "lines": [{"sku": "a"}, {"sku": "b"}],
        "tags": ["new", "sale"],
        "note": None,
        "id": UUID(int=5),
        "at": datetime(2026, 11, 18, tzinfo=UTC),
    }
)


@pytest.mark.parametrize(
    ("text", "is_match"),
    [
        ('key == "berlin"', True),
        ("key == 'berlin'", True),
        ('key != "paris"', True),
        ('key startswith "ber"', True),
        ('key contains "erl"', True),
        ('key contains "x"', False),
        ("value.cents >= 1250", True),
        ("value.cents > 1250", False),
        ("value.cents == 1250.0", True),
        ('value.cents == "1250"', False),
        ("value.rate == 0.1", True),
        ("value.exact == 1.1", True),
        ("value.big == 9007199254740993", True),
        ("value.big == 9007199254740992", False),
        ("value.paid == true", True),
        ("value.paid == 1", False),
        ("value.customer.id in (1, 7)", True),
        ("value.customer.id not in (1, 7)", False),
        ('value["customer"]["name"] == "Ada"', True),
        ('value.lines[1].sku == "b"', True),
        ('value.lines[-1].sku == "b"', True),
        ("value.lines[9].sku == null", True),
        ('value.tags contains "sale"', True),
        ('value.customer contains "id"', True),
        ("value.note == null", True),
        ("value.missing.deeper == null", True),
        ("value.missing > 1", False),
        ('value.id == "00000000-0000-0000-0000-000000000005"', True),
        ('value.at startswith "2026-11-18"', True),
        ('headers["source"] == "shop"', True),
        ('headers["raw"] == "/wA="', True),
        ('headers["absent"] == null', True),
        ("partition == 1 and offset < 43", True),
        ("partition in (0, 2) or offset == 42", True),
        ('timestamp == "2023-11-14T22:13:20Z"', True),
        ('timestamp >= "2023-11-14T23:13:20+01:00"', True),
        ("timestamp < 1700000000001", True),
        ('not (key == "berlin" and value.cents == 1)', True),
        ('key == "paris" and partition == 1 or offset == 42', True),
        ('key == "paris" and (partition == 1 or offset == 42)', False),
    ],
)
def test_a_filter_matches_what_it_says(text: str, is_match: bool) -> None:
    assert matches(parse_filter(text), ORDER) is is_match


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("", 1, "a field is expected"),
        ("name == 1", 1, "a field is expected"),
        ("key = 1", 5, "compare with =="),
        ("key ==", 7, "not the end"),
        ("key == berlin", 8, "a text in quotes"),
        ('key == "berlin', 8, "has no end"),
        ('key matches "a"', 5, "one of =="),
        ('(key == "a"', 12, "')' is expected"),
        ('key == "a" key == "b"', 12, "'and', 'or' or the end"),
        ("partition in ()", 15, "a text in quotes"),
        ("headers == 1", 1, 'headers["name"]'),
        ("value. == 1", 8, "a name is expected"),
        ("value[1.5] == 1", 7, "a whole number"),
        ('timestamp > "noon"', 13, "is not a time"),
        ("key == 1; import os", 9, "not part of a filter"),
        ("(" * 60 + "key == 1" + ")" * 60, 51, "nested"),
        ("key == 1" + " " * 5000, 4001, "longer than"),
    ],
)
def test_an_invalid_filter_says_what_is_wrong_and_where(text: str, column: int, words: str) -> None:
    with pytest.raises(FilterError, match="column") as failure:
        parse_filter(text)
    assert failure.value.column == column
    assert words in str(failure.value)


PIECES = st.sampled_from(
    ["key", "value", ".a", '["b"]', "headers", "==", "<", "contains", "in", "(", ")", ",", "and",
     "or", "not", "null", "true", '"t"', "7", "-1.5e3", "timestamp", "partition", "$", "__import__"]
)  # fmt: skip


@given(st.one_of(st.text(max_size=60), st.lists(PIECES, max_size=12).map(" ".join)))
def test_any_text_is_a_filter_or_an_error_with_its_column(text: str) -> None:
    column = 1
    try:
        assert matches(parse_filter(text), ORDER) in (True, False)
    except FilterError as error:
        column = error.column
    assert 1 <= column <= len(text) + 1


def test_a_number_that_is_not_one_has_no_order() -> None:
    record = GivenRecord({"rate": float("nan")})
    for text in ("value.rate < 1", "value.rate >= 1", "value.rate == 1"):
        assert not matches(parse_filter(text), record)
