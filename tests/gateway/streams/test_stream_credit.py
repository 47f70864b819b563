"""Credit, acknowledgements and epochs of one WebSocket stream."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.errors import Refused
from penstock.gateway.streams.stream_credit import CREDIT_RECORDS_MAX, SendLimit, StreamCredit
from penstock.model import Offset

BOUND = 1000


def granted(records: int, size_bytes: int) -> StreamCredit:
    credit = StreamCredit(BOUND)
    credit.grant(records, size_bytes)
    return credit


def test_a_stream_starts_without_credit() -> None:
    assert not StreamCredit(BOUND).send_limit()


def test_grants_add_and_the_scarcer_stops() -> None:
    credit = granted(2, 100)
    credit.grant(3, 0)
    assert credit.send_limit() == SendLimit(5, 100)
    assert not granted(5, 0).send_limit()
    assert not granted(0, 5).send_limit()


def test_one_record_may_be_larger_than_the_byte_credit() -> None:
    credit = granted(5, 10)
    assert credit.send_limit().fits(1, 500)
    assert not credit.send_limit().fits(2, 500)
    credit.send(1, 500, ())
    assert not credit.send_limit()
    credit.grant(0, 490)
    assert not credit.send_limit()
    credit.grant(0, 1)
    assert credit.send_limit() == SendLimit(4, 1)


def test_what_is_not_acknowledged_is_bounded() -> None:
    credit = granted(100, 100_000)
    credit.send(2, BOUND, ())
    assert not credit.send_limit()
    credit.acknowledge(2)
    assert credit.send_limit() == SendLimit(98, BOUND)


def test_an_acknowledgement_counts_whole_messages() -> None:
    credit = granted(100, 100_000)
    credit.send(2, 20, (Offset(2),))
    credit.send(3, 30, (Offset(5),))
    assert credit.acknowledge(1) is None
    assert credit.unacknowledged_bytes == 50
    assert credit.acknowledge(4) == (2,)
    assert credit.acknowledge(5) == (5,)
    assert credit.acknowledge(3) is None
    assert credit.acknowledged_number == 5


def test_an_acknowledgement_of_a_record_that_was_not_sent_is_refused() -> None:
    credit = granted(10, 1000)
    credit.send(2, 20, ())
    with pytest.raises(Refused, match="the last one was 2"):
        credit.acknowledge(3)


def test_a_seek_starts_an_epoch_with_nothing_in_flight_and_keeps_the_credit() -> None:
    credit = granted(10, 1000)
    credit.send(4, 400, ())
    assert credit.seek() == 1
    assert credit.unacknowledged_bytes == 0
    assert credit.send_limit() == SendLimit(6, 600)


def test_a_position_that_moved_without_records_is_processed_with_the_message_before_it() -> None:
    credit = granted(10, 1000)
    assert credit.skip((Offset(3),)) == (3,)
    credit.send(2, 20, (Offset(5),))
    assert credit.skip((Offset(8),)) is None
    assert credit.acknowledge(2) == (8,)


def test_a_paused_stream_is_sent_nothing() -> None:
    credit = granted(10, 1000)
    credit.is_paused = True
    assert not credit.send_limit()
    credit.is_paused = False
    assert credit.send_limit()


def test_grants_are_capped() -> None:
    credit = granted(CREDIT_RECORDS_MAX, 1)
    credit.grant(CREDIT_RECORDS_MAX, 1)
    assert credit.records == CREDIT_RECORDS_MAX


class CreditMachine(RuleBasedStateMachine):
    """In flight is exactly what was sent and not acknowledged, and never grows beyond one message
    over the bound.
    """

    def __init__(self) -> None:
        super().__init__()
        self.credit = StreamCredit(BOUND)
        self.messages: list[tuple[int, int]] = []

    @rule(records=st.integers(0, 50), size_bytes=st.integers(0, 800))
    def grant(self, records: int, size_bytes: int) -> None:
        self.credit.grant(records, size_bytes)

    @precondition(lambda self: self.credit.send_limit())
    @rule(records=st.integers(1, 20), size_bytes=st.integers(1, 400))
    def send(self, records: int, size_bytes: int) -> None:
        if self.credit.send_limit().fits(records, size_bytes):
            number = self.credit.send(records, size_bytes, ())
            self.messages.append((number, size_bytes))

    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, self.credit.sent_number))
        self.credit.acknowledge(number)
        self.messages = [each for each in self.messages if each[0] > number]

    @rule()
    def seek(self) -> None:
        self.credit.seek()
        self.messages = []

    @invariant()
    def in_flight_is_what_was_sent(self) -> None:
        assert self.credit.unacknowledged_bytes == sum(size for _, size in self.messages)
        assert self.credit.unacknowledged_bytes < BOUND + 400


TestCreditMachine = CreditMachine.TestCase
TestCreditMachine.settings = settings(max_examples=50, stateful_step_count=30)
