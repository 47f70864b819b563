"""Errors of producers and consumers; those of schemas and registries are in `serde.errors`.

DeliveryError       a record was not written, or that is unknown
WaitTimeoutError    the time that the caller allowed is over; also a TimeoutError
RebalancedError     partitions moved to another member of the group
ClosedError         used after `close()`
"""

from penstock.serde.errors import ClientError


class DeliveryError(ClientError):
    """A record was not written, or that is unknown."""

    def __init__(
        self, topic: str, message: str, *, retriable: bool, row: int | None = None
    ) -> None:
        which = "a record" if row is None else f"event {row}"
        super().__init__(f"{which} for {topic} was not delivered: {message}")
        self.topic = topic
        self.retriable = retriable
        self.row = row  # of those that were sent together; the first is 0


class WaitTimeoutError(ClientError, TimeoutError):
    """The time that the caller allowed is over; what it waited for may still happen."""

    retriable = True


class RebalancedError(ClientError):
    """Events went to another member of the group before they could be committed."""

    retriable = True


class ClosedError(ClientError):
    """Used after it was closed."""
