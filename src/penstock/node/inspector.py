"""Opens produced batches where a topic wants that: small ones at once, large ones as vectors.

The compiled kernels cost a second and some hundred megabytes when they are first loaded, so a
broker that never meets a large batch of such a topic never loads them. Called in threads.
"""

from functools import cache
from typing import Any, Final

from penstock.broker.accepting import RecordFacts
from penstock.broker.plain_inspector import PlainInspector
from penstock.model import Millis, Offset
from penstock.protocol.batch import read_header
from penstock.protocol.records import OPENED_BYTES_MAX

VECTOR_RECORDS_LEAST: Final = 200  # below, a Python loop takes less than a millisecond
TIME_VECTOR_RECORDS_LEAST: Final = 50_000  # looking for a time is rare, and 0.1 s is soon enough


class Inspector(PlainInspector):
    """Implements `broker.accepting.RecordInspector`."""

    def find_time(
        self, batch: memoryview, timestamp: Millis, start_offset: Offset, end_offset: Offset
    ) -> tuple[Offset, Millis] | None:
        """The first record in [start_offset, end_offset) of that time or later."""
        if read_header(batch).record_count < TIME_VECTOR_RECORDS_LEAST:
            return super().find_time(batch, timestamp, start_offset, end_offset)
        opening = _opening()
        columns = opening.open_batches(
            batch,
            start_offset=start_offset,
            end_offset=end_offset,
            wanted=opening.Wanted(keys=False, values=False, headers=False),
            limits=opening.Limits(batch_bytes_max=OPENED_BYTES_MAX),
        )
        late_enough = columns.timestamps >= timestamp
        if not late_enough.any():
            return None
        row = int(late_enough.argmax())
        return Offset(int(columns.offsets[row])), Millis(int(columns.timestamps[row]))

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
