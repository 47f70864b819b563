"""Where a log begins and ends and what is read of it: both say the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import pytest

from penstock.protocol.compression import Codec
from penstock.protocol.records import Record, build_batch
from tests.support.wire import batch

if TYPE_CHECKING:
    from tests.interop.differential.conftest import AskBoth, Deliberate, Peer, Scenario

pytestmark = [pytest.mark.slow, pytest.mark.interop]

_WHOLE: Final = "only whole batches are sent: a client drops the torn one at the end"
_ELSEWHERE: Final = "Apache Kafka answers a record that was deleted"
DELIBERATE: Final[dict[str, Deliberate]] = {
    "list_offsets": {
        "after delete -3": ((0, 5, 3, 0), _ELSEWHERE),
        "all deleted -3": ((0, -1, -1, -1), _ELSEWHERE),
    },
    "fetches": {
        "partition max 178": ((0, 10, 10, 0, 342, None), _WHOLE),
        "max 178": ((0, 10, 10, 0, 342, None), _WHOLE),
    },
}


def list_offsets(peer: Peer) -> None:
    topic = peer.topic()
    empty = peer.topic("empty")
    for name, where in (("empty", empty), ("full", topic)):
        if where is topic:
            times = [
                (peer.now, peer.now + 3, peer.now + 1),
                (peer.now + 2, peer.now + 2),
                (peer.now + 3, peer.now + 3),
            ]
            for codec, stamps in zip((Codec.NONE, Codec.GZIP, Codec.LZ4), times, strict=True):
                records = [Record(i, t, b"k", b"v", ()) for i, t in enumerate(stamps)]
                assert peer.produced(topic, bytes(build_batch(records, codec=codec)))
        for timestamp in (
            -1,
            -2,
            -3,
            -4,
            -5,
            -6,
            -7,
            -100,
            0,
            peer.now + 1,
            peer.now + 2,
            peer.now + 3,
            peer.now + 4,
        ):
            label = timestamp if timestamp < peer.now else f"now+{timestamp - peer.now}"
            peer.note(f"{name} {label}", peer.offsets(where, timestamp))
        for version, timestamp in ((1, -1), (2, -3), (6, -3), (7, -3), (7, -4), (8, -5), (10, -6)):
            noted = peer.offsets(where, timestamp, version=version)
            peer.note(f"{name} {timestamp} v{version}", noted)
        peer.note(f"{name} committed", peer.offsets(where, -1, isolation=1))
        for epoch in (0, 1):
            peer.note(f"{name} epoch {epoch}", peer.offsets(where, -1, epoch=epoch))
    peer.note("no topic", peer.offsets(peer.name("none"), -1))
    peer.note("delete 2", peer.deleted(topic, 2))
    for timestamp in (-2, -3, 0):
        peer.note(f"after delete {timestamp}", peer.offsets(topic, timestamp))
    peer.note("delete all", peer.deleted(topic, -1))
    for timestamp in (-1, -2, -3, 0, peer.now):
        label = timestamp if timestamp < peer.now else "now"
        peer.note(f"all deleted {label}", peer.offsets(topic, timestamp))


def delete_records(peer: Peer) -> None:
    topic = peer.topic()
    for _ in range(5):
        peer.produced(topic, bytes(batch()))
    for offset in (2, 1, 2, 0, -2, 6, 5, -1):
        peer.note(f"to {offset}#{len(peer.notes)}", peer.deleted(topic, offset))
    peer.note("no partition", peer.deleted(topic, 0, 9))
    peer.note("no topic", peer.deleted(peer.name("none"), 0))
    peer.note("fetch below", peer.fetched(topic, 1))
    peer.note("produce after", peer.produced(topic, bytes(batch())))


def fetches(peer: Peer) -> None:
    topic = peer.topic()
    small = bytes(batch((b"k", b"v" * 100), timestamp=peer.now))
    peer.note("empty", peer.fetched(topic, 0))
    for _ in range(10):
        peer.produced(topic, small)
    size = len(small)
    for offset in (-1, 0, 5, 9, 10, 11):
        peer.note(f"at {offset}", peer.fetched(topic, offset))
    for most in (0, 1, size - 1, size, 2 * size, 2 * size + 7):
        peer.note(f"partition max {most - size}", peer.fetched(topic, 0, partition_max_bytes=most))
        peer.note(f"max {most - size}", peer.fetched(topic, 0, max_bytes=most))
    peer.note("committed", peer.fetched(topic, 3, isolation_level=1))
    for epoch in (0, 1):
        peer.note(f"epoch {epoch}", peer.fetched(topic, 0, current_leader_epoch=epoch))
        peer.note(f"last epoch {epoch}", peer.fetched(topic, 0, last_fetched_epoch=epoch))
    peer.note("end, last epoch 0", peer.fetched(topic, 10, last_fetched_epoch=0))
    peer.note("no topic", peer.fetched(peer.name("none"), 0))
    for version in (4, 5, 7, 9, 11, 12):
        row = peer.wire.fetch(topic, 8, version=version)
        peer.note(f"v{version}", (int(row.error_code), row.high_watermark, len(row.records)))


def fetch_sessions(peer: Peer) -> None:
    topic = peer.topic(partitions=2)
    peer.produced(topic, bytes(batch()))
    topic_id = peer.topic_id(topic)

    def ask(session: int, epoch: int, *wanted: tuple[int, int], forgotten: Any = ()) -> Any:
        return peer.wire.call(
            1,
            15,
            max_wait=0,
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=session,
            session_epoch=epoch,
            topics=[
                {
                    "topic_id": topic_id,
                    "partitions": [
                        {"partition": index, "fetch_offset": at, "partition_max_bytes": 1 << 20}
                        for index, at in wanted
                    ],
                }
            ]
            if wanted
            else [],
            forgotten_topics_data=[{"topic_id": topic_id, "partitions": forgotten}]
            if forgotten
            else [],
        )

    def noted(answer: Any) -> object:
        rows = [
            (row.partition_index, int(row.error_code), row.high_watermark, len(row.records or b""))
            for each in answer.responses
            for row in each.partitions
        ]
        return (int(answer.error_code), answer.session_id == session, sorted(rows))

    opened = ask(0, 0, (0, 0), (1, 0))
    session = opened.session_id
    peer.note("opened", (session != 0, noted(opened)))
    peer.note("moved on", noted(ask(session, 1, (0, 1))))
    peer.note("no news", noted(ask(session, 2)))
    peer.produced(topic, bytes(batch()), partition=1)
    peer.note("news", noted(ask(session, 3)))
    peer.note("same again", noted(ask(session, 4)))
    peer.note("old epoch", noted(ask(session, 2)))
    peer.note("epoch again", noted(ask(session, 5)))
    peer.note("forgotten", noted(ask(session, 6, forgotten=[1])))
    peer.note("out of range", noted(ask(session, 7, (0, 99))))
    peer.note("still out of range", noted(ask(session, 8)))
    peer.note("unknown partition added", noted(ask(session, 9, (9, 0), (0, 1))))
    peer.note("unknown id", noted(ask(session + 1, 1)))
    peer.note("closed", noted(ask(session, -1, (0, 0))))
    peer.note("after closing", noted(ask(session, 10)))
    peer.note("sessionless", noted(ask(0, -1, (0, 0))))
    peer.note("empty open", noted(ask(0, 0)))
    topic_id = UUID(int=12345)
    peer.note("unknown topic id", noted(ask(0, -1, (0, 0))))


def leader_epochs(peer: Peer) -> None:
    topic = peer.topic()
    for when in ("empty", "full"):
        for epoch in (-1, 0, 1, 5):
            for current in (-1, 0, 1):
                row = (
                    peer.wire.call(
                        23,
                        4,
                        replica_id=-1,
                        topics=[
                            {
                                "topic": topic,
                                "partitions": [
                                    {
                                        "partition": 0,
                                        "current_leader_epoch": current,
                                        "leader_epoch": epoch,
                                    }
                                ],
                            }
                        ],
                    )
                    .topics[0]
                    .partitions[0]
                )
                noted = (int(row.error_code), row.leader_epoch, row.end_offset)
                peer.note(f"{when}: {epoch} asked under {current}", noted)
        peer.produced(topic, bytes(batch()))


@pytest.mark.parametrize(
    "scenario", [list_offsets, delete_records, fetches, fetch_sessions, leader_epochs]
)
def test_both_show_the_same_of_a_log(ask_both: AskBoth, scenario: Scenario) -> None:
    ask_both(scenario, DELIBERATE.get(scenario.__name__, {}))
