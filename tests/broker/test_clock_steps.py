"""The time of day may be set at any time: timeouts are neither late nor early."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from penstock.broker.quotas import QuotaEntity, QuotaKind, Rates
from penstock.errors import ErrorCode

if TYPE_CHECKING:
    from tests.broker.conftest import RunningBroker, StartBroker
    from tests.support.wire import Wire

FIND, JOIN, HEARTBEAT, SYNC, DESCRIBE_GROUPS = 10, 11, 12, 14, 15
INIT, ADD, DESCRIBE_TRANSACTIONS = 22, 24, 65
HOUR_S = 3600


class WallClock:
    """The time of day, which a test may set."""

    def __init__(self) -> None:
        self._true_ns = time.time_ns
        self.ahead_s = 0

    def __call__(self) -> int:
        return self._true_ns() + self.ahead_s * 1_000_000_000


@pytest.fixture
def wall_clock(monkeypatch: pytest.MonkeyPatch) -> WallClock:
    clock = WallClock()
    monkeypatch.setattr(time, "time_ns", clock)
    return clock


@pytest.fixture
def broker(wall_clock: WallClock, start_broker: StartBroker) -> RunningBroker:
    started = start_broker(
        group_initial_rebalance_delay_ms="0",
        group_min_session_timeout_ms="100",
        offsets_topic_num_partitions="1",
        transaction_state_log_num_partitions="1",
    )
    started.create_topic("t")
    with started.connect() as wire:
        for key_type in (0, 1):
            wait_for(partial(coordinator_code, wire, key_type), ErrorCode.none)
    return started


def coordinator_code(wire: Wire, key_type: int) -> ErrorCode:
    result = wire.call(FIND, 4, key_type=key_type, coordinator_keys=["any"])
    return ErrorCode(result.coordinators[0].error_code)


def wait_for(look: Any, expected: Any) -> None:
    give_up_at = time.monotonic() + 10
    while (seen := look()) != expected:
        assert time.monotonic() < give_up_at, f"it is still {seen}"
        time.sleep(0.02)


def join(wire: Wire, session_ms: int) -> Any:
    joined = wire.call(
        JOIN,
        3,
        group_id="g",
        session_timeout=session_ms,
        rebalance_timeout=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": b"\0\0\0\0\0\1\0\1t"}],
    )
    assignments = [{"member_id": joined.member_id, "assignment": b"all"}]
    synced = wire.call(
        SYNC,
        2,
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=assignments,
    )
    assert synced.error_code == ErrorCode.none
    return joined


def group_state(wire: Wire) -> str:
    return str(wire.call(DESCRIBE_GROUPS, 1, groups=["g"]).groups[0].group_state)


def open_transaction(wire: Wire, timeout_ms: int) -> None:
    producer = wire.call(INIT, 4, transactional_id="x", transaction_timeout=timeout_ms)
    assert producer.error_code == ErrorCode.none
    added = wire.call(
        ADD,
        3,
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[{"name": "t", "partitions": [0]}],
    )
    (topic,) = added.results_by_topic_v3_and_below
    assert topic.results_by_partition[0].partition_error_code == ErrorCode.none


def transaction_state(wire: Wire) -> str:
    described = wire.call(DESCRIBE_TRANSACTIONS, 0, transactional_ids=["x"])
    return str(described.transaction_states[0].transaction_state)


def test_a_silent_member_is_removed_although_the_clock_was_set_back(
    wire: Wire, wall_clock: WallClock
) -> None:
    join(wire, session_ms=300)
    wall_clock.ahead_s -= HOUR_S
    wait_for(lambda: group_state(wire), "Empty")


def test_an_open_transaction_is_aborted_although_the_clock_was_set_back(
    wire: Wire, wall_clock: WallClock
) -> None:
    open_transaction(wire, timeout_ms=300)
    wall_clock.ahead_s -= HOUR_S
    wait_for(lambda: transaction_state(wire), "CompleteAbort")


def test_nothing_times_out_because_the_clock_was_set_forward(
    wire: Wire, wall_clock: WallClock
) -> None:
    member = join(wire, session_ms=60_000)
    open_transaction(wire, timeout_ms=60_000)
    wall_clock.ahead_s += HOUR_S
    open_other_timers(wire)
    response = wire.call(
        HEARTBEAT, 1, group_id="g", generation_id=member.generation_id, member_id=member.member_id
    )
    assert response.error_code == ErrorCode.none
    assert (group_state(wire), transaction_state(wire)) == ("Stable", "Ongoing")


def open_other_timers(wire: Wire) -> None:
    """Let both coordinators check their timers: a short transaction and session end meanwhile."""
    producer = wire.call(INIT, 4, transactional_id="short", transaction_timeout=50)
    wire.call(
        ADD,
        3,
        v3_and_below_transactional_id="short",
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[{"name": "t", "partitions": [0]}],
    )
    wait_for(
        lambda: str(
            wire.call(DESCRIBE_TRANSACTIONS, 0, transactional_ids=["short"])
            .transaction_states[0]
            .transaction_state
        ),
        "CompleteAbort",
    )


@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S])
def test_a_quota_is_filled_by_the_time_that_passes(
    broker: RunningBroker, wall_clock: WallClock, step_s: int
) -> None:
    broker.replace_quotas({QuotaEntity(None, "greedy"): Rates(produce_bytes=1000)})

    def throttle_ms(size_bytes: int) -> int:
        quotas = broker.broker.quotas
        charge = partial(quotas.charge, QuotaKind.PRODUCE_BYTES, "User:u", "greedy")
        return broker.call(lambda: charge(size_bytes))

    before_ms = throttle_ms(31_000)
    wall_clock.ahead_s += step_s
    assert 0 < throttle_ms(0) <= before_ms


def test_the_start_of_a_transaction_is_stored_by_the_time_of_day(
    broker: RunningBroker, wire: Wire, wall_clock: WallClock
) -> None:
    wall_clock.ahead_s = HOUR_S
    open_transaction(wire, timeout_ms=60_000)
    described = wire.call(DESCRIBE_TRANSACTIONS, 0, transactional_ids=["x"])
    started_s = described.transaction_states[0].transaction_start_time.timestamp()
    assert abs(started_s - time.time_ns() / 1e9) < 60
