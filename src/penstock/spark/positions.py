"""What the cluster says of the topics that are read: which there are, where they begin and end.

Runs on the driver, over the process's kept connections. Decides nothing about tasks.
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
from penstock.spark.planning import OffsetRange, Position, known_id
from penstock.spark.read_options import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    Anchor,
    AtOffsets,
    AtTimes,
    Bound,
    Partitions,
    Pattern,
    Selection,
    Topics,
)

_INTERNAL: Final = "__"  # what a pattern never means
_SAMPLE_BYTES: Final = 64 << 10
_BY_NAME: Final = {EARLIEST_OFFSET: EARLIEST, LATEST_OFFSET: LATEST}


def selected(
    cluster: BlockingCluster, selection: Selection, *, skips_missing: bool = False
) -> list[TopicPartition]:
    """The partitions to read, as the cluster says now.

    What is named and not there is Refused, or left out if `skips_missing`.
    """
    if skips_missing and not isinstance(selection, Pattern):
        selection = _those_there(cluster, selection)
    match selection:
        case Topics(names):
            return cluster.run(partitions_of(names)) if names else []
        case Pattern(expression):
            matches = re.compile(expression).fullmatch
            matching = [name for name in topic_names(cluster) if matches(name)]
            return cluster.run(partitions_of(matching)) if matching else []
        case Partitions(partitions):
            known = cluster.run(partitions_of(dict.fromkeys(one.topic for one in partitions)))
            missing = sorted(set(partitions) - set(known))
            if missing:
                raise Refused(
                    ErrorCode.unknown_topic_or_partition, f"there is no partition {missing[0]}"
                )
            return list(partitions)
        case other:
            assert_never(other)


def _those_there(cluster: BlockingCluster, selection: Topics | Partitions) -> Selection:
    topics = cluster.run(_all_topics)
    if isinstance(selection, Topics):
        return Topics(tuple(name for name in selection.names if name in topics))
    return Partitions(
        tuple(
            place
            for place in selection.partitions
            if place.topic in topics and place.partition in topics[place.topic].partitions
        )
    )


def topic_names(cluster: BlockingCluster) -> list[str]:
    """All topics but internal ones, sorted."""
    return sorted(name for name in cluster.run(_all_topics) if not name.startswith(_INTERNAL))


def check_exist(cluster: BlockingCluster, names: Sequence[str]) -> None:
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


def ends(
    cluster: BlockingCluster, partitions: list[TopicPartition], isolation: Isolation
) -> Position:
    """The end of each, as far as this isolation lets one read."""
    return at(cluster, cluster.run(end_offsets(partitions, isolation=isolation)))


def at(cluster: BlockingCluster, offsets: Mapping[TopicPartition, Offset]) -> Position:
    """These offsets, of the topics as they were described last."""
    ids = {}
    for name in dict.fromkeys(place.topic for place in offsets):
        topic = cluster.routes.topics.get(name)
        topic_id = None if topic is None else known_id(topic.topic_id)
        if topic_id is not None:
            ids[name] = topic_id
    return Position(offsets, ids)


def resolve(
    cluster: BlockingCluster, partitions: list[TopicPartition], bound: Bound, isolation: Isolation
) -> Position:
    """Where a bound lies in each of these partitions."""
    match bound:
        case Anchor.LATEST:
            return ends(cluster, partitions, isolation)
        case Anchor.EARLIEST:
            return at(cluster, cluster.run(start_offsets(partitions)))
        case AtOffsets(given):
            return at(cluster, _at_offsets(cluster, partitions, given, isolation))
        case AtTimes(times, latest_if_none):
            given_times = times if isinstance(times, Mapping) else dict.fromkeys(partitions, times)
            _same_partitions(partitions, given_times)
            return at(cluster, _at_times(cluster, given_times, latest_if_none, isolation))
        case other:
            assert_never(other)


def _at_offsets(
    cluster: BlockingCluster,
    partitions: list[TopicPartition],
    given: Mapping[TopicPartition, int],
    isolation: Isolation,
) -> dict[TopicPartition, Offset]:
    _same_partitions(partitions, given)
    named = {place: _BY_NAME[one] for place, one in given.items() if one in _BY_NAME}
    found = cluster.run(list_offsets(named, isolation=isolation)) if named else {}
    return {
        place: found[place].offset if place in found else Offset(one)
        for place, one in given.items()
    }


def _at_times(
    cluster: BlockingCluster,
    times: Mapping[TopicPartition, Millis],
    latest_if_none: bool,
    isolation: Isolation,
) -> dict[TopicPartition, Offset]:
    found = cluster.run(list_offsets(times, isolation=isolation))
    late = [place for place, one in found.items() if one.offset < 0]
    if late and not latest_if_none:
        raise Refused(
            ErrorCode.offset_not_available,
            f"{late[0]} has no record at or after {times[late[0]]}; with"
            " startingOffsetsByTimestampStrategy=latest it would begin at its end",
        )
    last = cluster.run(end_offsets(late, isolation=isolation)) if late else {}
    return {place: last.get(place, one.offset) for place, one in found.items()}


def _same_partitions(
    partitions: list[TopicPartition], given: Mapping[TopicPartition, object]
) -> None:
    """As Spark's source has it: every partition is named, and no other."""
    missing, extra = set(partitions) - set(given), set(given) - set(partitions)
    if missing or extra:
        what = f"says nothing of {min(missing)}" if missing else f"has {min(extra)}, unknown here"
        raise Refused(ErrorCode.invalid_config, f"the JSON of offsets or times {what}")


def offset_bytes(
    cluster: BlockingCluster, ranges: list[OffsetRange], isolation: Isolation
) -> float:
    """About how many bytes of log an offset takes, from the first few batches of each range."""
    settings = FetchSettings(isolation=isolation, chunk_bytes=_SAMPLE_BYTES)
    size_bytes = offsets = 0
    for one in ranges:
        stream = cluster.stream(fetch_range(one.partition, one.start, one.end, settings=settings))
        for chunk in stream:
            size_bytes += len(chunk.records)
            offsets += chunk.end_offset - chunk.start_offset
            break
    return size_bytes / offsets if offsets else 1.0
