"""murmur2 against Apache Kafka's own figures and against the algorithm in plain Python."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.columns.build_batches import bytes_layout
from penstock.columns.partitioner import Unkeyed, assign_partitions

JAVA_FIGURES = {  # what Utils.murmur2 of kafka-clients 4.3.1 answers, by key in hex
    "": 275646681,
    "61": -1563381124,
    "6162": 316155434,
    "616263": 479470107,
    "61626364": -1323649548,
    "6162636465": 461995741,
    "3231": -973932308,
    "666f6f626172": -790332482,
    "612d6c6974746c652d6269742d6c6f6e672d737472696e67": -985981536,
    "6c6b6a683233346c68396669756839307932336f697568736166756a6861646f66323239706872396831396838396838": -58897971,  # noqa: E501 - a figure of one key
    "e282acc3a9f09f9880": 1812880392,
    "99": 1288378381,
    "1834": -1042682160,
    "5a94c9": -313141582,
    "390b7702": 612225306,
    "09d32a595d": 99467382,
    "41f4b3e592471a": -525456804,
    "05194bb55dcab391": -356129997,
    "0016175aa147e1f3e98ee81edf": -995422561,
}
LARGEST = 2**31 - 1  # with as many partitions, the partition is all but the whole hash


def plain_murmur2(key: bytes) -> int:
    """The algorithm in plain Python, from its description."""
    multiplier, mask = 0x5BD1E995, 0xFFFFFFFF
    hashed = 0x9747B28C ^ len(key)
    whole = len(key) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * multiplier & mask
        word = (word ^ word >> 24) * multiplier & mask
        hashed = (hashed * multiplier & mask) ^ word
    if rest := key[whole:]:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * multiplier & mask
    hashed = (hashed ^ hashed >> 13) * multiplier & mask
    return hashed ^ hashed >> 15


def partitions_of(keys: list[bytes | None], count: int, unkeyed: Unkeyed) -> list[int]:
    layout = bytes_layout("key", pa.array(keys, pa.binary()))
    partitions: list[int] = assign_partitions(layout, count, unkeyed).tolist()
    return partitions


def test_the_hash_is_javas() -> None:
    keys: list[bytes | None] = [bytes.fromhex(key) for key in JAVA_FIGURES]
    expected = [(figure & 0x7FFFFFFF) % LARGEST for figure in JAVA_FIGURES.values()]
    assert partitions_of(keys, LARGEST, Unkeyed.sticky(0)) == expected


def test_the_plain_hash_is_javas_too() -> None:
    for key, figure in JAVA_FIGURES.items():
        assert plain_murmur2(bytes.fromhex(key)) == figure & 0xFFFFFFFF


@given(keys=st.lists(st.binary(max_size=70), max_size=20), count=st.integers(1, 1000))
@settings(deadline=None, max_examples=150)
def test_any_key_goes_where_the_plain_hash_says(keys: list[bytes | None], count: int) -> None:
    expected = [(plain_murmur2(key or b"") & 0x7FFFFFFF) % count for key in keys]
    assert partitions_of(keys, count, Unkeyed.sticky(0)) == expected


def test_rows_without_a_key_stick_to_one_partition() -> None:
    assert partitions_of([None, None, None], 5, Unkeyed.sticky(3)) == [3, 3, 3]


def test_rows_without_a_key_go_round_robin_and_rows_with_one_do_not_count() -> None:
    keys = [None, b"a", None, None, None]
    assert partitions_of(keys, 3, Unkeyed.round_robin(1))[::2] == [1, 2, 1]
    assert partitions_of(keys, 3, Unkeyed.round_robin(1))[3] == 0


def test_an_empty_key_is_a_key() -> None:
    assert partitions_of([b""], LARGEST, Unkeyed.sticky(1)) == [JAVA_FIGURES[""]]


def test_a_chosen_partition_that_is_not_there_is_refused() -> None:
    layout = bytes_layout("key", pa.array([b"a"]))
    with pytest.raises(ValueError, match="among the topic's 2"):
        assign_partitions(layout, 2, Unkeyed.sticky(0), pa.array([2]).to_numpy())
