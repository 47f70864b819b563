"""The runtime of every stateful service: a pure machine over a log. See `outcome` and `runner`."""

from penstock.machine.deferred import Deferred
from penstock.machine.journal import Journal, JournalRecord, TransactionStamp
from penstock.machine.outcome import CallerId, Machine, Outcome, Reply
from penstock.machine.runner import NOT_YET, Runner

__all__ = [
    "NOT_YET",
    "CallerId",
    "Deferred",
    "Journal",
    "JournalRecord",
    "Machine",
    "Outcome",
    "Reply",
    "Runner",
    "TransactionStamp",
]
