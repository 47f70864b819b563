"""The rules of commits over HTTP."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.gateway.groups.commit_rules import (
    CommitConflict,
    RequestedCommit,
    VersionedOffset,
    decide_commit,
    read_version,
    write_version,
)
from penstock.model import Millis, Offset, TopicPartition

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
NOW = Millis(1_700_000_000_000)


def at(offset: int, version: int) -> VersionedOffset:
    return VersionedOffset(Offset(offset), version)


def want(partition: TopicPartition, offset: int, version: int | None = None) -> RequestedCommit:
    return RequestedCommit(partition, Offset(offset), version)


def test_versions_count_from_one() -> None:
    first = decide_commit({}, [want(P0, 5, 0)], reset=False, now=NOW)
    assert first == {P0: at(5, 1)}
    assert decide_commit({P0: at(5, 1)}, [want(P0, 6, 1)], reset=False, now=NOW) == {P0: at(6, 2)}


def test_a_version_is_never_used_again_after_a_kafka_clients_commit() -> None:
    native = read_version(Offset(9), "")
    assert native == at(9, 0)
    decided = decide_commit({P0: native}, [want(P0, 10)], reset=False, now=NOW)
    assert decided == {P0: at(10, NOW)}


def test_every_conflict_is_listed_and_nothing_is_committed() -> None:
    current = {P0: at(5, 3), P1: at(7, 4)}
    decided = decide_commit(current, [want(P0, 6, 2), want(P1, 6)], reset=False, now=NOW)
    assert decided == [
        CommitConflict(P0, "version", at(5, 3)),
        CommitConflict(P1, "backwards", at(7, 4)),
    ]


def test_going_back_is_an_explicit_reset() -> None:
    current = {P0: at(5, 3)}
    assert isinstance(decide_commit(current, [want(P0, 4)], reset=False, now=NOW), list)
    assert decide_commit(current, [want(P0, 4)], reset=True, now=NOW) == {P0: at(4, 4)}
    assert isinstance(decide_commit(current, [want(P0, 4, 9)], reset=True, now=NOW), list)
    assert decide_commit(current, [want(P0, 5)], reset=False, now=NOW) == {P0: at(5, 4)}


@given(st.integers(0, 1 << 62), st.integers(1, 1 << 62))
def test_a_version_is_read_as_it_was_written(offset: int, version: int) -> None:
    committed = at(offset, version)
    assert read_version(Offset(offset), write_version(committed)) == committed
    assert read_version(Offset(offset + 1), write_version(committed)).version == 0


@given(st.text(max_size=40))
def test_metadata_of_others_is_version_0(text: str) -> None:
    assert read_version(Offset(7), text).version == 0 or text.startswith("penstock:")
