"""What the cluster reports about the topics that are read: which exist, where they start and end.

Runs on the driver, over the thread's connections. Decides nothing about tasks.
"""

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Final, assert_never

from penstock.errors import ErrorCode, Refused
from penstock.link.blocking import BlockingCluster
from penstock.link.fetch_range import FetchSettings, fetch_range
from penstock.link.offsets import (
    EARLIEST,
    LATEST,
    Isolation,
    end_offsets,
    list_offsets,
    partitions_of,
    start_offsets,
)
from penstock.link.operation import Steps
from penstock.link.routing import Routes, TopicMetadata
from penstock.model import Millis, Offset, TopicPartition
from penstock.spark.planning import OffsetRange, StreamPosition, known_id
from penstock.spark.read_options import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    AtOffsets,
    AtTimes,
    Bound,
    LogEnd,
    PartitionSelection,
    PatternSelection,
    Selection,
    TopicSelection,
)

_INTERNAL: Final = "__"  # topics that a pattern never matches
_SAMPLE_BYTES: Final = 64 << 10
_BY_NAME: Final = {EARLIEST_OFFSET: EARLIEST, LATEST_OFFSET: LATEST}


def select_partitions(
    cluster: BlockingCluster, selection: Selection, *, skip_missing: bool = False
) -> list[TopicPartition]:
    """The partitions to read, as they exist now.

    A named topic or partition that does not exist is Refused, or left out with `skip_missing`.
    """
    if skip_missing and not isinstance(selection, PatternSelection):
        selection = _existing(cluster, selection)
    match selection:
        case TopicSelection(names):
            return cluster.run(partitions_of(names)) if names else []
        case PatternSelection(expression):
            matches = re.compile(expression).fullmatch
            names = tuple(name for name in topic_names(cluster) if matches(name))
            return cluster.run(partitions_of(names)) if names else []
        case PartitionSelection(partitions):
            topics = dict.fromkeys(partition.topic for partition in partitions)
            missing = sorted(set(partitions) - set(cluster.run(partitions_of(topics))))
            if missing:
                raise Refused(
                    ErrorCode.unknown_topic_or_partition,
                    f"partition {missing[0]} does not exist",
                )
            return list(partitions)
        case other:
            assert_never(other)


def _existing(
    cluster: BlockingCluster, selection: TopicSelection | PartitionSelection
) -> Selection:
    topics = cluster.run(_all_topics)
    if isinstance(selection, TopicSelection):
        return TopicSelection(tuple(name for name in selection.names if name in topics))
    return PartitionSelection(
        tuple(
            partition
            for partition in selection.partitions
            if partition.topic in topics
            and partition.partition in topics[partition.topic].partitions
        )
    )


def topic_names(cluster: BlockingCluster) -> list[str]:
    """All topics except internal ones, sorted."""
    return sorted(name for name in cluster.run(_all_topics) if not name.startswith(_INTERNAL))


def check_topics_exist(cluster: BlockingCluster, names: Sequence[str]) -> None:
    """Refused names the first of these topics that does not exist, and the nearest that does."""
    topics = cluster.run(_all_topics)
    for name in names:
        if name not in topics:
            near = difflib.get_close_matches(name, topics, 1)
            hint = f"did you mean {near[0]}?" if near else "check the name or create it"
            raise Refused(
                ErrorCode.unknown_topic_or_partition, f"topic {name} does not exist: {hint}"
            )


def _all_topics(routes: Routes) -> Steps[dict[str, TopicMetadata]]:
    return (
        yield from routes.with_retries(
            "list topics", lambda: routes.request_metadata(None), lambda: None
        )
    )


def end_position(
    cluster: BlockingCluster, partitions: list[TopicPartition], isolation: Isolation
) -> StreamPosition:
    """The end of each partition, as far as this isolation level can read."""
    return position_at(cluster, cluster.run(end_offsets(partitions, isolation=isolation)))


def position_at(
    cluster: BlockingCluster, offsets: Mapping[TopicPartition, Offset]
) -> StreamPosition:
    """These offsets, with the topic ids of the latest metadata."""
    ids = {}
    for name in dict.fromkeys(partition.topic for partition in offsets):
        topic = cluster.routes.topics.get(name)
        topic_id = None if topic is None else known_id(topic.topic_id)
        if topic_id is not None:
            ids[name] = topic_id
    return StreamPosition(offsets, ids)


def resolve_bound(
    cluster: BlockingCluster, partitions: list[TopicPartition], bound: Bound, isolation: Isolation
) -> StreamPosition:
    """The offset that a bound means in each of these partitions."""
    match bound:
        case LogEnd.LATEST:
            return end_position(cluster, partitions, isolation)
        case LogEnd.EARLIEST:
            return position_at(cluster, cluster.run(start_offsets(partitions)))
        case AtOffsets(offsets):
            return position_at(cluster, _at_offsets(cluster, partitions, offsets, isolation))
        case AtTimes(times, latest_if_none):
            by_partition = times if isinstance(times, Mapping) else dict.fromkeys(partitions, times)
            _check_same_partitions(partitions, by_partition)
            return position_at(cluster, _at_times(cluster, by_partition, latest_if_none, isolation))
        case other:
            assert_never(other)


def _at_offsets(
    cluster: BlockingCluster,
    partitions: list[TopicPartition],
    offsets: Mapping[TopicPartition, int],
    isolation: Isolation,
) -> dict[TopicPartition, Offset]:
    _check_same_partitions(partitions, offsets)
    named = {
        partition: _BY_NAME[offset] for partition, offset in offsets.items() if offset in _BY_NAME
    }
    listed = cluster.run(list_offsets(named, isolation=isolation)) if named else {}
    return {
        partition: listed[partition].offset if partition in listed else Offset(offset)
        for partition, offset in offsets.items()
    }


def _at_times(
    cluster: BlockingCluster,
    times: Mapping[TopicPartition, Millis],
    latest_if_none: bool,
    isolation: Isolation,
) -> dict[TopicPartition, Offset]:
    listed = cluster.run(list_offsets(times, isolation=isolation))
    without = [partition for partition, row in listed.items() if row.offset < 0]
    if without and not latest_if_none:
        raise Refused(
            ErrorCode.offset_not_available,
            f"{without[0]} has no record at or after {times[without[0]]}; with"
            " startingOffsetsByTimestampStrategy=latest it would start at its end",
        )
    ends = cluster.run(end_offsets(without, isolation=isolation)) if without else {}
    return {partition: ends.get(partition, row.offset) for partition, row in listed.items()}


def _check_same_partitions(
    partitions: list[TopicPartition], given: Mapping[TopicPartition, object]
) -> None:
    """As in Spark's source: every partition is named, and no other."""
    missing, extra = set(partitions) - set(given), set(given) - set(partitions)
    if missing or extra:
        problem = f"lacks {min(missing)}" if missing else f"has {min(extra)}, which does not exist"
        raise Refused(ErrorCode.invalid_config, f"the JSON of offsets or times {problem}")


def mean_offset_bytes(
    cluster: BlockingCluster, ranges: list[OffsetRange], isolation: Isolation
) -> float:
    """About how many bytes of log an offset takes, from the first few batches of each range."""
    settings = FetchSettings(isolation=isolation, chunk_bytes=_SAMPLE_BYTES)
    size_bytes = offset_count = 0
    for offsets in ranges:
        for chunk in cluster.stream(
            fetch_range(offsets.partition, offsets.start, offsets.end, settings=settings)
        ):
            size_bytes += len(chunk.records)
            offset_count += chunk.end_offset - chunk.start_offset
            break
    return size_bytes / offset_count if offset_count else 1.0
