"""The runner's promises: nothing leaves before it is committed; a refused write has no effect."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from penstock.errors import ErrorCode, Refused
from penstock.machine import (
    Applies,
    CallerId,
    Deferred,
    JournalRecord,
    Outcome,
    Phase,
    Reply,
    Runner,
    Step,
    Story,
    TransactionMark,
)
from penstock.machine.runner import COMMIT_WAIT_MS, RETRY_MAX_MS, RETRY_MIN_MS
from penstock.model import Millis, Moment, Offset
from tests.support.memory_journal import MemoryJournal

NOW = Moment(Millis(1_000), Millis(0))


@dataclass
class Counts:
    """How often each word was said; `bell_at` is soft."""

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
    caller: CallerId
    word: str


class Words:
    """A small machine. `rude` is refused, `park` gets no reply, `bell` sets a timer."""

    def fresh(self) -> Counts:
        return Counts()

    def decide(self, state: Counts, command: Say, now: Moment) -> Outcome[Event]:
        if command.word == "rude":
            raise Refused(ErrorCode.invalid_request, "not here")
        if command.word == "how many":
            return Outcome(replies=(Reply(command.caller, dict(state.said)),))
        if command.word == "bell":
            return Outcome(notes=(BellSet(Millis(now.steady + 10)),))
        if command.word == "park":
            return Outcome()
        event = Said(command.word, state.said.get(command.word, 0) + 1)
        return Outcome(
            events=(event,),
            replies=(Reply(command.caller, event.times),),
            sends=(command.word,),
            story=(Step(command.word, "said for the {}. time", (event.times,)),),
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

    def validate(self, state: Counts) -> None:
        assert all(times > 0 for times in state.said.values())

    def write_event(self, event: Event) -> JournalRecord:
        assert isinstance(event, Said)
        return JournalRecord(event.word.encode(), str(event.times).encode())

    def read_events(self, record: JournalRecord, mark: TransactionMark | None) -> Sequence[Event]:
        assert record.value is not None
        return (Said(record.key.decode(), int(record.value)),)


class Scenario:
    """A runner over a journal in memory, with everything it replied and sent."""

    def __init__(self, journal: MemoryJournal, *, loads: bool = True) -> None:
        self.journal = journal
        self.replies: list[object] = []
        self.sent: list[object] = []
        self.committed: list[Event] = []
        self.runner = Runner[Counts, Say, Event](
            Words(), send=self.sent.append, on_events=self.committed.extend
        )
        if loads:
            self.runner.replay(record for record, _ in journal.records)
            self.runner.start(journal)

    def say(self, word: str, now: Moment = NOW) -> object:
        """Submit a command; its reply is among the replies, now or later."""
        reply = self.runner.submit(lambda caller: Say(caller, word), now)
        if isinstance(reply, Deferred):
            reply.listen(self.replies.append)
        else:
            self.replies.append(reply)
        return reply

    def codes(self) -> list[ErrorCode]:
        assert all(isinstance(reply, Refused) for reply in self.replies)
        return [reply.code for reply in self.replies if isinstance(reply, Refused)]


@pytest.fixture
def slow() -> Scenario:
    """Over a journal that commits on request."""
    return Scenario(MemoryJournal(commits_on_append=False))


@pytest.fixture
def quick() -> Scenario:
    """Over a journal that commits at once."""
    return Scenario(MemoryJournal())


def later(ms: int) -> Moment:
    return NOW._replace(steady=Millis(NOW.steady + ms))


def test_a_reply_waits_until_its_events_are_committed(slow: Scenario) -> None:
    slow.say("hello")
    assert (slow.replies, slow.sent) == ([], [])
    slow.journal.commit()
    assert (slow.replies, slow.sent) == ([1], ["hello"])


def test_a_read_waits_for_the_events_that_it_saw(slow: Scenario) -> None:
    slow.say("hello")
    slow.say("how many")
    assert slow.replies == []
    slow.journal.commit()
    assert slow.replies == [1, {"hello": 1}]


def test_a_read_waits_for_events_that_have_no_reply_of_their_own(slow: Scenario) -> None:
    slow.say("bell")
    slow.runner.tick(later(10))
    slow.say("how many", later(10))
    assert slow.replies == []
    slow.journal.commit()
    assert slow.replies == [{"ding": 1}]


def test_a_read_waits_for_what_was_loaded_and_is_not_committed() -> None:
    journal = MemoryJournal(commits_on_append=False)
    journal.append([JournalRecord(b"hello", b"1")], NOW.wall)
    scenario = Scenario(journal)
    scenario.say("how many")
    assert scenario.replies == []
    journal.commit()
    assert scenario.replies == [{"hello": 1}]


def test_a_refusal_keeps_its_place_among_the_replies(slow: Scenario) -> None:
    slow.say("hello")
    slow.say("rude")
    assert slow.replies == []
    slow.journal.commit()
    assert slow.replies[0] == 1
    assert isinstance(slow.replies[1], Refused)


def test_a_reply_comes_at_once_when_everything_is_committed(quick: Scenario) -> None:
    assert quick.say("hello") == 1
    assert quick.say("how many") == {"hello": 1}
    assert isinstance(quick.say("rude"), Refused)
    assert quick.sent == ["hello"]


def test_events_are_handed_on_once_committed_and_in_order(slow: Scenario) -> None:
    slow.say("hello")
    slow.say("world")
    assert slow.committed == []
    slow.journal.commit()
    assert slow.committed == [Said("hello", 1), Said("world", 1)]


def test_replay_gives_the_same_state_even_when_records_come_twice(quick: Scenario) -> None:
    for word in ("a", "b", "a"):
        quick.say(word)
    again = Scenario(quick.journal, loads=False)
    records = [record for record, _ in quick.journal.records]
    again.runner.replay(records)
    again.runner.replay(records[1:])
    assert again.runner.state.said == quick.runner.state.said == {"a": 2, "b": 1}


def test_notes_change_the_state_and_never_reach_the_log(quick: Scenario) -> None:
    quick.say("bell")
    assert quick.runner.wake_at() == NOW.steady + 10
    assert quick.journal.records == []


def test_a_tick_before_its_time_does_nothing(quick: Scenario) -> None:
    quick.say("bell")
    quick.runner.tick(later(9))
    assert quick.journal.records == []
    quick.runner.tick(later(10))
    assert quick.runner.state.said == {"ding": 1}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError("no space left on device"), ErrorCode.coordinator_not_available),
        (Refused(ErrorCode.not_coordinator, "moved"), ErrorCode.not_coordinator),
    ],
)
def test_a_write_that_the_journal_refuses_has_no_effect(
    quick: Scenario, error: Exception, code: ErrorCode
) -> None:
    quick.say("hello")
    quick.replies.clear()
    quick.journal.failure = lambda: error
    quick.say("world")
    assert quick.codes() == [code]
    assert quick.runner.state.said == {"hello": 1}
    assert quick.sent == ["hello"]
    assert quick.runner.writes_refused == 1
    assert quick.runner.story.of("world") == []
    assert quick.say("how many") == {"hello": 1}
    quick.journal.failure = lambda: None
    assert quick.say("world") == 1


def test_a_refused_tick_is_tried_again_with_a_delay_that_doubles_up_to_a_limit(
    quick: Scenario,
) -> None:
    quick.say("bell")
    quick.journal.failure = lambda: Refused(ErrorCode.coordinator_not_available, "too few in sync")
    now, delays = later(10), []
    for _ in range(8):
        quick.runner.tick(now)
        wake_at = quick.runner.wake_at()
        assert wake_at is not None
        delays.append(wake_at - now.steady)
        now = now._replace(steady=wake_at)
    assert delays[:3] == [RETRY_MIN_MS, 2 * RETRY_MIN_MS, 4 * RETRY_MIN_MS]
    assert delays[-1] == RETRY_MAX_MS
    quick.journal.failure = lambda: None
    quick.runner.tick(now)
    assert quick.runner.state.said == {"ding": 1}
    assert quick.runner.wake_at() is None


def test_a_reply_that_is_not_committed_in_time_becomes_an_error(slow: Scenario) -> None:
    slow.say("hello")
    slow.say("world", later(1))
    assert slow.runner.wake_at() == NOW.steady + COMMIT_WAIT_MS
    slow.runner.tick(later(COMMIT_WAIT_MS))
    assert slow.codes() == [ErrorCode.coordinator_not_available]
    assert slow.runner.wake_at() == NOW.steady + COMMIT_WAIT_MS + 1
    slow.journal.commit()
    assert slow.replies[1:] == [1]
    assert slow.sent == ["hello", "world"], "what it sends follows when it is committed"
    assert slow.runner.wake_at() is None


def test_requests_to_a_journal_that_commits_nothing_do_not_accumulate(slow: Scenario) -> None:
    slow.say("hello")
    for number in range(100):
        slow.say("how many", later(number * COMMIT_WAIT_MS))
        slow.runner.tick(later(number * COMMIT_WAIT_MS))
    assert len(slow.journal.waiting) == 1
    slow.journal.give_up(Refused(ErrorCode.not_coordinator, "another leader"))
    slow.say("how many")
    assert len(slow.journal.waiting) == 1, "it waits again"
    slow.journal.commit()
    assert slow.replies[-1] == {"hello": 1}


def test_a_parked_caller_waits_for_as_long_as_the_machine_wants(quick: Scenario) -> None:
    quick.say("park")
    quick.runner.tick(later(10 * COMMIT_WAIT_MS))
    assert quick.replies == []


def test_what_will_never_be_committed_is_refused(slow: Scenario) -> None:
    slow.say("hello")
    slow.journal.give_up(Refused(ErrorCode.not_coordinator, "another leader"))
    assert slow.codes() == [ErrorCode.not_coordinator]
    assert slow.sent == []


def test_a_runner_that_loads_refuses_commands() -> None:
    scenario = Scenario(MemoryJournal(), loads=False)
    scenario.say("hello")
    assert scenario.codes() == [ErrorCode.coordinator_load_in_progress]
    assert scenario.runner.wake_at() is None


def test_a_runner_that_resigns_refuses_all_callers_and_drops_its_state(slow: Scenario) -> None:
    slow.say("park")
    slow.say("hello")
    slow.runner.resign(Refused(ErrorCode.not_coordinator, "moved"))
    slow.say("world")
    assert slow.codes() == [ErrorCode.not_coordinator] * 3
    slow.journal.commit()
    assert (slow.sent, slow.committed, slow.runner.state.said) == ([], [], {})
    assert slow.runner.phase is Phase.RESIGNED
    assert slow.runner.wake_at() is None


def test_a_cancelled_caller_gets_no_reply(slow: Scenario) -> None:
    reply = slow.say("hello")
    assert isinstance(reply, Deferred)
    reply.cancel()
    slow.journal.commit()
    assert slow.replies == []
    assert slow.sent == ["hello"]


def test_the_story_of_a_key_says_what_happened_and_when(quick: Scenario) -> None:
    for word in ("a", "b", "a"):
        quick.say(word)
    assert quick.runner.story.of("a") == [(0, "said for the 1. time"), (0, "said for the 2. time")]
    assert quick.runner.story.of("c") == []


def test_a_step_that_is_logged_comes_with_the_steps_before_it() -> None:
    lines: list[str] = []
    story = Story(lines.append)
    for number in range(5):
        story.add([Step("a", "member {} joins", (number,))], Millis(1_000 * number))
    story.add([Step("b", "is stable")], Millis(9_000))
    assert not lines
    removals = [Step("a", "member {} is removed", (number,), is_logged=True) for number in (0, 1)]
    story.add([*removals, Step("a", "is empty")], Millis(9_500))
    assert lines == [
        "a: member 1 is removed; 0.0 s before: member 0 is removed; 5.5 s before: member 4 joins; "
        "6.5 s before: member 3 joins"
    ]
    story.add([Step("c\nfake: line", "is removed", (), is_logged=True)], Millis(0))
    assert lines[1] == r"c\nfake: line: is removed"


class SharedMemory:
    """A journal that others may write too; a write ends when the test says so."""

    def __init__(self) -> None:
        self.records: list[JournalRecord] = []
        self.writing: Deferred[Offset] = Deferred()

    @property
    def applies(self) -> Applies:
        return Applies.ON_READ_BACK

    def append(
        self, records: Sequence[JournalRecord], now: Millis, mark: TransactionMark | None = None
    ) -> Deferred[Offset]:
        self.records += records
        self.writing = Deferred()
        return self.writing


class SharedScenario:
    """A runner over a shared journal."""

    def __init__(self) -> None:
        self.journal = SharedMemory()
        self.replies: list[object] = []
        self.runner = Runner[Counts, Say, Event](Words())
        self.runner.start(self.journal)  # type: ignore[arg-type]  # mypy wants the literal

    def say(self, word: str) -> None:
        reply = self.runner.submit(lambda caller: Say(caller, word), NOW)
        if isinstance(reply, Deferred):
            reply.listen(self.replies.append)
        else:
            self.replies.append(reply)

    def read_back(self, *events: Event) -> None:
        """The records of the last write, or of another writer, were read."""
        self.runner.on_read_back(events)
        self.journal.writing.resolve(Offset(len(self.journal.records)))


def test_over_a_shared_journal_the_state_is_what_was_read_back() -> None:
    scenario = SharedScenario()
    scenario.say("hello")
    assert (scenario.runner.state.said, scenario.replies) == ({}, [])
    scenario.read_back(Said("world", 3), Said("hello", 1))
    assert scenario.runner.state.said == {"world": 3, "hello": 1}
    assert scenario.replies == [1]


def test_over_a_shared_journal_a_command_is_decided_when_the_write_before_it_was_applied() -> None:
    scenario = SharedScenario()
    for word in ("hello", "hello", "how many", "rude"):
        scenario.say(word)
    assert len(scenario.journal.records) == 1
    scenario.read_back(Said("hello", 1))
    assert (scenario.replies, len(scenario.journal.records)) == ([1], 2)
    scenario.read_back(Said("hello", 2))
    assert scenario.replies[:3] == [1, 2, {"hello": 2}]
    assert isinstance(scenario.replies[3], Refused)


def test_a_write_of_unknown_outcome_ends_the_claim_and_the_state_is_kept() -> None:
    scenario = SharedScenario()
    scenario.say("hello")
    scenario.say("world")
    scenario.runner.on_read_back((Said("other", 1),))
    unknown = TimeoutError("no response")
    scenario.journal.writing.resolve(unknown)
    assert scenario.replies[0] is unknown
    assert scenario.runner.phase is Phase.RESIGNED
    scenario.say("again")
    assert [type(reply) for reply in scenario.replies[1:]] == [Refused, Refused]
    assert scenario.runner.state.said == {"other": 1}


def test_a_query_reads_the_state_in_any_phase() -> None:
    runner = Runner[Counts, Say, Event](Words())
    runner.on_read_back((Said("hello", 1),))
    assert runner.query(Say(CallerId(0), "how many"), NOW) == {"hello": 1}
