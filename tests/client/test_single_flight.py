"""The cache that asks once, with a clock of its own."""

import threading
from collections.abc import Callable

import pytest

from penstock.client.single_flight import SingleFlight


class Clock:
    """Stands still until told otherwise."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Gone(Exception):
    """Will not change soon."""


class Down(Exception):
    """Will pass."""


def raising(error: Exception) -> Callable[[], str]:
    def ask() -> str:
        raise error

    return ask


def cache(clock: Clock, weight_max: int = 10, answer_s: float = 60) -> SingleFlight[str, str]:
    return SingleFlight(
        weight_max, len, clock, answer_s=answer_s, lasting=(Gone,), passing=(Down,), refusal_s=5
    )


def test_many_threads_ask_once() -> None:
    known = cache(Clock())
    started, go = threading.Barrier(17), threading.Event()
    answers: list[str] = []

    def ask() -> str:
        go.wait(20)
        return "answer"

    def want() -> None:
        started.wait(20)
        answers.append(known.find("key", ask))

    threads = [threading.Thread(target=want) for _ in range(16)]
    for thread in threads:
        thread.start()
    started.wait(20)
    while known.stats.asked + known.stats.waited < 16:  # all are inside
        go.wait(0.001)
    go.set()
    for thread in threads:
        thread.join()
    assert answers == ["answer"] * 16
    assert (known.stats.asked, known.stats.waited, known.stats.hits) == (1, 15, 0)
    assert known.stats.hit_ratio == 15 / 16


def test_a_failure_reaches_all_who_wait_and_is_forgotten() -> None:
    known = cache(Clock())
    with pytest.raises(Down):
        known.find("key", raising(Down()))
    assert known.find("key", lambda: "better") == "better"


def test_what_will_not_change_soon_is_not_asked_again_for_a_while() -> None:
    clock = Clock()
    known = cache(clock)
    with pytest.raises(Gone):
        known.find("key", raising(Gone()))
    with pytest.raises(Gone):
        known.find("key", lambda: "there by now")
    assert known.stats.asked == 1
    clock.now_s = 5
    assert known.find("key", lambda: "there by now") == "there by now"


def test_an_old_answer_serves_while_nobody_can_be_asked() -> None:
    clock = Clock()
    known = cache(clock)
    known.find("key", lambda: "old")
    clock.now_s = 60
    assert known.find("key", raising(Down())) == "old"
    assert known.find("key", lambda: "new") == "old"  # not asked again at once
    clock.now_s = 65
    assert known.find("key", lambda: "new") == "new"


def test_what_was_not_used_for_longest_is_dropped() -> None:
    known = cache(Clock(), weight_max=6)
    for key in ("a", "b"):
        known.find(key, lambda: "xyz")
    known.find("a", raising(Down()))
    known.find("c", lambda: "xyz")
    assert len(known) == 2
    assert known.find("a", raising(Down())) == "xyz"
    with pytest.raises(Down):
        known.find("b", raising(Down()))


def test_an_answer_that_is_too_heavy_is_told_and_not_kept() -> None:
    known = cache(Clock(), weight_max=3)
    assert known.find("key", lambda: "heavy") == "heavy"
    assert len(known) == 0
