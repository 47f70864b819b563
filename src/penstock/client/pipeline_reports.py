"""What a streaming query reports about itself, as records of a compacted topic. Pure.

The key is the query's id, so the topic has the latest report of each query. A query reports after
every trigger; one that is silent for three of them is stale: its driver may be gone.
"""

from typing import Any, Final, Literal

import msgspec

from penstock.model import Millis

TOPIC: Final = "_penstock_pipelines"
SILENT_TRIGGERS: Final = 3
INTERVAL_MS_MIN: Final = 10_000  # Spark reports an idle query this often
ERROR_CHARACTERS_MAX: Final = 2_000


class PipelineReport(msgspec.Struct, frozen=True):
    """One query at a time."""

    id: str
    run_id: str
    updated: int  # ms
    name: str | None = None
    state: Literal["running", "stopped", "failed"] = "running"
    batch: int | None = None
    input_rate: float | None = None  # rows per second
    processed_rate: float | None = None
    watermark: str | None = None
    lag: int | None = None  # offsets behind the latest, in all partitions
    interval_ms: int = INTERVAL_MS_MIN  # between reports
    last_error: str | None = None

    def record(self) -> tuple[bytes, bytes]:
        """Key and value."""
        return self.id.encode(), msgspec.json.encode(self)

    def state_at(self, now: Millis) -> str:
        """Its state, or `stale` if it should have reported since."""
        silent_ms = SILENT_TRIGGERS * max(self.interval_ms, INTERVAL_MS_MIN)
        is_stale = self.state == "running" and now - self.updated > silent_ms
        return "stale" if is_stale else self.state

    def document(self, now: Millis) -> dict[str, Any]:
        """As pages get it."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        return {
            **document,
            "state": self.state_at(now),
            "batch": None if self.batch is None else str(self.batch),
            "lag": None if self.lag is None else str(self.lag),
            "updated": str(self.updated),
        }


def read_report(value: bytes | None) -> PipelineReport | None:
    """The report in a record; None if it is none, or of another program."""
    try:
        return msgspec.json.decode(value or b"", type=PipelineReport)
    except msgspec.DecodeError:
        return None
