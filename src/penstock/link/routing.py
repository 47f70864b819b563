"""The routes through a cluster: its brokers, the leaders of partitions, the coordinators.

State and steps without I/O. Metadata is requested again when it is old or invalidated: a refusal or
a lost connection invalidates it.
"""

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import wraps
from typing import Concatenate, Final, Generic, NamedTuple, ParamSpec, TypeAlias, TypeVar

from penstock.errors import ErrorCode, Refused
from penstock.link.operation import (
    BrokerRequest,
    Pause,
    Request,
    Steps,
    request_of,
    send,
    send_all,
    worse,
)
from penstock.link.settings import Address, LinkSettings, UnreachableError
from penstock.model import LeaderEpoch, Millis, NodeId, TopicId, TopicPartition
from penstock.protocol.messages.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from penstock.protocol.messages.metadata import (
    METADATA,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataTopic,
)

T = TypeVar("T")
ResponseT = TypeVar("ResponseT")
P = ParamSpec("P")

# Codes that may be temporary (a new topic, a byte that the network changed) or permanent (no such
# topic, a corrupt batch): retried, but not for long.
_PERHAPS_PERMANENT: Final = frozenset(
    {
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.corrupt_message,
    }
)


class CoordinatorKind(IntEnum):
    """What a coordinator coordinates."""

    GROUP = 0
    TRANSACTION = 1


@dataclass(frozen=True, slots=True)
class PartitionLeader:
    """The broker that leads a partition."""

    leader: NodeId  # -1: none at present
    leader_epoch: LeaderEpoch
    address: Address | None


class PartitionRoute(NamedTuple):
    """What a request about a partition needs."""

    address: Address
    leader_epoch: LeaderEpoch
    topic_id: TopicId | None


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """One topic as the cluster described it."""

    name: str
    topic_id: TopicId | None  # None: the broker is too old to have one
    partitions: dict[int, PartitionLeader]
    read_at: Millis


NO_CONTROLLER: Final = NodeId(-1)
Results: TypeAlias = Iterable[tuple[TopicPartition, T | Refused]]


@dataclass(slots=True)
class Routes:
    """What is known about a cluster. `clock` never goes back; `jitter` is in [0, 1)."""

    bootstrap: tuple[Address, ...]
    settings: LinkSettings
    clock: Callable[[], Millis]
    jitter: Callable[[], float]
    brokers: dict[NodeId, Address] = field(default_factory=dict)
    topics: dict[str, TopicMetadata] = field(default_factory=dict)
    coordinators: dict[tuple[CoordinatorKind, str], Address] = field(default_factory=dict)
    controller: NodeId = NO_CONTROLLER
    cluster_id: str | None = None
    _responsive: Address | None = None  # responded last; tried first
    _avoided: Address | None = None  # what it said last was not true; tried last

    # Invalidating.

    def invalidate_topics(self, names: Iterable[str]) -> None:
        """Request the metadata of these topics before they are used again."""
        for name in names:
            if self.topics.pop(name, None) is not None:
                self._ask_another()

    def invalidate_coordinator(self, kind: CoordinatorKind, key: str) -> None:
        if self.coordinators.pop((kind, key), None) is not None:
            self._ask_another()

    def invalidate_controller(self) -> None:
        if self.controller in self.brokers:
            self.controller = NO_CONTROLLER
            self._ask_another()

    def _ask_another(self) -> None:
        """The broker that responded may be cut off from its cluster, and behind for long."""
        self._avoided, self._responsive = self._responsive, None

    # Sending.

    def send_to_any(self, request: Request[ResponseT]) -> Steps[ResponseT]:
        """The response of the first broker that responds."""
        failures = []
        for address in self._candidates():
            try:
                response = yield from send(address, request)
            except OSError as failure:
                failures.append(failure)
                continue
            self._responsive, self._avoided = address, None
            return response
        if len(failures) == 1:
            raise failures[0]
        raise UnreachableError("; ".join(dict.fromkeys(map(str, failures)))) from failures[-1]

    def _candidates(self) -> list[Address]:
        first = [] if self._responsive is None else [self._responsive]
        known = list(dict.fromkeys((*first, *self.brokers.values(), *self.bootstrap)))
        return sorted(known, key=lambda address: address == self._avoided)

    def send_to_coordinator(
        self,
        kind: CoordinatorKind,
        key: str,
        request: Request[ResponseT],
        timeout_ms: int | None = None,
    ) -> Steps[ResponseT]:
        """One attempt; a lost connection invalidates the coordinator."""
        address = yield from self.coordinator(kind, key)
        try:
            return (yield from send(address, request, timeout_ms))
        except OSError:
            self.invalidate_coordinator(kind, key)
            raise

    def send_to_controller(self, request: Request[ResponseT]) -> Steps[ResponseT]:
        """One attempt at the controller, or at any broker where it is not known."""
        if self.controller not in self.brokers:
            yield from self.request_metadata([])
        address = self.brokers.get(self.controller)
        if address is None:
            return (yield from self.send_to_any(request))
        return (yield from send(address, request))

    def for_each_leader(
        self,
        what: str,
        partitions: Iterable[TopicPartition],
        write: Callable[[Sequence[TopicPartition]], Request[ResponseT]],
        read: Callable[[ResponseT], Results[T]],
    ) -> Steps[dict[TopicPartition, T]]:
        """The results of all partitions: one request per leader, retried for those that failed.

        `write` makes the request for some partitions; `read` yields the results of a response.
        """
        requested = list(partitions)
        results: dict[TopicPartition, T] = {}

        def attempt() -> Steps[None]:
            missing = [partition for partition in requested if partition not in results]
            by_leader = yield from self.by_leader(missing)
            outcomes = yield from send_all(
                [BrokerRequest(address, write(list(some))) for address, some in by_leader.items()]
            )
            failure: Exception | None = None
            for outcome in outcomes:
                rows = [] if isinstance(outcome, Exception) else read(outcome)
                failure = worse(failure, outcome if isinstance(outcome, Exception) else None)
                for partition, result in rows:
                    if isinstance(result, Refused):
                        failure = worse(failure, result)
                    else:
                        results[partition] = result
            if failure is None and (
                silent := [partition for partition in missing if partition not in results]
            ):
                failure = Refused(ErrorCode.network_exception, f"no result for {silent[0]}")
            if failure is not None:
                raise failure

        def invalidate() -> None:
            self.invalidate_topics(
                {partition.topic for partition in requested if partition not in results}
            )

        yield from self.with_retries(what, attempt, invalidate, progress=lambda: len(results))
        return results

    # Metadata.

    def topic_metadata(self, names: Iterable[str]) -> Steps[dict[str, TopicMetadata]]:
        """These topics, requested if they are unknown, invalidated or old."""
        now, age_max = self.clock(), self.settings.metadata_max_age_ms
        known, missing = {}, []
        for name in dict.fromkeys(names):
            topic = self.topics.get(name)
            if topic is None or now - topic.read_at > age_max:
                missing.append(name)
            else:
                known[name] = topic
        if missing:
            known |= yield from self.request_metadata(missing)
        return known

    def request_metadata(self, names: Sequence[str] | None) -> Steps[dict[str, TopicMetadata]]:
        """Request these topics, or all. Raises at the first that is refused."""
        topics = None if names is None else [MetadataRequestTopic(name) for name in names]
        body = MetadataRequest(
            topics, allow_auto_topic_creation=self.settings.creates_topics and names is not None
        )
        response = yield from self.send_to_any(request_of(METADATA, body, version_min=1))
        metadata = self.remember(response)
        for row in response.topics:
            assert isinstance(row, MetadataTopic), "as read, topics are not shared"
            if row.error_code != ErrorCode.none:
                raise _topic_refused(row, self._responsive)
        return metadata

    def remember(self, response: MetadataResponse) -> dict[str, TopicMetadata]:
        """The brokers of a response, and its topics that are not refused."""
        self.brokers = {
            NodeId(row.node_id): Address(row.host, row.port) for row in response.brokers
        }
        self.controller = NodeId(response.controller_id)
        self.cluster_id = response.cluster_id
        now = self.clock()
        metadata = {}
        for row in response.topics:
            assert isinstance(row, MetadataTopic), "as read, topics are not shared"
            if row.error_code is ErrorCode.none:
                topic = self._topic(row, now)
                metadata[topic.name] = self.topics[topic.name] = topic
        return metadata

    def _topic(self, row: MetadataTopic, now: Millis) -> TopicMetadata:
        leaders = {}
        for partition in row.partitions:
            leader = NodeId(partition.leader_id)
            epoch = LeaderEpoch(partition.leader_epoch)
            address = self.brokers.get(leader)
            leaders[partition.partition_index] = PartitionLeader(leader, epoch, address)
        topic_id = None if row.topic_id is None else TopicId(row.topic_id)
        return TopicMetadata(row.name or "", topic_id, leaders, now)

    def routes_to(
        self, partitions: Iterable[TopicPartition]
    ) -> Steps[dict[TopicPartition, PartitionRoute]]:
        """The leader of each of these. A partition without a leader is Refused."""
        requested = list(partitions)
        topics = yield from self.topic_metadata(name for name, _ in requested)
        routes = {}
        for partition in requested:
            topic = topics[partition.topic]
            leader = topic.partitions.get(partition.partition)
            if leader is None:
                raise Refused(
                    ErrorCode.unknown_topic_or_partition,
                    f"{partition} does not exist: topic {topic.name} has {len(topic.partitions)}"
                    " partitions",
                )
            if leader.address is None:
                raise Refused(ErrorCode.leader_not_available, f"{partition} has no leader")
            routes[partition] = PartitionRoute(leader.address, leader.leader_epoch, topic.topic_id)
        return routes

    def by_leader(
        self, partitions: Iterable[TopicPartition]
    ) -> Steps[dict[Address, dict[TopicPartition, PartitionRoute]]]:
        """The same, grouped by leader."""
        grouped: dict[Address, dict[TopicPartition, PartitionRoute]] = {}
        for partition, route in (yield from self.routes_to(partitions)).items():
            grouped.setdefault(route.address, {})[partition] = route
        return grouped

    def coordinator(self, kind: CoordinatorKind, key: str) -> Steps[Address]:
        """The broker that coordinates this group or transactional id."""
        known = self.coordinators.get((kind, key))
        if known is not None:
            return known
        body = FindCoordinatorRequest([key], int(kind))
        response = yield from self.send_to_any(request_of(FIND_COORDINATOR, body, version_min=1))
        (row,) = response.coordinators
        if row.error_code != ErrorCode.none:
            subject = "group" if kind is CoordinatorKind.GROUP else "transactional id"
            raise Refused(
                row.error_code,
                f"no coordinator for {subject} {key}: {row.error_message}",
            )
        address = Address(row.host, row.port)
        self.coordinators[kind, key] = address
        return address

    def explained(self, address: Address, failure: Exception) -> Exception:
        """A failure, with a hint if only the cluster itself named the address."""
        if not isinstance(failure, UnreachableError) or address in self.bootstrap:
            return failure
        if address not in (*self.brokers.values(), *self.coordinators.values()):
            return failure
        hint = "the cluster named this address: check its advertised.listeners"
        return UnreachableError(f"{failure}; {hint}")

    # Retrying.

    def with_retries(
        self,
        what: str,
        attempt: Callable[[], Steps[T]],
        invalidate: Callable[[], None],
        *,
        progress: Callable[[], object] = lambda: None,
        retry_timeout_ms: int | None = None,
        final: Container[ErrorCode] = (),
    ) -> Steps[T]:
        """Try until it succeeds, is refused permanently, or the time for retries is over.

        `retry_timeout_ms` is that time where it is less than the settings say. Codes in `final` are
        not retried either. After each failure `invalidate` drops the metadata that was used, and
        the next attempt waits longer, unless `progress` has changed: then it counts as the first
        failure again.
        """
        started = self.clock()
        attempts, progress_before = 0, progress()
        while True:
            try:
                return (yield from attempt())
            except Refused as refusal:
                if not refusal.code.retriable or refusal.code in final:
                    raise
                failure: OSError | Refused = refusal
            except OSError as lost:
                failure = lost
            invalidate()
            if progress() != progress_before:
                started, attempts, progress_before = self.clock(), 0, progress()
            attempts += 1
            pause_ms = self.backoff_ms(attempts)
            spent_ms = self.clock() - started
            limit_ms = self._retry_timeout_ms(failure)
            if retry_timeout_ms is not None:
                limit_ms = min(limit_ms, retry_timeout_ms)
            if spent_ms + pause_ms > limit_ms:
                raise _gave_up(what, failure, attempts, spent_ms) from failure
            yield Pause(pause_ms)

    def _retry_timeout_ms(self, failure: OSError | Refused) -> int:
        limit_ms = self.settings.retry_timeout_ms
        if isinstance(failure, Refused) and failure.code in _PERHAPS_PERMANENT:
            return min(limit_ms, self.settings.unknown_retry_ms)
        return limit_ms

    def backoff_ms(self, attempts: int) -> int:
        """Doubles each time up to a limit, less a random part so that callers drift apart."""
        longest = min(
            self.settings.backoff_max_ms,
            self.settings.backoff_min_ms << min(attempts - 1, 16),
        )
        return int(longest * (1 - self.jitter() / 5))


Operation: TypeAlias = Callable[[Routes], Steps[T]]


class StreamOperation(Generic[T]):
    """An operation that emits items of a type before it ends."""

    def __init__(self, steps: Callable[[Routes], Steps[None]]) -> None:
        self._steps = steps

    def __call__(self, routes: Routes) -> Steps[None]:
        return self._steps(routes)


def operation(steps: Callable[Concatenate[Routes, P], Steps[T]]) -> Callable[P, Operation[T]]:
    """For steps that need routes: called without them, to be run by a cluster that has them."""

    @wraps(steps)
    def prepared(*args: P.args, **kwargs: P.kwargs) -> Operation[T]:
        return lambda routes: steps(routes, *args, **kwargs)

    return prepared


def _topic_refused(row: MetadataTopic, broker: Address | None) -> Refused:
    code = row.error_code
    hints = {
        ErrorCode.unknown_topic_or_partition: "it does not exist; check the name or create it",
        ErrorCode.invalid_topic_exception: "the name is invalid",
        ErrorCode.topic_authorization_failed: "this client is not allowed to read it",
    }
    hint = hints.get(code, code.name)
    return Refused(code, f"topic {row.name!r} at broker {broker}: {hint}")


def _gave_up(
    what: str, failure: OSError | Refused, attempts: int, spent_ms: int
) -> OSError | Refused:
    message = f"{what}: gave up after {attempts} attempts in {spent_ms} ms"
    if isinstance(failure, Refused):
        return Refused(failure.code, f"{message}: {failure.message}")
    if isinstance(failure, TimeoutError):
        return TimeoutError(f"{message}: {failure}")
    return UnreachableError(f"{message}: {failure}")
