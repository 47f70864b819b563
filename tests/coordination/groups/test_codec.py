"""The records of `__consumer_offsets` are those of Apache Kafka, byte for byte.

The expected bytes were written by Kafka 4.3.1's own classes.
"""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.coordination.groups import codec as offsets
from penstock.coordination.groups import codec_classic as classic
from penstock.coordination.groups import codec_consumer as consumer
from penstock.coordination.groups.codec import read_events
from penstock.coordination.groups.codec_classic import StoredGroup, StoredMember
from penstock.coordination.groups.codec_consumer import (
    ClassicMemberMetadata,
    MemberState,
    StoredCurrent,
    StoredRegex,
    StoredSubscription,
)
from penstock.errors import Malformed
from penstock.machine import JournalRecord

TOPIC_ID = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")


def test_an_offset_commit_is_written_as_kafka_writes_it() -> None:
    value = offsets.write_offset_value(77, 3, "meta", 123456789, TOPIC_ID)
    assert value.hex() == (
        "0004000000000000004d00000003056d65746100000000075bcd15"
        "0100100102030405060708090a0b0c0d0e0f10"
    )
    key = offsets.write_offset_key("g", "té", 9)
    assert key.hex() == "0001" + "000167000374c3a900000009"
    assert offsets.read_offset_key(key) == ("g", "té", 9)


def test_a_commit_without_a_topic_id_has_no_tag() -> None:
    value = offsets.write_offset_value(77, -1, "", 5)
    assert value.hex() == "0004000000000000004dffffffff01000000000000000500"


@pytest.mark.parametrize(
    "packed",
    [
        "0000000000000000004d00046d6574610000000000000005",
        "0001000000000000004d00046d6574610000000000000005ffffffffffffffff",
        "0002000000000000004d00046d6574610000000000000005",
        "0003000000000000004dffffffff00046d6574610000000000000005",
    ],
)
def test_commits_of_older_brokers_are_read(packed: str) -> None:
    committed = offsets.read_offset_value(bytes.fromhex(packed))
    assert committed == (77, -1, "meta", 5, None, offsets.NO_TOPIC_ID)


@given(
    st.integers(0, 2**63 - 1),
    st.integers(-1, 2**31 - 1),
    st.text(max_size=200),
    st.integers(0, 2**62),
    st.uuids(),
)
def test_a_commit_is_read_as_it_was_written(
    offset: int, epoch: int, metadata: str, at: int, topic_id: UUID
) -> None:
    packed = offsets.write_offset_value(offset, epoch, metadata, at, topic_id)
    assert offsets.read_offset_value(packed) == (offset, epoch, metadata, at, None, topic_id)
    assert offsets.offset_of(packed) == offset


_MEMBER = StoredMember("m1", "i", "c", "/h", 20, 10, b"\x01\x02", b"\x03")
_GROUP = StoredGroup("consumer", 4, "range", "m1", 99, (_MEMBER,))
_GROUP_V3 = (
    "00030008636f6e73756d657200000004000572616e676500026d3100000000000000630000000100026d310001"
    "6900016300022f68000000140000000a0000000201020000000103"
)


def test_a_classic_group_is_written_as_kafka_writes_it() -> None:
    assert classic.write_group_value(_GROUP).hex() == _GROUP_V3


@pytest.mark.parametrize(
    ("packed", "expected"),
    [
        (
            "00000008636f6e73756d657200000004000572616e676500026d310000000100026d3100016300022f68"
            "0000000a0000000201020000000103",
            _GROUP._replace(
                state_since=-1,
                members=(_MEMBER._replace(instance_id=None, rebalance_timeout_ms=10),),
            ),
        ),
        (
            "00010008636f6e73756d657200000004000572616e676500026d310000000100026d3100016300022f68"
            "000000140000000a0000000201020000000103",
            _GROUP._replace(state_since=-1, members=(_MEMBER._replace(instance_id=None),)),
        ),
        (
            "00020008636f6e73756d657200000004000572616e676500026d31000000000000006300000001"
            "00026d3100016300022f68000000140000000a0000000201020000000103",
            _GROUP._replace(members=(_MEMBER._replace(instance_id=None),)),
        ),
        (_GROUP_V3, _GROUP),
        (
            "000409636f6e73756d6572000000040672616e6765036d31000000000000006302036d31026902630"
            "32f68000000140000000a03010202030000",
            _GROUP,
        ),
    ],
)
def test_classic_groups_of_every_version_are_read(packed: str, expected: StoredGroup) -> None:
    assert classic.read_group_value(bytes.fromhex(packed)) == expected


def test_a_consumer_group_epoch_is_written_as_kafka_writes_it() -> None:
    packed = consumer.write_group_epoch(7, 42)
    assert packed.hex() == "000000000007010008000000000000002a"
    assert consumer.read_group_epoch(packed) == (7, 42)


@pytest.mark.parametrize(
    ("member", "packed"),
    [
        (
            StoredSubscription(None, "r", "c", "/h", ("a", "b"), "x.*", 5, "uniform", None),
            "00000002720263032f68030261026204782e2a0000000508756e69666f726d01000100",
        ),
        (
            StoredSubscription(
                "i",
                None,
                "c",
                "/h",
                ("a",),
                None,
                5,
                None,
                ClassicMemberMetadata(45, (("range", b"\x09"),)),
            ),
            "00000269000263032f68020261010000000500010010010000002d020672616e676502090000",
        ),
    ],
)
def test_a_member_is_written_as_a_broker_of_kafka_writes_it(
    member: StoredSubscription, packed: str
) -> None:
    assert consumer.write_subscription(member).hex() == packed
    assert consumer.read_subscription(bytes.fromhex(packed)) == member


def test_a_member_without_the_optional_fields_is_read() -> None:
    packed = "0000000002620b2f3132372e302e302e3102027400000493e00000"
    assert consumer.read_subscription(bytes.fromhex(packed)) == StoredSubscription(
        None, None, "b", "/127.0.0.1", ("t",), None, 300_000, None, None
    )


def test_target_assignments_are_written_as_kafka_writes_them() -> None:
    assert consumer.write_target_epoch(7, 0).hex() == "00000000000700", "by an upgrade"
    assert consumer.write_target_epoch(7, 1000).hex() == "00000000000701000800000000000003e8"
    packed = consumer.write_target({TOPIC_ID: (1, 2)})
    assert packed.hex() == ("0000020102030405060708090a0b0c0d0e0f100300000001000000020000")
    assert consumer.read_target(packed) == {TOPIC_ID: (1, 2)}


def test_a_current_assignment_is_written_as_kafka_writes_it() -> None:
    current = StoredCurrent(5, 4, MemberState.UNREVOKED_PARTITIONS, {TOPIC_ID: {1: 5, 2: 4}}, {})
    packed = consumer.write_current(current)
    assert packed.hex() == (
        "0000000000050000000401020102030405060708090a0b0c0d0e0f10030000000100000002"
        "0100090300000005000000040100"
    )
    assert consumer.read_current(packed) == current


def test_a_resolved_pattern_is_written_as_kafka_writes_it() -> None:
    regex = StoredRegex(("a",), 3, 8)
    packed = consumer.write_regex(regex)
    assert packed.hex() == "00000202610000000000000003000000000000000800"
    assert consumer.read_regex(packed) == regex


def test_records_of_share_and_streams_groups_are_stepped_over() -> None:
    for version in (9, 11, 15, 17, 23, 4):
        key = version.to_bytes(2, "big") + b"\x00\x01g"
        assert read_events(JournalRecord(key, b"\x00\x00"), None) == ()


@given(st.binary(max_size=40))
def test_damaged_records_are_malformed_and_nothing_else(rubbish: bytes) -> None:
    for version in range(17):
        record = JournalRecord(version.to_bytes(2, "big") + rubbish, rubbish)
        try:
            read_events(record, None)
        except Malformed:
            continue
