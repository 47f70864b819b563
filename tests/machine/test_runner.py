"""The runner's promises: nothing leaves before it is committed; a failed log stops everything."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from penstock.errors import ErrorCode, Refused
from penstock.machine import (
    NOT_YET,
    CallerId,
    JournalRecord,
    Outcome,
    Reply,
    Runner,
    TransactionStamp,
)
from penstock.model import Millis, Moment, Offset

CALLER = CallerId(1)
NOW = Moment(Millis(1_000), Millis(0))


@dataclass
class Counts:
    """How often each word was said; `spoken` is soft and forgotten by a restart."""

    said: dict[str, int] = field(default_factory=dict)
    bell_at: Millis | None = None


@dataclass(frozen=True)
class Said:
    word: str
    times: int


@dataclass(frozen=True)
class BellSet:
    at: Millis | None


Event = Said | BellSet


@dataclass(frozen=True)
class Say:
    word: str
    caller: CallerId = CALLER


class Words:
    """A machine small enough to see through."""

    def fresh(self) -> Counts:
        return Counts()

    def decide(self, state: Counts, command: Say, now: Moment) -> Outcome[Event]:
        if command.word == "rude":
            raise Refused(ErrorCode.invalid_request, "not here")
        if command.word == "how many":
            return Outcome(replies=(Reply(command.caller, dict(state.said)),))
        if command.word == "bell":
            return Outcome(notes=(BellSet(Millis(now.steady + 10)),))
        event = Said(command.word, state.said.get(command.word, 0) + 1)
        return Outcome(
            events=(event,), replies=(Reply(command.caller, event.times),), sends=(command.word,)
        )

    def apply(self, state: Counts, event: Event) -> None:
        if isinstance(event, Said):
            state.said[event.word] = event.times
        else:
            state.bell_at = event.at

    def wake_at(self, state: Counts) -> Millis | None:
        return state.bell_at

    def tick(self, state: Counts, now: Moment) -> Outcome[Event]:
        return Outcome(events=(Said("ding", 1),), notes=(BellSet(None),))

    def write_event(self, event: Event) -> JournalRecord:
        assert isinstance(event, Said)
        return JournalRecord(event.word.encode(), str(event.times).encode())

    def read_events(self, record: JournalRecord, stamp: TransactionStamp | None) -> Sequence[Event]:
        assert record.value is not None
        return (Said(record.key.decode(), int(record.value)),)


class Memory:
    """A journal in memory that commits when told to."""

    def __init__(self) -> None:
        self.records: list[JournalRecord] = []
        self.committed_offset = Offset(0)
        self.full = False

    @property
    def end_offset(self) -> Offset:
        return Offset(len(self.records))

    def append(
        self,
        records: Sequence[JournalRecord],
        now: Millis,
        stamp: TransactionStamp | None = None,
    ) -> Offset:
        if self.full:
            raise OSError("no space left on device")
        self.records += records
        return self.end_offset

    def commit(self) -> None:
        self.committed_offset = self.end_offset


@dataclass
class Desk:
    """A runner with everything it said."""

    journal: Memory
    runner: Runner[Counts, Say, Event]
    answers: list[object]
    sent: list[object]

    def say(self, word: str) -> None:
        """Submit a command; its reply is among the answers, now or later."""
        reply = self.runner.submit(Say(word), CALLER, NOW)
        if reply is not NOT_YET:
            self.answers.append(reply)


@pytest.fixture
def desk() -> Desk:
    return open_desk(Memory())


def open_desk(journal: Memory) -> Desk:
    answers: list[object] = []
    sent: list[object] = []
    runner = Runner[Counts, Say, Event](
        Words(), journal, answer=lambda _, body: answers.append(body), send=sent.append
    )
    return Desk(journal, runner, answers, sent)


def test_a_reply_waits_until_its_events_are_committed(desk: Desk) -> None:
    desk.say("hello")
    assert (desk.answers, desk.sent) == ([], [])
    desk.journal.commit()
    desk.runner.on_committed()
    assert (desk.answers, desk.sent) == ([1], ["hello"])


def test_a_read_waits_for_what_it_saw(desk: Desk) -> None:
    desk.say("hello")
    desk.say("how many")
    assert desk.answers == []
    desk.journal.commit()
    desk.runner.on_committed()
    assert desk.answers == [1, {"hello": 1}]


def test_a_refusal_keeps_its_place_among_the_replies(desk: Desk) -> None:
    desk.say("hello")
    desk.say("rude")
    assert desk.answers == []
    desk.journal.commit()
    desk.runner.on_committed()
    assert desk.answers[0] == 1
    assert isinstance(desk.answers[1], Refused)


def test_replay_gives_the_same_state_even_when_records_come_twice(desk: Desk) -> None:
    for word in ("a", "b", "a"):
        desk.say(word)
    again = open_desk(desk.journal)
    stored: list[tuple[JournalRecord, None]] = [(r, None) for r in desk.journal.records]
    again.runner.replay(stored)
    again.runner.replay(stored[1:])
    assert again.runner.state.said == desk.runner.state.said == {"a": 2, "b": 1}


def test_notes_change_the_state_and_never_reach_the_log(desk: Desk) -> None:
    desk.say("bell")
    assert desk.runner.wake_at() == NOW.steady + 10
    assert desk.journal.records == []


def test_a_tick_before_its_time_does_nothing(desk: Desk) -> None:
    desk.say("bell")
    desk.runner.tick(NOW._replace(steady=Millis(NOW.steady + 9)))
    assert desk.journal.records == []
    desk.runner.tick(NOW._replace(steady=Millis(NOW.steady + 10)))
    assert desk.runner.state.said == {"ding": 1}


def test_a_log_that_cannot_be_written_refuses_this_caller_and_all_who_wait(desk: Desk) -> None:
    desk.say("hello")
    desk.journal.full = True
    desk.say("world")
    desk.say("again")
    assert [type(answer) for answer in desk.answers] == [Refused] * 3
    assert desk.runner.failed
    assert desk.runner.state.said == {"hello": 1}, "what failed was never applied"
    assert desk.sent == []


def test_who_asks_has_the_reply_at_once_when_nothing_has_to_be_waited_for(desk: Desk) -> None:
    assert desk.runner.submit(Say("how many"), CALLER, NOW) == {}
    assert isinstance(desk.runner.submit(Say("rude"), CALLER, NOW), Refused)
    assert desk.answers == []


def test_who_asks_waits_for_its_events_and_for_those_of_others(desk: Desk) -> None:
    assert desk.runner.submit(Say("hello"), CALLER, NOW) is NOT_YET
    assert desk.runner.submit(Say("how many"), CALLER, NOW) is NOT_YET
    desk.journal.commit()
    desk.runner.on_committed()
    assert desk.answers == [1, {"hello": 1}]


def test_who_asks_is_refused_at_once_by_a_log_that_cannot_be_written(desk: Desk) -> None:
    assert desk.runner.submit(Say("hello"), CALLER, NOW) is NOT_YET
    desk.journal.full = True
    assert isinstance(desk.runner.submit(Say("world"), CALLER, NOW), Refused)
    assert isinstance(desk.runner.submit(Say("how many"), CALLER, NOW), Refused)
    assert [type(answer) for answer in desk.answers] == [Refused], "the one that waited"
