"""How far a stream is behind its topics, from the progress that Spark reports.

    class Watch(StreamingQueryListener):
        def onQueryProgress(self, event):
            for source in event.progress.sources:
                print(source.description, offsets_behind(source))

A Python source cannot fill `sources[].metrics` in Spark 4.3, so they are computed here from the
offsets that Spark reports, under the names that Spark's own Kafka source uses.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

AVERAGE: Final = "avgOffsetsBehindLatest"
MAXIMUM: Final = "maxOffsetsBehindLatest"
MINIMUM: Final = "minOffsetsBehindLatest"


def offsets_behind(source: Any) -> dict[str, str]:
    """`avg`, `max` and `minOffsetsBehindLatest` over the partitions of one source.

    `source` is one of `progress.sources`, or the same as a dict (`query.lastProgress["sources"]`).
    Offsets include aborted records and transaction markers. Empty for a source of another format,
    and before the first batch.
    """
    end, latest = (_offsets(_attribute(source, name)) for name in ("endOffset", "latestOffset"))
    behind = [max(0, offset - end.get(partition, 0)) for partition, offset in latest.items()]
    if not behind or not end:
        return {}
    return {
        AVERAGE: str(sum(behind) / len(behind)),
        MAXIMUM: str(max(behind)),
        MINIMUM: str(min(behind)),
    }


def _attribute(source: Any, name: str) -> Any:
    return source.get(name) if isinstance(source, Mapping) else getattr(source, name)


def _offsets(position: Any) -> dict[tuple[str, str], int]:
    """The offsets of `StreamPosition.to_spark`, which Spark shows as a text or as a dict."""
    try:
        document = json.loads(position) if isinstance(position, str) else position
        topics = document["offsets"].items()
        return {
            (topic, index): int(offset)
            for topic, offsets in topics
            for index, offset in offsets.items()
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}
