"""Flow control of one WebSocket stream: credit, acknowledgements, pause, epochs.

The client grants credit in records and bytes; grants add up to a limit, and the scarcer of the two
stops the stream. While both are above zero one record may be sent, whatever its size: its bytes may
take the byte credit below zero. What was sent and not acknowledged is counted and bounded too, so a
client that grants without limit and acknowledges nothing stops at the bound. Pure: no clock, no
socket.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from penstock.errors import ErrorCode, Refused
from penstock.model import Offset

CREDIT_RECORDS_MAX: Final = 1_000_000
CREDIT_BYTES_MAX: Final = 64 << 20


class SendLimit(NamedTuple):
    """What a stream may be sent now. A first record fits if both are above zero."""

    records: int
    size_bytes: int

    def __bool__(self) -> bool:
        return self.records > 0 and self.size_bytes > 0

    def fits(self, records: int, size_bytes: int) -> bool:
        """Whether a message of one or more records may be sent as it is."""
        if not self:
            return False
        return records == 1 or (records <= self.records and size_bytes <= self.size_bytes)


SEND_NOTHING: Final = SendLimit(0, 0)


class SentMessage(NamedTuple):
    """A message that was sent and is not acknowledged."""

    number: int  # of its last record; records are numbered from 1
    size_bytes: int
    offsets: tuple[Offset, ...]  # the stream's position after it


@dataclass(slots=True)
class StreamCredit:
    """The state of one stream. `unacknowledged_bytes` is what is in flight."""

    in_flight_bytes_max: int
    records: int = 0
    size_bytes: int = 0
    epoch: int = 0
    is_paused: bool = False
    sent_number: int = 0
    acknowledged_number: int = 0
    unacknowledged_bytes: int = 0
    _sent: deque[SentMessage] = field(default_factory=deque)

    def send_limit(self) -> SendLimit:
        """What may be sent now."""
        if self.is_paused:
            return SEND_NOTHING
        left = self.in_flight_bytes_max - self.unacknowledged_bytes
        return SendLimit(self.records, min(self.size_bytes, left))

    def grant(self, records: int, size_bytes: int) -> None:
        """Add to the credit."""
        if records < 0 or size_bytes < 0:
            raise Refused(ErrorCode.invalid_request, "a grant of credit is not negative")
        self.records = min(self.records + records, CREDIT_RECORDS_MAX)
        self.size_bytes = min(self.size_bytes + size_bytes, CREDIT_BYTES_MAX)

    def send(self, records: int, size_bytes: int, offsets: tuple[Offset, ...]) -> int:
        """Count a message that is being sent; returns the number of its last record."""
        assert self.send_limit().fits(records, size_bytes), "sent without credit"
        self.records -= records
        self.size_bytes -= size_bytes
        self.sent_number += records
        self.unacknowledged_bytes += size_bytes
        self._sent.append(SentMessage(self.sent_number, size_bytes, offsets))
        return self.sent_number

    def acknowledge(self, number: int) -> tuple[Offset, ...] | None:
        """All records up to this number are processed; returns the position after the last whole
        message among them, None if there is no further one.

        Lower numbers than before change nothing.
        """
        if number > self.sent_number:
            raise Refused(
                ErrorCode.invalid_request,
                f"record {number} was not sent; the last one was {self.sent_number}",
            )
        offsets = None
        while self._sent and self._sent[0].number <= number:
            message = self._sent.popleft()
            self.unacknowledged_bytes -= message.size_bytes
            offsets = message.offsets
        self.acknowledged_number = max(self.acknowledged_number, number)
        return offsets

    def skip(self, offsets: tuple[Offset, ...]) -> tuple[Offset, ...] | None:
        """The position moved without records for the client; returns it if all before it is
        acknowledged, else the last message's acknowledgement does.
        """
        if not self._sent:
            return offsets
        self._sent[-1] = self._sent[-1]._replace(offsets=offsets)
        return None

    def seek(self) -> int:
        """Start an epoch: records of earlier ones are no longer in flight. Credit stays."""
        self.epoch += 1
        self._sent.clear()
        self.unacknowledged_bytes = 0
        self.acknowledged_number = self.sent_number
        return self.epoch
