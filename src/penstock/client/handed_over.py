"""What a consumer handed to its program and nobody committed yet, as a transaction needs it."""

from collections.abc import Sequence
from typing import Any

from penstock.client.intake import Intake
from penstock.client.outbox import Outgoing
from penstock.client.progress import Progress
from penstock.client.sieve import Sieve


class HandedOver:
    """Of one consumer; see `consuming.Offsets`."""

    def __init__(self, intake: Intake, progress: Progress, sieve: Sieve) -> None:
        self._intake = intake
        self._progress = progress
        self._sieve = sieve

    def positions(self) -> list[Any]:
        """What comes after all that was handed over."""
        return self._progress.positions()

    def group_metadata(self) -> Any:
        """Who the consumer is in its group."""
        return self._intake.group_metadata()

    def set_aside(self) -> Sequence[Outgoing]:
        """What belongs in quarantine with the transaction."""
        return self._sieve.take_asides()

    def settled(self) -> None:
        """A transaction committed all that was handed over."""
        self._progress.settled()

    def rewind(self) -> None:
        """A transaction was undone: what was handed over since the last one comes again."""
        self._sieve.take_asides()
        places = self._progress.unsettle()
        if places:
            self._intake.seek(places)
