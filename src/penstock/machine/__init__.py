"""The runtime of every stateful service: a pure machine over a log. See `outcome` and `runner`."""

from penstock.machine.deferred import Deferred
from penstock.machine.journal import (
    Applies,
    Journal,
    JournalRecord,
    OnCommitted,
    OwnJournal,
    SharedJournal,
    TransactionMark,
)
from penstock.machine.outcome import NO_CALLER, CallerId, Machine, Outcome, Reply
from penstock.machine.runner import Phase, Runner
from penstock.machine.story import Step, Story
from penstock.machine.transitions import Move, Transitions

__all__ = [
    "NO_CALLER",
    "Applies",
    "CallerId",
    "Deferred",
    "Journal",
    "JournalRecord",
    "Machine",
    "Move",
    "OnCommitted",
    "Outcome",
    "OwnJournal",
    "Phase",
    "Reply",
    "Runner",
    "SharedJournal",
    "Step",
    "Story",
    "TransactionMark",
    "Transitions",
]
