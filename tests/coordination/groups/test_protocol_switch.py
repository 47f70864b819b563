"""Changes of protocol: what the policy allows, and the records that they write."""

from typing import Any

import pytest

from penstock.coordination.groups import GroupSettings
from penstock.coordination.groups.subscriptions import (
    read_embedded_assignment,
    read_embedded_subscription,
    write_embedded_assignment,
)
from penstock.errors import Malformed
from tests.support.settings import default_settings


def classic_group(scenario: Any) -> None:
    scenario.step("topics are t=2")
    scenario.step("a joins g old=1 session=60000")
    scenario.step("wait 3000")
    scenario.step("a syncs g a=t-0,t-1")


@pytest.mark.parametrize(
    ("may_upgrade", "expected"), [(True, "b: epoch=2"), (False, "b: group_id")]
)
def test_a_policy_without_upgrade_refuses_the_consumer_protocol(
    scenario: Any, may_upgrade: bool, expected: str
) -> None:
    scenario = type(scenario)(default_settings(GroupSettings, may_upgrade=may_upgrade))
    classic_group(scenario)
    assert scenario.step("b consumes g topics=t").startswith(expected)


def test_a_policy_without_downgrade_leaves_classic_members_in_a_consumer_group(
    scenario: Any,
) -> None:
    scenario = type(scenario)(default_settings(GroupSettings, may_downgrade=False))
    classic_group(scenario)
    scenario.step("b consumes g topics=t")
    scenario.step("a joins g")
    scenario.step("a syncs g")
    scenario.step("b consumes g epoch=-1")
    assert scenario.step("list groups") == "admin: g Assigning consumer"
    assert scenario.step("a heartbeats g") == "a: rebalance_in_progress"
    scenario.step("a joins g")
    assert scenario.step("a syncs g") == "a: assigned t-0,t-1"


def test_a_disabled_policy_refuses_classic_members_in_a_consumer_group(scenario: Any) -> None:
    scenario = type(scenario)(
        default_settings(GroupSettings, may_upgrade=False, may_downgrade=False)
    )
    scenario.step("topics are t=2")
    scenario.step("b consumes g topics=t")
    assert scenario.step("a joins g") == "a: inconsistent_group_protocol"
    scenario.step("b consumes g epoch=-1")
    assert scenario.step("a joins g").startswith("a: member_id_required"), "an empty group is free"


def test_a_group_that_is_too_large_for_the_other_protocol_keeps_its_own(scenario: Any) -> None:
    small = type(scenario)(default_settings(GroupSettings, consumer_members_max=1))
    classic_group(small)
    small.step("c joins g old=1")
    small.step("a joins g")
    assert small.step("b consumes g topics=t") == "b: group_id_not_found"
    small = type(scenario)(default_settings(GroupSettings, members_max=1))
    small.step("topics are t=2")
    small.step("b consumes g topics=t")
    small.step("a joins g old=1")
    small.step("c joins g old=1")
    small.step("b consumes g epoch=-1")
    assert "consumer" in small.step("list groups")


def test_a_group_that_is_not_of_consumers_stays_classic(scenario: Any) -> None:
    scenario.step("topics are t=2")
    scenario.step("a joins g old=1 type=connect")
    scenario.step("wait 3000")
    assert scenario.step("b consumes g topics=t") == "b: group_id_not_found"
    assert scenario.step("list groups") == "admin: g CompletingRebalance classic"


def test_classic_members_of_one_group_must_have_a_protocol_in_common(scenario: Any) -> None:
    classic_group(scenario)
    scenario.step("b consumes g topics=t")
    assert scenario.step("c joins g protocols=sticky") == "c: inconsistent_group_protocol"
    assert scenario.step("c joins g type=connect") == "c: inconsistent_group_protocol"
    assert scenario.step("c joins g session=1") == "c: invalid_session_timeout"


def test_an_upgrade_writes_what_kafka_writes(scenario: Any) -> None:
    classic_group(scenario)
    first = len(scenario.journal.records)
    scenario.step("b consumes g topics=t")
    written = [record for record, _ in scenario.journal.records[first:]]
    kinds = [(record.key[1], record.value is not None) for record in written]
    upgraded = [(2, False), (5, True), (3, True), (7, True), (6, True), (8, True)]
    assert kinds[: len(upgraded)] == upgraded
    subscription = (
        "0000"  # version
        "00" "00" "09" + b"client-a".hex() + "0b" + b"/127.0.0.1".hex() + "02" "0274" "01"
        "0000ea60" "00"  # rebalance time-out, no assignor
        "01" "00" "20"  # one tagged field: the classic member
        "01" "0000ea60" "02" "06" + b"range".hex() + "12"  # session time-out, one protocol
        "0001" "00000001" "0001" "74" "00000000" "00000000" "00" "00"
    )  # fmt: skip
    assert written[1].value is not None
    assert written[1].value.hex() == subscription


def test_a_downgrade_writes_what_kafka_writes(scenario: Any) -> None:
    classic_group(scenario)
    scenario.step("b consumes g topics=t")
    first = len(scenario.journal.records)
    scenario.step("b consumes g epoch=-1")
    written = [record for record, _ in scenario.journal.records[first:]]
    kinds = [(record.key[1], record.value is not None) for record in written]
    tombstones = [
        (8, False),
        (8, False),
        (7, False),
        (7, False),
        (6, False),
        (5, False),
        (5, False),
    ]
    assert kinds == [*tombstones, (3, False), (2, True)]


def test_an_embedded_assignment_is_written_in_the_version_of_its_member() -> None:
    packed = write_embedded_assignment({"t": (0, 2)}, 1)
    assert packed.hex() == "000100000001000174000000020000000000000002ffffffff"
    assert read_embedded_assignment(packed) == {"t": (0, 2)}
    assert write_embedded_assignment({}, 9)[:2] == b"\x00\x03"


def test_a_subscription_of_the_newest_version_is_read() -> None:
    packed = bytes.fromhex(
        "0003" "00000001" "000174" "ffffffff" "00000001" "000174" "00000001" "00000005"
        "00000007" "000472616b32"
    )  # fmt: skip
    subscription = read_embedded_subscription(packed)
    assert subscription == (3, ("t",), {"t": (5,)}, "rak2")
    for size in range(len(packed)):
        with pytest.raises(Malformed):
            read_embedded_subscription(packed[:size])
