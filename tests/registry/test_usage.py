"""Who uses what: bounded, and honest about what was forgotten."""

from penstock.model import Millis
from penstock.registry.usage import CONSUMER, Usage, Use, identify


def use(id: int, client: str = "c") -> Use:
    return Use(".", id, client, CONSUMER)


def test_the_latest_use_comes_first_with_its_count() -> None:
    usage = Usage(Millis(0))
    for at, id in enumerate((1, 2, 1)):
        usage.note(use(id), Millis(at))
    found = usage.of(".", frozenset({1, 2}))
    assert [(one.id, seen.last_at, seen.times) for one, seen in found] == [(1, 2, 2), (2, 1, 1)]
    assert usage.of(".eu", frozenset({1})) == []


def test_the_oldest_is_forgotten_and_that_is_noted() -> None:
    usage = Usage(Millis(0), uses_max=2)
    for id in (1, 2, 3):
        usage.note(use(id), Millis(id))
    assert usage.of(".", frozenset({1})) == []
    assert usage.forgotten == 1


def test_a_client_is_known_by_its_word_or_by_its_agent() -> None:
    assert identify("till; role=producer", "x", CONSUMER) == ("till", "producer")
    assert identify("till;role=king", "x", CONSUMER) == ("till", "consumer")
    assert identify("", "agent/1", CONSUMER) == ("agent/1", "consumer")
    assert identify("", "", CONSUMER) == ("unknown", "consumer")
    assert len(identify("n" * 1000, "", CONSUMER)[0]) == 200
