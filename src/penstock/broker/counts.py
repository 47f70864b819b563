"""What a broker counts while it serves: plain integers and lists, read when it is scraped.

An operation adds to an attribute or a list and nothing else, so that counting stays within two
percent of the smallest request. Nothing here depends on a client: the lists are as long as the
table of APIs and the list of error codes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias, get_args, get_type_hints

from penstock.errors import ErrorCode
from penstock.metrics.histogram import Histogram
from penstock.metrics.row import SECONDS

if TYPE_CHECKING:
    from penstock.broker.handler import ApiTable
    from penstock.broker.leadership import Leadership
    from penstock.protocol.api import Api

ReadErrors: TypeAlias = Callable[[Any], "Sequence[ErrorCode]"]

SIZES: Final = 33  # a batch has less than 2**32 bytes
_TOPICS_AND_PARTITIONS: Final = 2  # how deep the codes of most responses are


class TopicCounts:
    """One topic's counts, shared by its partitions on this broker."""

    __slots__ = (
        "batches",
        "elections",
        "isr_expansions",
        "isr_shrinks",
        "received_bytes",
        "records",
        "sent_bytes",
        "unclean_elections",
    )

    def __init__(self) -> None:
        self.received_bytes: int = 0
        self.records: int = 0
        self.sent_bytes: int = 0
        self.elections: int = 0
        self.unclean_elections: int = 0
        self.isr_shrinks: int = 0
        self.isr_expansions: int = 0
        self.batches: list[int] = [0] * SIZES  # by the length of their size in bits

    def note_batch(self, size_bytes: int, records: int) -> None:
        """A batch was appended by the leader."""
        self.received_bytes += size_bytes
        self.records += records
        self.batches[size_bytes.bit_length()] += 1

    def note_change(self, old: Leadership, new: Leadership) -> None:
        """The controller changed leader or replicas of a partition."""
        is_elected = new.leader != old.leader
        self.elections += is_elected
        self.unclean_elections += is_elected and new.is_recovering
        self.isr_shrinks += len(new.isr) < len(old.isr)
        self.isr_expansions += len(new.isr) > len(old.isr)

    def add(self, other: TopicCounts) -> None:
        """Add the counts of another topic."""
        self.elections += other.elections
        self.unclean_elections += other.unclean_elections
        self.isr_shrinks += other.isr_shrinks
        self.isr_expansions += other.isr_expansions
        self.received_bytes += other.received_bytes
        for bits, count in enumerate(other.batches):
            self.batches[bits] += count


class ApiCounts:
    """The requests of one API."""

    __slots__ = ("errors", "read_errors", "seconds", "waits")

    def __init__(self, read_errors: ReadErrors) -> None:
        self.errors: int = 0
        self.seconds: Histogram = Histogram(SECONDS)
        self.waits: Histogram = Histogram(SECONDS)
        self.read_errors: ReadErrors = read_errors

    @property
    def requests(self) -> int:
        """All that have begun."""
        return sum(self.seconds.counts)


class RequestCounts:
    """The requests of a broker, by API and by error code."""

    __slots__ = ("apis", "by_api", "by_error")

    def __init__(self, api_table: ApiTable) -> None:
        self.apis: tuple[Api, ...] = tuple(row.api for row in api_table.rows)
        # A list by number, because an enumeration's hash is computed in Python.
        unused = ApiCounts(lambda _: ())
        self.by_api: list[ApiCounts] = [unused] * (max(self.apis) + 1)
        for row in api_table.rows:
            self.by_api[row.api] = ApiCounts(errors_of(row.message.response))
        self.by_error: dict[ErrorCode, int] = dict.fromkeys(ErrorCode, 0)
        del self.by_error[ErrorCode.none]

    def note_errors(self, api: int, errors: Sequence[ErrorCode]) -> None:
        """A response has error codes."""
        self.by_api[api].errors += 1
        for code in errors:
            self.by_error[code] += 1


def errors_of(response: type) -> ReadErrors:
    """A function that finds the error codes, other than none, in a response of this type."""
    paths = _paths(response)
    if len(paths) == 1 and len(paths[0]) == _TOPICS_AND_PARTITIONS + 1:
        topics, partitions, code = paths[0]

        def errors_of_partitions(response: Any) -> Sequence[ErrorCode]:
            for topic in response[topics]:
                for partition in topic[partitions]:
                    if partition[code]:
                        return _codes(response, paths[0])
            return ()

        return errors_of_partitions
    return lambda response: [code for path in paths for code in _codes(response, path)]


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
