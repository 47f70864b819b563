"""Resume ids: what is written is read again, and anything else is refused with a reason."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import Malformed
from penstock.gateway.streams.resume_id import ID_CHARACTERS_MAX, ResumeIdWriter, read_resume_id
from penstock.model import Offset, TopicPartition

names = st.text("abcxyz._-", min_size=1, max_size=8)
positions = st.dictionaries(
    st.builds(TopicPartition, names, st.integers(0, 300)),
    st.integers(0, 2**63 - 1).map(Offset),
    min_size=1,
    max_size=40,
)


def written(offsets: dict[TopicPartition, Offset]) -> str:
    partitions = sorted(offsets)
    return ResumeIdWriter(partitions, [offsets[each] for each in partitions]).text()


@given(positions)
def test_an_id_is_read_as_it_was_written(offsets: dict[TopicPartition, Offset]) -> None:
    topics = {partition.topic for partition in offsets}
    assert read_resume_id(written(offsets), topics) == offsets


@given(positions, st.data())
def test_advancing_one_partition_changes_that_partition_only(
    offsets: dict[TopicPartition, Offset], data: st.DataObject
) -> None:
    partitions = sorted(offsets)
    writer = ResumeIdWriter(partitions, [offsets[each] for each in partitions])
    index = data.draw(st.integers(0, len(partitions) - 1))
    writer.advance(index, Offset(12345))
    topics = {partition.topic for partition in offsets}
    assert read_resume_id(writer.text(), topics) == offsets | {partitions[index]: 12345}


@given(st.text(max_size=60))
def test_any_other_text_is_refused_and_never_crashes(text: str) -> None:
    try:
        read_resume_id(text, ["orders"])
    except Malformed:
        return
    assert text.startswith("1")


@given(positions, st.data())
def test_a_changed_id_is_refused_or_names_the_same_partitions(
    offsets: dict[TopicPartition, Offset], data: st.DataObject
) -> None:
    text = written(offsets)
    cut = text[: data.draw(st.integers(0, len(text) - 1))]
    topics = {partition.topic for partition in offsets}
    try:
        read = read_resume_id(cut, topics)
    except Malformed:
        return
    assert set(read) <= set(offsets)


def test_an_id_fits_into_headers_and_urls() -> None:
    text = written({TopicPartition("orders", index): Offset(10**6) for index in range(100)})
    assert len(text) < 600
    assert all(character.isalnum() or character in "._~:-" for character in text)


def test_an_id_of_other_topics_is_refused() -> None:
    text = written({TopicPartition("orders", 0): Offset(7)})
    with pytest.raises(Malformed, match="other topics"):
        read_resume_id(text, ["payments"])


def test_an_id_that_is_too_long_is_refused() -> None:
    with pytest.raises(Malformed, match="at most 4096"):
        read_resume_id("1" * (ID_CHARACTERS_MAX + 1), ["orders"])


def test_growth_is_one_digit_for_each_partition() -> None:
    partitions = [TopicPartition("orders", index) for index in range(3)]
    writer = ResumeIdWriter(partitions, [Offset(63)] * 3)
    grown = ResumeIdWriter(partitions, [Offset(64)] * 3)
    assert writer.characters_with_growth == len(grown.text())
