"""The checker accepts what may happen and names what may not."""

from pathlib import Path

import pytest

from tests.support.history import (
    Changed,
    Committed,
    Fetched,
    History,
    Outcome,
    Owned,
    Produced,
    Read,
    Seen,
    Transaction,
    check,
)

ACKNOWLEDGED, REFUSED, UNKNOWN = Outcome.ACKNOWLEDGED, Outcome.REFUSED, Outcome.UNKNOWN


def sent(
    value: str, outcome: Outcome = ACKNOWLEDGED, offset: int = -1, transaction: str | None = None
) -> Produced:
    return Produced("p", "t", 0, value, outcome, offset, transaction)


def read(value: str, offset: int, reader: str = "r") -> Read:
    return Read(reader, "t", 0, offset, value)


def commit(offset: int, outcome: Outcome = ACKNOWLEDGED) -> Committed:
    return Committed("g", 1, "m", "t", 0, offset, outcome)


FINE = {
    "acknowledged and read": [sent("a", offset=0), read("a", 0)],
    "unknown and read": [sent("a", UNKNOWN), read("a", 0)],
    "unknown and not read": [sent("a", UNKNOWN)],
    "refused and not read": [sent("a", REFUSED)],
    "two readers agree": [sent("a", offset=3), read("a", 3, "x"), read("a", 3, "y")],
    "aborted and not read": [
        sent("a", offset=0, transaction="x"),
        Transaction("x", False, ACKNOWLEDGED),
    ],
    "commit unknown, all read": [
        sent("a", offset=0, transaction="x"),
        sent("b", offset=1, transaction="x"),
        Transaction("x", True, UNKNOWN),
        read("a", 0),
        read("b", 1),
    ],
    "commit unknown, none read": [
        sent("a", offset=0, transaction="x"),
        Transaction("x", True, UNKNOWN),
    ],
    "an unknown commit of an offset counts or does not": [
        commit(5),
        commit(9, UNKNOWN),
        Fetched("g", 2, "n", "t", 0, 9),
        Fetched("g", 3, "n", "t", 0, 5),
    ],
    "the last acknowledged change stays": [
        Changed("k", "1", ACKNOWLEDGED),
        Changed("k", "2", ACKNOWLEDGED),
        Changed("k", "3", REFUSED),
        Seen("k", "2"),
    ],
    "an unknown change takes effect late": [
        Changed("k", "1", UNKNOWN),
        Changed("k", "2", ACKNOWLEDGED),
        Seen("k", "1"),
    ],
    "another generation, another owner": [
        Owned("g", 1, "m", "t", 0),
        Owned("g", 2, "n", "t", 0),
    ],
}

BROKEN = {
    "is lost": [sent("a", offset=0)],
    "is at": [sent("a", offset=0), read("a", 1)],
    "was refused, and was read": [sent("a", REFUSED), read("a", 0)],
    "no client sent it": [read("a", 0)],
    "was read as": [sent("a"), sent("b"), read("a", 0, "x"), read("b", 0, "y")],
    "at offsets": [sent("a", UNKNOWN), read("a", 0), read("a", 5)],
    "at a lower offset": [sent("a", offset=5), sent("b", offset=3), read("a", 5), read("b", 3)],
    "of the aborted transaction": [
        sent("a", offset=0, transaction="x"),
        Transaction("x", False, ACKNOWLEDGED),
        read("a", 0),
    ],
    "1 of 2 records were read": [
        sent("a", offset=0, transaction="x"),
        sent("b", offset=1, transaction="x"),
        Transaction("x", True, UNKNOWN),
        read("a", 0),
    ],
    "and n fetched": [commit(5), Fetched("g", 2, "n", "t", 0, 4)],
    "k was changed to '2', and is '1'": [
        Changed("k", "1", ACKNOWLEDGED),
        Changed("k", "2", ACKNOWLEDGED),
        Seen("k", "1"),
    ],
    "was assigned to m and to n": [Owned("g", 1, "m", "t", 0), Owned("g", 1, "n", "t", 0)],
}


@pytest.mark.parametrize("name", FINE)
def test_what_may_happen_is_accepted(name: str) -> None:
    assert check(History(FINE[name])) == []  # type: ignore[arg-type]  # lists of several kinds


@pytest.mark.parametrize("sentence", BROKEN)
def test_what_may_not_happen_is_named(sentence: str) -> None:
    broken = check(History(BROKEN[sentence]))  # type: ignore[arg-type]  # lists of several kinds
    assert any(sentence in line for line in broken), broken


def test_nothing_is_concluded_from_incomplete_reads() -> None:
    assert check(History([sent("a", offset=0)]), reads_are_complete=False) == []


def test_a_history_is_the_same_after_it_was_saved(tmp_path: Path) -> None:
    history = History([sent("a", offset=0), Transaction("x", True, UNKNOWN), read("a", 0)])
    history.save(tmp_path / "history.jsonl")
    assert History.load(tmp_path / "history.jsonl") == history
