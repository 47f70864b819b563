"""Keys and values read in one loop, against the reader of single records."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import Malformed
from penstock.model import NO_OFFSET, Millis, Offset, ProducerEpoch, ProducerId
from penstock.protocol.batch import (
    HEADER_BYTES,
    CorruptBatch,
    read_header,
    seal,
    write_leader_fields,
)
from penstock.protocol.compression import Codec
from penstock.protocol.key_values import build_one, build_pairs, read_pairs, read_simple_pairs
from penstock.protocol.records import Record, build_batch, read_records

content = st.none() | st.binary(max_size=300)
records = st.lists(
    st.builds(
        Record,
        offset=st.just(NO_OFFSET),
        timestamp=st.integers(0, 2**40),
        key=content,
        value=content,
        headers=st.lists(st.tuples(st.text(max_size=5), content), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=20,
)


@given(records, st.sampled_from(Codec))
@settings(deadline=None, max_examples=100)
def test_pairs_are_those_of_the_plain_reader(written: list[Record], codec: Codec) -> None:
    batch = build_batch(written, codec=codec)
    expected = [(record.key, record.value) for record in read_records(batch)]
    assert read_pairs(batch) == expected


@given(st.lists(st.tuples(content, content), min_size=1, max_size=200), st.booleans())
@settings(deadline=None, max_examples=50)
def test_a_batch_of_pairs_is_built_as_the_plain_builder_does(
    pairs: list[tuple[bytes | None, bytes | None]], transactional: bool
) -> None:
    now = Millis(1_700_000_000_000)
    who = (
        {"producer_id": ProducerId(7), "producer_epoch": ProducerEpoch(2)} if transactional else {}
    )
    plain = build_batch(pairs, timestamp=now, transactional=transactional, **who)  # type: ignore[arg-type]  # a dict of two
    assert build_pairs(pairs, now, transactional=transactional, **who) == plain  # type: ignore[arg-type]  # a dict of two


@given(st.binary(max_size=1000), content, st.integers(-1, 2**40).map(Millis))
@settings(deadline=None, max_examples=200)
def test_a_batch_of_one_is_built_as_one_of_many_and_tells_its_header(
    key: bytes, value: bytes | None, timestamp: Millis
) -> None:
    batch, header = build_one(key, value, timestamp)
    assert batch == build_pairs([(key, value)], timestamp)
    assert header == read_header(batch)


@given(records, st.data())
@settings(deadline=None, max_examples=100)
def test_corrupt_records_are_malformed(written: list[Record], data: st.DataObject) -> None:
    batch = build_batch(written)
    place = data.draw(st.integers(HEADER_BYTES, len(batch) - 1))
    batch[place] = data.draw(st.integers(0, 255))
    seal(batch)
    try:
        read_pairs(batch)
    except Malformed:
        return


def test_a_record_that_runs_past_its_batch_is_malformed() -> None:
    batch = build_batch([(b"k", b"v")])
    batch[HEADER_BYTES] = 0x7E  # the stated length of the record is 63 bytes
    seal(batch)
    with pytest.raises(Malformed):
        read_pairs(batch)


def test_consecutive_simple_batches_are_read_up_to_the_first_other_one() -> None:
    rows: list[list[tuple[bytes | None, bytes | None]]]
    rows = [[(b"a", b"1")], [(b"b", None), (None, b"x" * 100)], [(b"c", b"3")]]
    batches = [build_pairs(pairs, Millis(5)) for pairs in rows]
    batches.append(
        build_pairs(
            [(b"t", b"4")],
            Millis(5),
            producer_id=ProducerId(1),
            producer_epoch=ProducerEpoch(0),
            transactional=True,
        )
    )
    for batch, offset in zip(batches, (10, 11, 13, 14), strict=True):
        write_leader_fields(batch, 0, offset, read_header(batch).length, 0)
    raw = b"".join(batches)
    plain = sum(map(len, batches[:3]))
    expected = [pair for pairs in rows for pair in pairs]
    assert read_simple_pairs(raw, 0, Offset(10)) == (expected, plain, 14)
    assert read_simple_pairs(raw[: plain - 1], 0, Offset(10))[2] == 13, "one is not whole"
    assert read_simple_pairs(raw, 0, Offset(11)) == ([], 0, 11), "one starts before"
    with pytest.raises(CorruptBatch):
        read_simple_pairs(raw[: plain - 1] + b"!", 0, Offset(10))
