"""What a transaction needs of a consumer: where it is, and how to go back there."""

from collections.abc import Sequence
from typing import Any, Protocol

from penstock.client.outbox import Outgoing


class Offsets(Protocol):
    """A consumer whose offsets are committed by somebody else's transaction."""

    def positions(self) -> list[Any]:
        """confluent-kafka's TopicPartitions: what comes after all that was handed over."""

    def group_metadata(self) -> Any:
        """Who the consumer is in its group: the broker declines if that is over."""

    def set_aside(self) -> Sequence[Outgoing]:
        """Records for quarantine since the last transaction."""

    def settled(self) -> None:
        """All that was handed over is committed."""

    def rewind(self) -> None:
        """None of it is: hand it over again."""


class Consuming(Protocol):
    """A consumer that a transaction can speak for."""

    @property
    def offsets(self) -> Offsets:
        """What it handed over and nobody committed yet."""
