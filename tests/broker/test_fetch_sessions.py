"""The cache of fetch sessions is limited, evicts idle sessions, and is fair."""

import itertools

import pytest

from penstock.broker.fetch_sessions import FetchPosition, FetchSessions
from penstock.errors import Refused
from penstock.model import Millis
from penstock.protocol.messages.fetch import FetchPartition


def sessions(sessions_max: int = 2) -> FetchSessions:
    ids = itertools.count(1)
    return FetchSessions(sessions_max=sessions_max, idle_ms=Millis(1000), new_id=lambda: next(ids))


def position(index: int, topic: str = "t") -> FetchPosition:
    return FetchPosition(topic, FetchPartition(index, partition_max_bytes=1))


def open_session(cache: FetchSessions, now: int, *indexes: int) -> int:
    plan = cache.plan(
        0, 0, [position(index) for index in indexes], (), by_id=False, now=Millis(now)
    )
    return 0 if plan.session is None else plan.session.session_id


def test_a_full_cache_evicts_its_idle_session_and_no_other() -> None:
    cache = sessions()
    first, second = open_session(cache, 0, 1), open_session(cache, 500, 1)
    assert open_session(cache, 900, 1) == 0
    cache.plan(first, 1, [], (), by_id=False, now=Millis(1000))
    assert open_session(cache, 1499, 1) == 0
    third = open_session(cache, 1500, 1)
    assert third > second
    with pytest.raises(Refused):
        cache.plan(second, 1, [], (), by_id=False, now=Millis(1500))
    cache.plan(first, 2, [], (), by_id=False, now=Millis(1500))
    assert len(cache) == 2


def test_a_partition_that_returned_records_is_served_last() -> None:
    cache = sessions()
    session_id = open_session(cache, 0, 1, 2, 3)
    plan = cache.plan(session_id, 1, [], (), by_id=False, now=Millis(0))
    assert plan.session is not None
    plan.session.serve_last(plan.positions[0])
    again = cache.plan(session_id, 2, [], (), by_id=False, now=Millis(0))
    assert [row.index for row in again.positions] == [2, 3, 1]


def test_an_epoch_after_the_last_is_1() -> None:
    cache = sessions()
    session_id = open_session(cache, 0, 1)
    plan = cache.plan(session_id, 1, [], (), by_id=False, now=Millis(0))
    assert plan.session is not None
    plan.session.epoch = 2**31 - 1
    cache.plan(session_id, 2**31 - 1, [], (), by_id=False, now=Millis(0))
    cache.plan(session_id, 1, [], (), by_id=False, now=Millis(0))


def test_names_and_ids_cannot_be_mixed_in_one_session() -> None:
    cache = sessions()
    session_id = open_session(cache, 0, 1)
    with pytest.raises(Refused):
        cache.plan(session_id, 1, [], (), by_id=True, now=Millis(0))
