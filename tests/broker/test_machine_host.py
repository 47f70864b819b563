"""A hosted machine: replies, time, replay, markers, and a disk that refuses."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import pytest
import uvloop

from penstock.broker import machine_host
from penstock.broker.handler import result_of
from penstock.broker.leadership import Leadership
from penstock.broker.machine_host import HostedMachine, LoadTurns
from penstock.broker.settings import topic_settings
from penstock.config.resolve import NO_LAYERS
from penstock.errors import ErrorCode, Refused
from penstock.log import OpenFiles, PartitionLog
from penstock.machine import CallerId, Deferred, JournalRecord, Outcome, Reply, TransactionMark
from penstock.model import (
    LeaderEpoch,
    Millis,
    Moment,
    NodeId,
    Offset,
    ProducerEpoch,
    ProducerId,
)
from penstock.protocol.control_records import Marker, build_marker, read_marker
from tests.support.led_partition import NODE, lead, open_partition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from penstock.broker.partition import Partition

ResultT = TypeVar("ResultT")


class Put(NamedTuple):
    """Set a name to a value; a value of 'wait' parks the caller until the next tick."""

    caller: CallerId
    name: str
    value: str
    mark: TransactionMark | None = None


class Was(NamedTuple):
    name: str
    value: str


class State:
    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.parked: list[CallerId] = []
        self.wake_at: Millis | None = None


class Names:
    """A machine over names and values; 'park' waits until 50 ms have passed."""

    def fresh(self) -> State:
        return State()

    def decide(self, state: State, command: Put, now: Moment) -> Outcome[Was]:
        if command.value == "refuse":
            raise Refused(ErrorCode.invalid_request, "as asked")
        if command.value == "park":
            state.parked.append(command.caller)
            state.wake_at = Millis(now.steady + 50)
            return Outcome()
        return Outcome(
            events=(Was(command.name, command.value),),
            replies=(Reply(command.caller, f"{command.name}={command.value}"),),
            mark=command.mark,
        )

    def apply(self, state: State, event: Was) -> None:
        state.values[event.name] = event.value

    def wake_at(self, state: State) -> Millis | None:
        return state.wake_at

    def tick(self, state: State, now: Moment) -> Outcome[Was]:
        parked, state.parked, state.wake_at = state.parked, [], None
        return Outcome(replies=tuple(Reply(caller, "woken") for caller in parked))

    def validate(self, state: State) -> None:
        assert len(set(state.parked)) == len(state.parked)

    def write_event(self, event: Was) -> JournalRecord:
        return JournalRecord(event.name.encode(), event.value.encode())

    def read_events(self, record: JournalRecord, mark: TransactionMark | None) -> Sequence[Was]:
        assert record.value is not None
        suffix = "" if mark is None else f" by {mark.producer_id}"
        return (Was(record.key.decode(), record.value.decode() + suffix),)


def clock() -> Moment:
    return Moment(Millis(int(asyncio.get_running_loop().time() * 1000)), Millis(0))


def host(partition: Partition) -> HostedMachine[State, Put, Was]:
    hosted = unloaded(partition)
    hosted.load()
    hosted.start()
    return hosted


def unloaded(partition: Partition) -> HostedMachine[State, Put, Was]:
    return HostedMachine(
        Names(), partition, clock=clock, marker_event=lambda m: Was("marker", str(m.commit))
    )


def run(work: Callable[[], Awaitable[ResultT]]) -> ResultT:
    async def awaited() -> ResultT:
        return await work()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(awaited())


def put(name: str, value: str) -> Callable[[CallerId], Put]:
    return lambda caller: Put(caller, name, value)


def test_a_reply_comes_when_its_event_is_in_the_log_and_replay_finds_it(tmp_path: Path) -> None:
    async def work() -> dict[str, str]:
        partition = open_partition(tmp_path)
        hosted = host(partition)
        assert await result_of(hosted.submit(put("a", "1"))) == "a=1"
        with pytest.raises(Refused):
            await result_of(hosted.submit(put("a", "refuse")))
        hosted.close()
        return host(partition).state.values

    assert run(work) == {"a": "1"}


def test_a_reply_waits_for_the_high_watermark(tmp_path: Path) -> None:
    async def work() -> None:
        partition = open_partition(tmp_path)
        two = (NODE, NodeId(2))
        partition.lead(Leadership(NODE, LeaderEpoch(0), two, two))
        hosted = host(partition)
        answer = hosted.submit(put("a", "1"))
        await asyncio.sleep(0)
        assert isinstance(answer, Deferred)
        assert not answer.is_resolved
        partition.on_replica_fetch(NodeId(2), partition.log.end_offset)
        assert await result_of(answer) == "a=1"

    run(work)


def test_time_wakes_who_was_parked(tmp_path: Path) -> None:
    async def work() -> object:
        return await asyncio.wait_for(
            result_of(host(open_partition(tmp_path)).submit(put("a", "park"))), 10
        )

    assert run(work) == "woken"


def test_markers_are_observed_live_and_in_replay(tmp_path: Path) -> None:
    async def work() -> tuple[str, str, str]:
        partition = open_partition(tmp_path)
        hosted = host(partition)
        mark = TransactionMark(ProducerId(7), ProducerEpoch(0))
        await result_of(hosted.submit(lambda caller: Put(caller, "a", "1", mark)))
        marker = build_marker(
            commit=True,
            producer_id=ProducerId(7),
            producer_epoch=ProducerEpoch(0),
            coordinator_epoch=0,
            timestamp=Millis(0),
        )
        ended: Marker = read_marker(marker)
        partition.append_marker(marker, ended, now=Millis(0))
        live = hosted.state.values["marker"]
        hosted.close()
        replayed = host(partition).state.values
        return live, replayed["marker"], replayed["a"]

    assert run(work) == ("True", "True", "1 by 7")


def test_a_full_disk_refuses_writes_and_leaves_the_rest_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> object:
        partition = open_partition(tmp_path)
        hosted = host(partition)
        await result_of(hosted.submit(put("a", "1")))
        parked = hosted.submit(put("b", "park"))
        with monkeypatch.context() as broken:
            broken.setattr(OpenFiles, "write", no_space)
            with pytest.raises(Refused) as caught:
                await result_of(hosted.submit(put("a", "2")))
        assert caught.value.code == ErrorCode.coordinator_not_available
        assert hosted.state.values == {"a": "1"}
        assert await asyncio.wait_for(result_of(parked), 10) == "woken"
        return await result_of(hosted.submit(put("a", "3")))

    assert run(work) == "a=3"


def no_space(*args: object, **fields: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_closed_machine_refuses_new_and_old_callers(tmp_path: Path) -> None:
    async def work() -> list[ErrorCode]:
        hosted = host(open_partition(tmp_path))
        parked = hosted.submit(put("a", "park"))
        hosted.close()
        codes = []
        for waiting in (parked, hosted.submit(put("a", "1"))):
            with pytest.raises(Refused) as caught:
                await result_of(waiting)
            codes.append(caught.value.code)
        return codes

    assert run(work)[-1] == ErrorCode.not_coordinator


def test_a_machine_that_loads_in_turns_refuses_until_it_has_read_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_host, "LOAD_TURN_S", 0.0)

    async def work() -> tuple[ErrorCode, dict[str, str]]:
        partition = open_partition(tmp_path)
        first = host(partition)
        for number in range(5):
            await result_of(first.submit(put(f"n{number}", "1")))
        first.close()
        hosted = unloaded(partition)
        LoadTurns().add(hosted)
        with pytest.raises(Refused) as caught:
            await result_of(hosted.submit(put("a", "2")))
        hosted.report(put("reported", "3")(CallerId(0)))
        for _ in range(20):  # turns of the loop
            await asyncio.sleep(0)
        await result_of(hosted.submit(put("b", "4")))
        return caught.value.code, hosted.state.values

    code, values = run(work)
    assert code == ErrorCode.coordinator_load_in_progress
    assert values == {**{f"n{number}": "1" for number in range(5)}, "reported": "3", "b": "4"}


def test_a_log_that_cannot_be_read_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_host, "LOAD_RETRY_MIN_S", 0.01)

    async def work() -> dict[str, str]:
        partition = open_partition(tmp_path)
        first = host(partition)
        await result_of(first.submit(put("a", "1")))
        first.close()
        hosted = unloaded(partition)
        with monkeypatch.context() as broken:
            broken.setattr(PartitionLog, "read", no_space)
            LoadTurns().add(hosted)
            await asyncio.sleep(0.005)
            assert refused_code(hosted.submit(put("a", "2"))) == (
                ErrorCode.coordinator_load_in_progress
            )
        async with asyncio.timeout(10):
            while not hosted.is_running:  # noqa: ASYNC110 - it has no event to wait for
                await asyncio.sleep(0.01)
        return hosted.state.values

    assert run(work) == {"a": "1"}


def refused_code(reply: object) -> ErrorCode:
    assert isinstance(reply, Refused)
    return reply.code


def test_a_journal_writes_in_its_own_leader_epoch_only(tmp_path: Path) -> None:
    async def work() -> ErrorCode:
        partition = open_partition(tmp_path)
        hosted = host(partition)
        lead(partition, 1)
        end_offset = partition.log.end_offset
        code = refused_code(hosted.submit(put("a", "1")))
        assert partition.log.end_offset == end_offset
        return code

    assert run(work) == ErrorCode.not_coordinator


def test_nothing_is_written_while_too_few_replicas_are_in_sync(tmp_path: Path) -> None:
    async def work() -> ErrorCode:
        partition = open_partition(tmp_path)
        partition.replace_settings(topic_settings({"min.insync.replicas": "2"}, NO_LAYERS))
        lead(partition, 0, 1, replicas=2)
        hosted = host(partition)
        code = refused_code(hosted.submit(put("a", "1")))
        assert partition.log.end_offset == 0
        return code

    assert run(work) == ErrorCode.coordinator_not_available


def test_a_reply_that_no_follower_confirms_becomes_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.machine.runner.COMMIT_WAIT_MS", 50)

    async def work() -> ErrorCode:
        partition = open_partition(tmp_path)
        lead(partition, 0, 1, 2, replicas=2)
        with pytest.raises(Refused) as caught:
            await asyncio.wait_for(result_of(host(partition).submit(put("a", "1"))), 10)
        return caught.value.code

    assert run(work) == ErrorCode.coordinator_not_available


def test_a_leader_that_steps_down_refuses_what_is_not_committed(tmp_path: Path) -> None:
    async def work() -> ErrorCode:
        partition = open_partition(tmp_path)
        lead(partition, 0, 1, 2, replicas=2)
        reply = host(partition).submit(put("a", "1"))
        two = (NODE, NodeId(2))
        partition.lead(Leadership(NodeId(2), LeaderEpoch(1), two, two))
        with pytest.raises(Refused) as caught:
            await result_of(reply)
        return caught.value.code

    assert run(work) == ErrorCode.not_coordinator


def test_what_is_above_the_high_watermark_is_loaded_and_replies_wait_for_it(tmp_path: Path) -> None:
    async def work() -> object:
        partition = open_partition(tmp_path)
        lead(partition, 0, 1, 2, replicas=2)
        first = host(partition)
        first.submit(put("a", "1"))
        first.close()
        lead(partition, 1, 1, 2, replicas=2)
        second = host(partition)
        assert second.state.values == {"a": "1"}
        reply = second.submit(put("a", "refuse"))
        assert isinstance(reply, Deferred)
        refusals: list[object] = []
        reply.listen(refusals.append)
        assert refusals == []
        partition.on_replica_fetch(NodeId(2), partition.log.end_offset)
        assert len(refusals) == 1
        reply = second.submit(put("a", "2"))
        partition.on_replica_fetch(NodeId(2), partition.log.end_offset)
        return await result_of(reply)

    assert run(work) == "a=2"


def change(path: str, position: int, content: bytes) -> None:
    with Path(path).open("r+b") as file:
        file.seek(position)
        file.write(content)


@pytest.mark.parametrize(("at", "damage"), [(70, b"bad"), (8, b"\x7f"), (8, b"\xff"), (16, b"\0")])
def test_a_journal_that_is_damaged_is_not_replayed_in_part(
    tmp_path: Path, at: int, damage: bytes
) -> None:
    """State without what is there would be believed, and written on."""

    async def work() -> None:
        partition = open_partition(tmp_path)
        hosted = host(partition)
        for number in range(5):
            await result_of(hosted.submit(put(f"name-{number}", "a value")))
        hosted.close()
        segment = partition.log.active
        change(segment.log.path, segment.position_of(Offset(2)) + at, damage)
        with pytest.raises(OSError, match="cannot be read at offset"):
            host(partition)

    run(work)
