"""Plain values are exactly those of JSON's own types, however they are nested."""

import gc
import math
import sys
from collections import OrderedDict
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.columns.json_values import NESTING_MAX, are_plain

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS | st.binary(max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
    ),
    max_leaves=8,
)


class Level(IntEnum):
    LOW = 1


class Text(str):
    __slots__ = ()


def is_plain(value: Any) -> bool:
    if type(value) is list:
        return all(map(is_plain, value))
    if type(value) is dict:
        return all(type(key) is str and is_plain(one) for key, one in value.items())
    if type(value) is float:
        return math.isfinite(value)
    return value is None or type(value) in (bool, int, str)


@given(values=st.lists(VALUES, max_size=5))
@settings(max_examples=300, deadline=None)
def test_values_are_plain_if_all_that_is_in_them_is(values: list[Any]) -> None:
    assert are_plain(values) == all(map(is_plain, values))


@pytest.mark.parametrize(
    "odd",
    [Level.LOW, Text("a"), {Text("a"): 1}, OrderedDict(a=1), (1,), {1}, -math.inf, 1j, object()],
)
def test_what_only_looks_like_it_is_not_plain(odd: Any) -> None:
    assert not are_plain([1, odd])
    assert not are_plain([{"a": [{}, [], {"b": odd}]}])


def test_levels_are_counted() -> None:
    def nested(levels: int) -> Any:
        value: Any = 1
        for level in range(levels):
            value = [value] if level % 2 else {"a": value}
        return value

    assert are_plain([nested(NESTING_MAX)])
    assert not are_plain([nested(NESTING_MAX + 1)])


def test_nothing_is_kept_of_values_whether_they_are_plain_or_not() -> None:
    inner, text = [{"a": 1.5}], "some text"
    good, bad = {"x": inner, "y": text}, {"x": inner, "y": (text,)}
    objects = (inner, inner[0], text, good, bad)
    gc.collect()
    before = [sys.getrefcount(each) for each in objects]
    for _ in range(100):
        assert are_plain([good, good])
        assert not are_plain([good, bad])
    assert [sys.getrefcount(each) for each in objects] == before
