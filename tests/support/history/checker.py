"""The rules that every history must keep, whatever was killed, paused or cut meanwhile.

Each rule returns the sentences that say what broke it; an empty list means that it holds.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from tests.support.history.record import (
    UNKNOWN_OFFSET,
    Changed,
    Committed,
    Fetched,
    Outcome,
    Owned,
    Produced,
    Read,
    Seen,
    Transaction,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.history.record import History

Partition = tuple[str, int]


def check(history: History, *, reads_are_complete: bool = True) -> list[str]:
    """Everything that is wrong with a history.

    `reads_are_complete`: each reader read to the end after everything had settled. Without it,
    nothing is concluded from what was not read.
    """
    broken = [
        *_one_record_per_offset(history),
        *_nothing_is_read_twice(history),
        *_only_what_was_sent_is_read(history),
        *_acknowledged_is_at_its_offset(history, reads_are_complete=reads_are_complete),
        *_producers_keep_their_order(history),
        *_transactions_are_whole(history, reads_are_complete=reads_are_complete),
        *_commits_never_go_back(history),
        *_one_owner_per_generation(history),
        *_acknowledged_changes_stay(history),
    ]
    return broken[:20]


def _one_record_per_offset(history: History) -> Iterator[str]:
    seen: dict[tuple[str, int, int], str] = {}
    for read in history.of(Read):
        key = read.topic, read.partition, read.offset
        if seen.setdefault(key, read.value) != read.value:
            yield (
                f"{read.topic}-{read.partition} offset {read.offset} was read as {seen[key]} and"
                f" as {read.value}"
            )


def _nothing_is_read_twice(history: History) -> Iterator[str]:
    seen: dict[tuple[str, str], int] = {}
    for read in history.of(Read):
        offset = seen.setdefault((read.reader, read.value), read.offset)
        if offset != read.offset:
            yield f"{read.reader} read {read.value} at offsets {offset} and {read.offset}"


def _only_what_was_sent_is_read(history: History) -> Iterator[str]:
    sent = {produced.value: produced for produced in history.of(Produced)}
    aborted = {
        each.name
        for each in history.of(Transaction)
        if not each.is_commit and each.outcome == Outcome.ACKNOWLEDGED
    }
    for value in dict.fromkeys(read.value for read in history.of(Read)):
        produced = sent.get(value)
        if produced is None:
            yield f"{value} was read, and no client sent it"
        elif produced.outcome == Outcome.REFUSED:
            yield f"{value} was refused, and was read"
        elif produced.transaction in aborted:
            yield f"{value} is of the aborted transaction {produced.transaction}, and was read"


def _acknowledged_is_at_its_offset(history: History, *, reads_are_complete: bool) -> Iterator[str]:
    offsets = {read.value: read.offset for read in history.of(Read)}
    committed = {
        each.name
        for each in history.of(Transaction)
        if each.is_commit and each.outcome == Outcome.ACKNOWLEDGED
    }
    for produced in history.of(Produced):
        if produced.outcome != Outcome.ACKNOWLEDGED:
            continue
        if produced.transaction is not None and produced.transaction not in committed:
            continue
        offset = offsets.get(produced.value)
        if offset is None:
            if reads_are_complete:
                yield (
                    f"{produced.value} was acknowledged at {produced.topic}-{produced.partition}"
                    f" offset {produced.offset}, and is lost"
                )
        elif produced.offset not in (UNKNOWN_OFFSET, offset):
            yield (
                f"{produced.value} was acknowledged at offset {produced.offset} and is at {offset}"
            )


def _producers_keep_their_order(history: History) -> Iterator[str]:
    """Acknowledged records of one producer are in a partition in the order they were sent."""
    last: dict[tuple[str, str, int], tuple[int, str]] = {}
    offsets = {read.value: read.offset for read in history.of(Read)}
    for produced in history.of(Produced):
        offset = offsets.get(produced.value)
        if produced.outcome != Outcome.ACKNOWLEDGED or offset is None:
            continue
        key = produced.producer, produced.topic, produced.partition
        before = last.get(key)
        if before is not None and offset < before[0]:
            yield (
                f"{produced.producer} sent {before[1]} before {produced.value}, which is at a lower"
                f" offset ({offset} < {before[0]})"
            )
        last[key] = offset, produced.value


def _transactions_are_whole(history: History, *, reads_are_complete: bool) -> Iterator[str]:
    if not reads_are_complete:
        return
    read = {each.value for each in history.of(Read)}
    members: dict[str, list[Produced]] = defaultdict(list)
    for produced in history.of(Produced):
        if produced.transaction is not None and produced.outcome == Outcome.ACKNOWLEDGED:
            members[produced.transaction].append(produced)
    for name, produced_in in members.items():
        seen = [each.value for each in produced_in if each.value in read]
        if seen and len(seen) != len(produced_in):
            yield f"transaction {name}: {len(seen)} of {len(produced_in)} records were read"


def _commits_never_go_back(history: History) -> Iterator[str]:
    """A member fetches the last acknowledged commit of earlier owners, or something newer.

    Clients in these histories only commit forwards, so a smaller offset is a lost commit.
    """
    acknowledged: dict[tuple[str, str, int], int] = {}
    for operation in history.operations:
        if isinstance(operation, Committed) and operation.outcome == Outcome.ACKNOWLEDGED:
            key = operation.group, operation.topic, operation.partition
            acknowledged[key] = max(acknowledged.get(key, -1), operation.offset)
        elif isinstance(operation, Fetched):
            key = operation.group, operation.topic, operation.partition
            expected = acknowledged.get(key, -1)
            if operation.offset < expected:
                yield (
                    f"group {operation.group} committed {expected} for {operation.topic}-"
                    f"{operation.partition}, and {operation.member} fetched {operation.offset}"
                )


def _one_owner_per_generation(history: History) -> Iterator[str]:
    owners: dict[tuple[str, int, str, int], str] = {}
    for owned in history.of(Owned):
        key = owned.group, owned.generation, owned.topic, owned.partition
        owner = owners.setdefault(key, owned.member)
        if owner != owned.member:
            yield (
                f"{owned.topic}-{owned.partition} was assigned to {owner} and to {owned.member} in"
                f" generation {owned.generation} of {owned.group}"
            )


def _acknowledged_changes_stay(history: History) -> Iterator[str]:
    """In the end there is the last acknowledged value, or one whose change is unknown.

    An unknown change may take effect at any later time.
    """
    acknowledged: dict[str, str] = {}
    unknown: dict[str, set[str]] = defaultdict(set)
    for changed in history.of(Changed):
        if changed.outcome == Outcome.ACKNOWLEDGED:
            acknowledged[changed.key] = changed.value
        elif changed.outcome == Outcome.UNKNOWN:
            unknown[changed.key].add(changed.value)
    for seen in history.of(Seen):
        last = acknowledged.get(seen.key, "")
        if seen.value not in (last, *unknown[seen.key]):
            yield f"{seen.key} was changed to {last!r}, and is {seen.value!r}"
