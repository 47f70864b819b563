"""What a follower does with a fetch response."""

import pytest

from penstock.consensus.replica.follower import (
    Append,
    Fetched,
    FetchState,
    Follow,
    Locate,
    Restart,
    RetryLater,
    Stop,
    Truncate,
    decide_located,
    decide_response,
)
from penstock.errors import ErrorCode
from penstock.model import EpochEnd, LeaderEpoch, NodeId, Offset

STATE = FetchState(NodeId(1), LeaderEpoch(5), Offset(100), LeaderEpoch(4))


def fetched(
    asked: FetchState = STATE,
    *,
    error: ErrorCode = ErrorCode.none,
    diverging: tuple[int, int] | None = None,
    records: bool = False,
) -> Fetched:
    end = None if diverging is None else EpochEnd(LeaderEpoch(diverging[0]), Offset(diverging[1]))
    return Fetched(asked, error, Offset(90), Offset(7), end, records)


def own_log(*ends: tuple[int, int]) -> object:
    """Epochs of the follower's log with where each ends, in order."""

    def end_of_epoch(epoch: LeaderEpoch) -> EpochEnd:
        known = [EpochEnd(LeaderEpoch(own), Offset(end)) for own, end in ends if own <= epoch]
        return known[-1] if known else EpochEnd(LeaderEpoch(-1), Offset(-1))

    return end_of_epoch


def decide(response: Fetched, high_watermark: int = 50, log: object = own_log()) -> object:
    return decide_response(STATE, Offset(high_watermark), response, log)  # type: ignore[arg-type]  # own_log's


def test_records_are_appended_with_the_leaders_high_watermark() -> None:
    assert decide(fetched(records=True)) == Append(Offset(90), Offset(7))


def test_without_records_the_high_watermark_is_taken_over() -> None:
    assert decide(fetched()) == Follow(Offset(90), Offset(7))


@pytest.mark.parametrize(
    "asked",
    [STATE._replace(fetch_offset=Offset(99)), STATE._replace(leader_epoch=LeaderEpoch(4))],
)
def test_a_response_to_an_older_fetch_is_dropped(asked: FetchState) -> None:
    assert decide(fetched(asked, records=True)) is None


def test_a_shared_epoch_that_ends_earlier_at_the_leader_is_cut_there() -> None:
    response = fetched(diverging=(4, 80))
    assert decide(response, log=own_log((3, 60), (4, 100))) == Truncate(Offset(80), False)


def test_a_shared_epoch_that_ends_earlier_here_is_cut_here() -> None:
    response = fetched(diverging=(3, 80))
    assert decide(response, log=own_log((3, 60), (4, 100))) == Truncate(Offset(60), False)


def test_an_epoch_that_is_unknown_here_is_cut_to_the_end_of_the_next_smaller_one() -> None:
    response = fetched(diverging=(3, 80))
    assert decide(response, log=own_log((2, 70), (4, 100))) == Truncate(Offset(70), False)


def test_a_cut_below_the_high_watermark_is_marked() -> None:
    response = fetched(diverging=(4, 40))
    assert decide(response, log=own_log((4, 100))) == Truncate(Offset(40), True)


def test_a_diverging_epoch_that_leaves_nothing_to_cut_stops_the_partition() -> None:
    response = fetched(diverging=(4, 120))
    assert isinstance(decide(response, log=own_log((4, 100))), Stop)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.not_leader_or_follower,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_topic_id,
        ErrorCode.kafka_storage_error,
        ErrorCode.unknown_server_error,
    ],
)
def test_errors_that_pass_are_retried(code: ErrorCode) -> None:
    assert decide(fetched(error=code)) == RetryLater(code)


def test_a_corrupt_message_stops_the_partition() -> None:
    assert isinstance(decide(fetched(error=ErrorCode.corrupt_message)), Stop)


def test_an_offset_outside_the_leaders_log_is_located() -> None:
    assert decide(fetched(error=ErrorCode.offset_out_of_range)) == Locate()


@pytest.mark.parametrize(
    ("leader_start", "leader_end", "step"),
    [
        (0, 80, Truncate(Offset(80), False)),
        (0, 40, Truncate(Offset(40), True)),
        (150, 200, Restart(Offset(150))),
        (0, 200, RetryLater(ErrorCode.offset_out_of_range)),
    ],
)
def test_where_a_replica_goes_on(leader_start: int, leader_end: int, step: object) -> None:
    result = decide_located(Offset(100), Offset(leader_start), Offset(leader_end), Offset(50))
    assert result == step
