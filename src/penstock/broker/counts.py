"""What a broker counts while it serves: plain integers and lists, read when it is scraped.

An operation adds to an attribute or a list and nothing else, so that counting stays within two
percent of the smallest request. Nothing here depends on a client: the lists are as long as the
table of APIs and the list of error codes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias, get_args, get_type_hints

from penstock.errors import ErrorCode
from penstock.metrics.histogram import Histogram
from penstock.metrics.row import BYTES, SECONDS

if TYPE_CHECKING:
    from penstock.broker.handler import ApiTable
    from penstock.broker.partition import Leadership

ReadErrors: TypeAlias = Callable[[Any], "list[ErrorCode]"]

_TOPICS_AND_PARTITIONS: Final = 2  # how deep the codes of most responses are


class TopicCounts:
    """One topic's counts, shared by its partitions on this broker."""

    __slots__ = (
        "batch_bytes",
        "elections",
        "isr_expansions",
        "isr_shrinks",
        "received_bytes",
        "records",
        "sent_bytes",
    )

    def __init__(self) -> None:
        self.received_bytes: int = 0
        self.records: int = 0
        self.sent_bytes: int = 0
        self.elections: int = 0
        self.isr_shrinks: int = 0
        self.isr_expansions: int = 0
        self.batch_bytes: Histogram = Histogram(BYTES)

    def note_batch(self, size_bytes: int, records: int) -> None:
        """A batch was appended by the leader."""
        self.received_bytes += size_bytes
        self.records += records
        self.batch_bytes.observe(size_bytes)

    def note_change(self, old: Leadership, new: Leadership) -> None:
        """The controller decided anew about a partition."""
        self.elections += new.leader != old.leader
        self.isr_shrinks += len(new.isr) < len(old.isr)
        self.isr_expansions += len(new.isr) > len(old.isr)

    def add(self, other: TopicCounts) -> None:
        """Add the counts of a topic that is deleted."""
        self.elections += other.elections
        self.isr_shrinks += other.isr_shrinks
        self.isr_expansions += other.isr_expansions
        self.batch_bytes.add(other.batch_bytes)


class ApiCounts:
    """The requests of one API."""

    __slots__ = ("errors", "ok", "read_errors", "seconds", "waits")

    def __init__(self, read_errors: ReadErrors) -> None:
        self.ok: int = 0
        self.errors: int = 0
        self.seconds: Histogram = Histogram(SECONDS)
        self.waits: Histogram = Histogram(SECONDS)
        self.read_errors: ReadErrors = read_errors


class RequestCounts:
    """The requests of a broker, by API and by error code."""

    __slots__ = ("by_api", "by_error")

    def __init__(self, api_table: ApiTable) -> None:
        self.by_api: dict[int, ApiCounts] = {
            int(row.api): ApiCounts(errors_of(row.message.response)) for row in api_table.rows
        }
        self.by_error: dict[ErrorCode, int] = dict.fromkeys(ErrorCode, 0)
        del self.by_error[ErrorCode.none]

    def note(self, api: int, response: object) -> None:
        """A request has its response; None if it gets none."""
        counts = self.by_api[api]
        if response is not None and (errors := counts.read_errors(response)):
            counts.errors += 1
            for code in errors:
                self.by_error[code] += 1
        else:
            counts.ok += 1


def errors_of(response: type) -> ReadErrors:
    """A function that finds the error codes, other than none, in a response of this type."""
    paths = _paths(response)
    if len(paths) == 1 and len(paths[0]) == _TOPICS_AND_PARTITIONS + 1:
        topics, partitions, code = paths[0]
        return lambda found: [
            partition[code]
            for topic in found[topics]
            for partition in topic[partitions]
            if partition[code]
        ]
    return lambda found: [code for path in paths for code in _codes(found, path)]


def _paths(message: type) -> list[tuple[int, ...]]:
    """Where a message has error codes: the position of a field, after those that lead to it."""
    paths: list[tuple[int, ...]] = []
    for position, kind in enumerate(get_type_hints(message).values()):
        if kind is ErrorCode:
            paths.append((position,))
        for element in get_args(kind):
            if hasattr(element, "_fields"):
                paths += [(position, *rest) for rest in _paths(element)]
    return paths


def _codes(message: Any, path: tuple[int, ...]) -> list[ErrorCode]:
    value = message[path[0]]
    if len(path) == 1:
        return [value] if value else []
    return [code for element in value or () for code in _codes(element, path[1:])]
