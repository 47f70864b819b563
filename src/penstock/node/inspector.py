"""Opens produced batches where a topic wants that: small ones at once, large ones as vectors.

The compiled kernels cost a second and some hundred megabytes when they are first loaded, so a
broker that never meets a large batch of such a topic never loads them. Called in threads.
"""

from functools import cache
from typing import Any, Final

from penstock.broker.accepting import RecordFacts
from penstock.broker.plain_inspector import PlainInspector
from penstock.model import Millis
from penstock.protocol.batch import read_header

VECTOR_RECORDS_LEAST: Final = 200  # below, a Python loop takes less than a millisecond


class Inspector(PlainInspector):
    """Implements `broker.accepting.RecordInspector`."""

    def inspect(
        self,
        batch: bytearray,
        *,
        earliest: Millis | None,
        latest: Millis | None,
        opened_bytes_max: int,
    ) -> RecordFacts:
        """Which records have no key, and which lie outside the bounds."""
        if read_header(batch).record_count < VECTOR_RECORDS_LEAST:
            return super().inspect(
                batch, earliest=earliest, latest=latest, opened_bytes_max=opened_bytes_max
            )
        opening = _opening()
        keys_only = opening.Wanted(keys=True, values=False, headers=False)
        limits = opening.Limits(batch_bytes_max=opened_bytes_max)
        columns = opening.open_batches(batch, wanted=keys_only, limits=limits)
        valid, timestamps = columns.keys.valid, columns.timestamps
        outside = timestamps != timestamps
        if earliest is not None:
            outside |= timestamps < earliest
        if latest is not None:
            outside |= timestamps > latest
        return RecordFacts(
            unkeyed=() if valid is None else (~valid).nonzero()[0],
            outside=outside.nonzero()[0],
        )


@cache
def _opening() -> Any:
    from penstock.columns import opening

    return opening
