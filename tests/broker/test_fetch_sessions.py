"""The cache of fetch sessions: bounded, evicting the idle, fair."""

import itertools

import pytest

from penstock.broker.fetch_sessions import FetchSessions, Wanted
from penstock.errors import Refused
from penstock.model import Millis
from penstock.protocol.messages.fetch import WantedPartition


def sessions(sessions_max: int = 2) -> FetchSessions:
    minted = itertools.count(1)
    return FetchSessions(
        sessions_max=sessions_max, idle_ms=Millis(1000), mint_id=lambda: next(minted)
    )


def wanted(index: int, topic: str = "t") -> Wanted:
    return Wanted(topic, WantedPartition(index, -1, 0, -1, -1, 1))


def open_session(cache: FetchSessions, now: int, *indexes: int) -> int:
    asked = cache.ask(0, 0, [wanted(index) for index in indexes], (), by_id=False, now=Millis(now))
    return 0 if asked.session is None else asked.session.session_id


def test_a_full_cache_gives_up_its_idle_session_and_no_other() -> None:
    cache = sessions()
    first, second = open_session(cache, 0, 1), open_session(cache, 500, 1)
    assert open_session(cache, 900, 1) == 0
    cache.ask(first, 1, [], (), by_id=False, now=Millis(1000))
    assert open_session(cache, 1499, 1) == 0
    third = open_session(cache, 1500, 1)
    assert third > second
    with pytest.raises(Refused):
        cache.ask(second, 1, [], (), by_id=False, now=Millis(1500))
    cache.ask(first, 2, [], (), by_id=False, now=Millis(1500))
    assert len(cache) == 2


def test_a_partition_that_gave_records_is_served_last() -> None:
    cache = sessions()
    session_id = open_session(cache, 0, 1, 2, 3)
    asked = cache.ask(session_id, 1, [], (), by_id=False, now=Millis(0))
    assert asked.session is not None
    asked.session.serve_last(asked.wanted[0])
    again = cache.ask(session_id, 2, [], (), by_id=False, now=Millis(0))
    assert [row.index for row in again.wanted] == [2, 3, 1]


def test_an_epoch_after_the_last_is_1() -> None:
    cache = sessions()
    session_id = open_session(cache, 0, 1)
    asked = cache.ask(session_id, 1, [], (), by_id=False, now=Millis(0))
    assert asked.session is not None
    asked.session.epoch = 2**31 - 1
    cache.ask(session_id, 2**31 - 1, [], (), by_id=False, now=Millis(0))
    cache.ask(session_id, 1, [], (), by_id=False, now=Millis(0))


def test_names_and_ids_cannot_be_mixed_in_one_session() -> None:
    cache = sessions()
    session_id = open_session(cache, 0, 1)
    with pytest.raises(Refused):
        cache.ask(session_id, 1, [], (), by_id=True, now=Millis(0))
