"""The cache that loads each key once, with a clock of its own."""

import threading
from collections.abc import Callable

import pytest

from penstock.client.single_flight import SingleFlight


class Clock:
    """Advances only when it is set."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class UnknownError(Exception):
    """Will not change soon."""


class DownError(Exception):
    """Will pass."""


def raising(error: Exception) -> Callable[[], str]:
    def load() -> str:
        raise error

    return load


def cache(clock: Clock, weight_max: int = 10, value_s: float = 60) -> SingleFlight[str, str]:
    return SingleFlight(
        weight_max,
        len,
        clock,
        value_s=value_s,
        lasting=(UnknownError,),
        passing=(DownError,),
        failure_s=5,
    )


def test_many_threads_load_once() -> None:
    cached = cache(Clock())
    started, go = threading.Barrier(17), threading.Event()
    values: list[str] = []

    def load() -> str:
        go.wait(20)
        return "value"

    def look_up() -> None:
        started.wait(20)
        values.append(cached.find("key", load))

    threads = [threading.Thread(target=look_up) for _ in range(16)]
    for thread in threads:
        thread.start()
    started.wait(20)
    while cached.stats.loads + cached.stats.waits < 16:  # all are inside
        go.wait(0.001)
    go.set()
    for thread in threads:
        thread.join()
    assert values == ["value"] * 16
    assert (cached.stats.loads, cached.stats.waits, cached.stats.hits) == (1, 15, 0)
    assert cached.stats.hit_ratio == 15 / 16


def test_a_failure_is_not_cached() -> None:
    cached = cache(Clock())
    with pytest.raises(DownError):
        cached.find("key", raising(DownError()))
    assert cached.find("key", lambda: "better") == "better"


def test_a_lasting_failure_is_cached_for_a_while() -> None:
    clock = Clock()
    cached = cache(clock)
    with pytest.raises(UnknownError):
        cached.find("key", raising(UnknownError()))
    with pytest.raises(UnknownError):
        cached.find("key", lambda: "registered now")
    assert cached.stats.loads == 1
    clock.now_s = 5
    assert cached.find("key", lambda: "registered now") == "registered now"


def test_an_expired_value_is_used_while_loading_fails() -> None:
    clock = Clock()
    cached = cache(clock)
    cached.find("key", lambda: "old")
    clock.now_s = 60
    assert cached.find("key", raising(DownError())) == "old"
    assert cached.find("key", lambda: "new") == "old"  # not loaded again immediately
    clock.now_s = 65
    assert cached.find("key", lambda: "new") == "new"


def test_the_least_recently_used_value_is_evicted() -> None:
    cached = cache(Clock(), weight_max=6)
    for key in ("a", "b"):
        cached.find(key, lambda: "xyz")
    cached.find("a", raising(DownError()))
    cached.find("c", lambda: "xyz")
    assert len(cached) == 2
    assert cached.find("a", raising(DownError())) == "xyz"
    with pytest.raises(DownError):
        cached.find("b", raising(DownError()))


def test_a_value_that_is_too_heavy_is_returned_and_not_cached() -> None:
    cached = cache(Clock(), weight_max=3)
    assert cached.find("key", lambda: "heavy") == "heavy"
    assert len(cached) == 0
