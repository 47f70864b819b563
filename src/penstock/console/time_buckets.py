"""Records by time, counted from the offsets at the edges of buckets. Pure."""

from collections.abc import Sequence
from typing import Any


def bucket_edges(began: int, ended: int, buckets: int) -> list[int]:
    """Times from `began` to `ended` in steps of whole milliseconds, both ends included."""
    span = ended - began
    count = min(buckets, span)
    return [began + span * number // count for number in range(count + 1)]


def buckets_of(edges: Sequence[int], offsets: Sequence[int]) -> list[dict[str, Any]]:
    """The records between two edges; `offsets` are sums over partitions, one for each edge.

    Timestamps out of order may let an offset go back: such a bucket counts as empty.
    """
    rows = []
    for index in range(len(edges) - 1):
        records = max(0, offsets[index + 1] - offsets[index])
        rows.append(
            {"from": str(edges[index]), "until": str(edges[index + 1]), "records": str(records)}
        )
    return rows
