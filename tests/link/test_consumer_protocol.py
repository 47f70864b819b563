"""Subscriptions and assignments as Kafka's clients write and read them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import Malformed
from penstock.link.consumer_protocol import (
    assign_ranges,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from penstock.model import TopicPartition

names = st.text("abc.-_", min_size=1, max_size=6)
partitions = st.lists(st.builds(TopicPartition, names, st.integers(0, 99)), unique=True)


@given(st.lists(names, unique=True))
def test_a_subscription_is_read_as_it_was_written(topics: list[str]) -> None:
    assert read_subscription(write_subscription(topics)) == tuple(sorted(topics))


@given(partitions)
def test_an_assignment_is_read_as_it_was_written(rows: list[TopicPartition]) -> None:
    assert read_assignment(write_assignment(rows)) == tuple(sorted(rows))


@given(partitions, st.data())
def test_an_assignment_that_is_cut_off_is_malformed(
    rows: list[TopicPartition], data: st.DataObject
) -> None:
    content = write_assignment(rows)[:-4]  # without user data, which is not read
    cut = content[: data.draw(st.integers(1, len(content) - 1))] if rows else b"\0"
    with pytest.raises(Malformed):
        read_assignment(cut)


def test_fields_of_later_versions_are_skipped() -> None:
    java_2 = bytes.fromhex("0001 00000001 0003 616263 ffffffff 00000000")
    assert read_subscription(java_2) == ("abc",)


def test_no_assignment_is_empty() -> None:
    assert read_assignment(b"") == ()


def test_the_first_members_get_one_partition_more() -> None:
    members = {"a": ["orders"], "b": ["orders", "other"], "c": ["orders"]}
    assigned = assign_ranges(members, {"orders": 7, "other": 1})
    orders = {member: [row.partition for row in rows] for member, rows in assigned.items()}
    assert orders == {"a": [0, 1, 2], "b": [3, 4, 0], "c": [5, 6]}


@given(
    st.dictionaries(names, st.lists(st.sampled_from(["x", "y"]), unique=True), max_size=5),
    st.fixed_dictionaries({"x": st.integers(0, 9), "y": st.integers(0, 9)}),
)
def test_every_partition_of_a_topic_that_is_read_has_one_reader(
    members: dict[str, list[str]], counts: dict[str, int]
) -> None:
    assigned = assign_ranges(members, counts)
    rows = [row for rows in assigned.values() for row in rows]
    read = {topic for topics in members.values() for topic in topics}
    assert sorted(rows) == [
        TopicPartition(topic, index) for topic in sorted(read) for index in range(counts[topic])
    ]
