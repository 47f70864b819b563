"""How far a stream is behind its topics, from the progress that Spark reports.

    class Watch(StreamingQueryListener):
        def onQueryProgress(self, event):
            for source in event.progress.sources:
                print(source.description, offsets_behind(source))

Spark 4.3 has no way for a Python source to fill `sources[].metrics`, so they are made here of the
offsets that it does report, under the names that Spark's own Kafka source uses.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

AVERAGE: Final = "avgOffsetsBehindLatest"
GREATEST: Final = "maxOffsetsBehindLatest"
LEAST: Final = "minOffsetsBehindLatest"


def offsets_behind(source: Any) -> dict[str, str]:
    """`avg`, `max` and `minOffsetsBehindLatest` over the partitions of one source.

    `source` is one of `progress.sources`, or the same as a dict (`query.lastProgress["sources"]`).
    Offsets count aborted records and transaction markers too. Empty for a source of another format,
    and before its first batch.
    """
    end, latest = (_offsets(_part(source, name)) for name in ("endOffset", "latestOffset"))
    behind = [max(0, offset - end.get(place, 0)) for place, offset in latest.items()]
    if not behind or not end:
        return {}
    return {
        AVERAGE: str(sum(behind) / len(behind)),
        GREATEST: str(max(behind)),
        LEAST: str(min(behind)),
    }


def _part(source: Any, name: str) -> Any:
    return source.get(name) if isinstance(source, Mapping) else getattr(source, name)


def _offsets(told: Any) -> dict[tuple[str, str], int]:
    """What `Position.to_spark` made, as Spark shows it: a text in some places, a dict in others."""
    try:
        known = json.loads(told) if isinstance(told, str) else told
        rows = known["offsets"].items()
        return {(topic, one): int(at) for topic, some in rows for one, at in some.items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}
