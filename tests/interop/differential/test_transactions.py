"""Transactions of both protocol versions, and offsets in them: both say the same."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.wire import batch

if TYPE_CHECKING:
    from tests.interop.differential.conftest import AskBoth, Peer, Scenario

pytestmark = [pytest.mark.slow, pytest.mark.interop]


def transactions(peer: Peer) -> None:
    topic = peer.topic(partitions=2)
    name = peer.name("id")

    def write(producer: Any, sequence: int, **fields: Any) -> object:
        raw = batch(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=sequence,
            transactional=True,
        )
        return peer.produced(topic, bytes(raw), transactional_id=name, **fields)

    def ended(producer: Any, **fields: Any) -> int:
        return int(peer.end(name, producer, **fields).error_code)

    first = peer.transactional(name)
    peer.note("first", (int(first.error_code), first.producer_epoch))
    peer.note("end of nothing, commit", ended(first, committed=True))
    peer.note("end of nothing, abort", ended(first, committed=False))
    peer.note("added", peer.add_partitions(name, first, topic, 0))
    peer.note("added again", peer.add_partitions(name, first, topic, 0))
    peer.note("added unknown", peer.add_partitions(name, first, topic, 7))
    peer.note("written", write(first, 0))
    peer.note("open", peer.fetched(topic, 0, isolation_level=1))
    peer.note("open latest", peer.offsets(topic, -1, isolation=1))
    peer.note("aborted", ended(first, committed=False))
    await_stable(peer, topic, 2)
    peer.note("aborted again", ended(first, committed=False))
    peer.note("commit after abort", ended(first, committed=True))
    peer.note("after abort", peer.fetched(topic, 0, isolation_level=1))
    second = peer.transactional(name)
    peer.note("second", (int(second.error_code), second.producer_epoch))
    peer.note("same id", second.producer_id == first.producer_id)
    peer.note("fenced end v3", ended(first, committed=True))
    peer.note("fenced end v1", ended(first, committed=True, version=1))
    peer.note("fenced add", peer.add_partitions(name, first, topic, 0))
    held = {"producer_id": first.producer_id, "producer_epoch": first.producer_epoch}
    peer.note("fenced init", int(peer.transactional(name, **held).error_code))
    unknown = {"producer_id": 777_777, "producer_epoch": 0}
    peer.note("init by another id", int(peer.transactional(name, **unknown).error_code))
    held = {"producer_id": second.producer_id, "producer_epoch": second.producer_epoch}
    third = peer.transactional(name, **held)
    peer.note("bump", (int(third.error_code), third.producer_epoch - second.producer_epoch))
    peer.note("time-out too long", int(peer.transactional(name, timeout_ms=10**9).error_code))
    peer.note("time-out 0", int(peer.transactional(name, timeout_ms=0).error_code))
    peer.note("empty id", int(peer.transactional("").error_code))
    peer.note("unknown id add", peer.add_partitions(peer.name("no"), third, topic, 0))
    missing = peer.end(peer.name("no"), third, committed=True)
    peer.note("unknown id end", int(missing.error_code))


def await_stable(peer: Peer, topic: str, offset: int) -> None:
    for _ in range(200):
        if peer.wire.fetch(topic, 0, isolation_level=1).last_stable_offset >= offset:
            return
        time.sleep(0.02)
    raise AssertionError(f"{topic} is not stable up to {offset}")


def transactions_of_version_two(peer: Peer) -> None:
    topic = peer.topic()
    name = peer.name("id")
    producer = peer.transactional(name)

    def write(holder: Any, sequence: int) -> object:
        raw = batch(
            producer_id=holder.producer_id,
            producer_epoch=holder.producer_epoch,
            base_sequence=sequence,
            transactional=True,
        )
        return peer.produced(topic, bytes(raw), transactional_id=name, version=12)

    peer.note("written", write(producer, 0))
    peer.note("more", write(producer, 1))
    answer = peer.end(name, producer, committed=True, version=5)
    bumped = (int(answer.error_code), answer.producer_epoch - producer.producer_epoch)
    peer.note("end", bumped)
    await_stable(peer, topic, 3)
    again = peer.end(name, producer, committed=True, version=5)
    peer.note("end again", (int(again.error_code), again.producer_epoch - producer.producer_epoch))
    peer.note("abort instead", int(peer.end(name, producer, committed=False, version=5).error_code))
    peer.note("old epoch", write(producer, 2))
    peer.note("new epoch at 5", write(answer, 5))
    peer.note("new epoch at 0", write(answer, 0))
    aborted = peer.end(name, answer, committed=False, version=5)
    peer.note("abort", (int(aborted.error_code), aborted.producer_epoch - producer.producer_epoch))
    await_stable(peer, topic, 5)
    empty = peer.end(name, aborted, committed=False, version=5)
    peer.note(
        "abort nothing", (int(empty.error_code), empty.producer_epoch - aborted.producer_epoch)
    )
    peer.note("commit nothing", int(peer.end(name, empty, committed=True, version=5).error_code))
    described = peer.wire.call(65, 0, transactional_ids=[name, peer.name("no"), ""])
    rows = [
        (int(row.error_code), row.transaction_state, [each.topic for each in row.topics])
        for row in described.transaction_states
    ]
    peer.note("described", rows)
    for states in ([], ["Ongoing"], ["Nonsense"]):
        listed = peer.wire.call(66, 1, state_filters=states, producer_id_filters=[])
        mine = [
            row.transaction_state
            for row in listed.transaction_states
            if row.transactional_id.startswith(peer.name(""))
        ]
        peer.note(f"listed {states}", (int(listed.error_code), mine, listed.unknown_state_filters))


def offsets_in_transactions(peer: Peer) -> None:
    topic = peer.topic()
    name, group = peer.name("id"), peer.name("g")
    producer = peer.transactional(name)
    fields = {
        "transactional_id": name,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "group_id": group,
    }

    def commit(offset: int, version: int = 3, **other: Any) -> int:
        for _ in range(300):
            answer = peer.wire.call(
                28,
                version,
                **{
                    **fields,
                    "generation_id": -1,
                    "member_id": "",
                    "topics": [
                        {
                            "name": topic,
                            "partitions": [{"partition_index": 0, "committed_offset": offset}],
                        }
                    ],
                    **other,
                },
            )
            code = int(answer.topics[0].partitions[0].error_code)
            if code not in (14, 15, 16, 51):
                break
            time.sleep(0.05)
        return code

    def committed(*, stable: bool) -> object:
        answer = peer.wire.call(
            9,
            8,
            groups=[{"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]}],
            require_stable=stable,
        ).groups[0]
        row = answer.topics[0].partitions[0]
        return (int(answer.error_code), int(row.error_code), row.committed_offset)

    peer.find_coordinator(0, group)
    added = peer.wire.call(25, 3, **fields)
    while added.error_code in (14, 15, 16, 51):
        time.sleep(0.05)
        added = peer.wire.call(25, 3, **fields)
    peer.note("added", int(added.error_code))
    peer.note("commit", commit(5))
    peer.note("pending, stable", committed(stable=True))
    peer.note("pending, any", committed(stable=False))
    peer.note("ended", int(peer.end(name, producer, committed=True).error_code))
    for _ in range(300):
        if committed(stable=True) == (0, 0, 5):
            break
        time.sleep(0.02)
    peer.note("after", committed(stable=True))
    peer.note("old epoch", commit(6, producer_epoch=producer.producer_epoch - 1))
    peer.note("with a generation", commit(6, generation_id=3, member_id="m"))
    peer.note("version 5 adds by itself", commit(7, version=5))
    peer.note("aborted", int(peer.end(name, producer, committed=False, version=5).error_code))


@pytest.mark.parametrize(
    "scenario", [transactions, transactions_of_version_two, offsets_in_transactions]
)
def test_both_end_transactions_alike(ask_both: AskBoth, scenario: Scenario) -> None:
    ask_both(scenario, {})
