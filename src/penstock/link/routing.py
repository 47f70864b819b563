"""The routes through a cluster: its brokers, who leads which partition, who coordinates what.

Kept as steps and plain state; nothing here waits or connects. What is known is asked again when it
is old or in doubt: a refusal or a lost connection puts it in doubt.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import wraps
from typing import Any, Concatenate, Final, Generic, NamedTuple, ParamSpec, TypeAlias, TypeVar

from penstock.errors import ErrorCode, Refused
from penstock.link.operation import Pause, Request, Steps, ask, plain
from penstock.link.settings import Address, LinkSettings, Unreachable
from penstock.model import LeaderEpoch, Millis, NodeId, TopicId, TopicPartition
from penstock.protocol.api import Api

T = TypeVar("T")
P = ParamSpec("P")

# True of a topic that was just made or moved, and for ever of one that does not exist; of bytes
# that a wire has bent, and for ever of those that were written so.
_UNSURE: Final = frozenset(
    {
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.corrupt_message,
    }
)


class Coordinates(IntEnum):
    """What a coordinator coordinates."""

    GROUP = 0
    TRANSACTION = 1


@dataclass(frozen=True, slots=True)
class Place:
    """Where a partition is led."""

    leader: NodeId  # -1: nobody, for now
    leader_epoch: LeaderEpoch
    address: Address | None


class Located(NamedTuple):
    """All one must know to ask for a partition."""

    address: Address
    leader_epoch: LeaderEpoch
    topic_id: TopicId | None


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic as the cluster described it."""

    name: str
    topic_id: TopicId | None  # None: the broker is too old to have one
    partitions: dict[int, Place]
    seen_at: Millis


@dataclass(slots=True)
class Routes:
    """What is known of a cluster. `clock` never goes back; `chance` is in [0, 1)."""

    bootstrap: tuple[Address, ...]
    settings: LinkSettings
    clock: Callable[[], Millis]
    chance: Callable[[], float]
    brokers: dict[NodeId, Address] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    coordinators: dict[tuple[Coordinates, str], Address] = field(default_factory=dict)
    controller: NodeId = NodeId(-1)
    cluster_id: str | None = None
    _answering: Address | None = None  # answered last; asked first

    # In doubt.

    def doubt_topics(self, names: Iterable[str]) -> None:
        """Who leads these must be asked again."""
        for name in names:
            self.topics.pop(name, None)

    def doubt_coordinator(self, kind: Coordinates, key: str) -> None:
        self.coordinators.pop((kind, key), None)

    # Asking.

    def ask_any(self, request: Request) -> Steps[Any]:
        """The answer of the first broker that answers."""
        failures = []
        for address in self._candidates():
            try:
                answer = yield from ask(address, request)
            except OSError as failure:
                failures.append(failure)
                continue
            self._answering = address
            return answer
        if len(failures) == 1:
            raise failures[0]
        raise Unreachable("; ".join(dict.fromkeys(map(str, failures)))) from failures[-1]

    def _candidates(self) -> list[Address]:
        known = [] if self._answering is None else [self._answering]
        return list(dict.fromkeys((*known, *self.brokers.values(), *self.bootstrap)))

    def described(self, names: Iterable[str]) -> Steps[dict[str, Topic]]:
        """These topics, asked for if they are unknown, in doubt or old."""
        now, age_max = self.clock(), self.settings.metadata_age_ms
        known, missing = {}, []
        for name in dict.fromkeys(names):
            topic = self.topics.get(name)
            if topic is None or now - topic.seen_at > age_max:
                missing.append(name)
            else:
                known[name] = topic
        if missing:
            known |= yield from self.describe(missing)
        return known

    def describe(self, names: Sequence[str] | None) -> Steps[dict[str, Topic]]:
        """Ask for these topics, or for all. Raises at the first that is refused."""
        wanted = None if names is None else [{"name": name} for name in names]
        request = plain(Api.METADATA, least=1, topics=wanted, allow_auto_topic_creation=False)
        answer = yield from self.ask_any(request)
        self._take_brokers(answer)
        now = self.clock()
        found = {}
        for row in answer.topics:
            if row.error_code != ErrorCode.none:
                raise _topic_refused(row, self._answering)
            found[row.name] = self.topics[row.name] = self._topic(row, now)
        return found

    def _take_brokers(self, answer: Any) -> None:
        self.brokers = {NodeId(row.node_id): Address(row.host, row.port) for row in answer.brokers}
        self.controller = NodeId(answer.controller_id)
        self.cluster_id = getattr(answer, "cluster_id", None)

    def _topic(self, row: Any, now: Millis) -> Topic:
        places = {}
        for partition in row.partitions:
            leader = NodeId(partition.leader_id)
            epoch = LeaderEpoch(getattr(partition, "leader_epoch", -1))
            places[partition.partition_index] = Place(leader, epoch, self.brokers.get(leader))
        return Topic(row.name, getattr(row, "topic_id", None), places, now)

    def located(self, partitions: Iterable[TopicPartition]) -> Steps[dict[TopicPartition, Located]]:
        """Where to ask for each of these. A partition without a leader is Refused."""
        wanted = list(partitions)
        topics = yield from self.described(name for name, _ in wanted)
        places = {}
        for partition in wanted:
            topic = topics[partition.topic]
            place = topic.partitions.get(partition.partition)
            if place is None:
                raise Refused(
                    ErrorCode.unknown_topic_or_partition,
                    f"topic {topic.name} has {len(topic.partitions)} partitions, {partition} is"
                    " none of them",
                )
            if place.address is None:
                raise Refused(ErrorCode.leader_not_available, f"{partition} has no leader just now")
            places[partition] = Located(place.address, place.leader_epoch, topic.topic_id)
        return places

    def leaders(
        self, partitions: Iterable[TopicPartition]
    ) -> Steps[dict[Address, list[TopicPartition]]]:
        """Which broker to ask for which of these."""
        by_broker: dict[Address, list[TopicPartition]] = {}
        for partition, place in (yield from self.located(partitions)).items():
            by_broker.setdefault(place.address, []).append(partition)
        return by_broker

    def coordinator(self, kind: Coordinates, key: str) -> Steps[Address]:
        """The broker that keeps this group or this transactional id."""
        known = self.coordinators.get((kind, key))
        if known is not None:
            return known
        answer = yield from self.ask_any(
            plain(
                Api.FIND_COORDINATOR, least=1, key=key, key_type=int(kind), coordinator_keys=[key]
            )
        )
        (row,) = getattr(answer, "coordinators", (answer,))
        if row.error_code != ErrorCode.none:
            what = "group" if kind is Coordinates.GROUP else "transactional id"
            raise Refused(
                ErrorCode(row.error_code), f"no coordinator for {what} {key}: {row.error_message}"
            )
        address = Address(row.host, row.port)
        self.coordinators[kind, key] = address
        return address

    def ask_coordinator(
        self, kind: Coordinates, key: str, request: Request, timeout_ms: int | None = None
    ) -> Steps[Any]:
        """One try; a broker that is gone is forgotten. The answer's codes are the caller's."""
        address = yield from self.coordinator(kind, key)
        try:
            return (yield from ask(address, request, timeout_ms))
        except OSError:
            self.doubt_coordinator(kind, key)
            raise

    def explained(self, where: Address, failure: Exception) -> Exception:
        """A failure, with a hint if it is an address that only the cluster itself has named."""
        if not isinstance(failure, Unreachable) or where in self.bootstrap:
            return failure
        if where not in (*self.brokers.values(), *self.coordinators.values()):
            return failure
        hint = "the cluster named this address itself: check its advertised.listeners"
        return Unreachable(f"{failure}; {hint}")

    # Trying again.

    def patiently(
        self,
        what: str,
        attempt: Callable[[], Steps[T]],
        doubt: Callable[[], None],
        *,
        progress: Callable[[], object] = lambda: None,
        retry_ms: int | None = None,
    ) -> Steps[T]:
        """Try until it is done, is refused for good, or has been tried for too long.

        `retry_ms` is how long to try where that is less than the settings say.

        After each failure `doubt` drops what was believed, and the next try waits longer; unless
        `progress` has changed, which makes it the first failure again.
        """
        started = self.clock()
        tries, reached = 0, progress()
        while True:
            try:
                return (yield from attempt())
            except Refused as refusal:
                if not refusal.code.retriable:
                    raise
                failure: OSError | Refused = refusal
            except OSError as lost:
                failure = lost
            doubt()
            if progress() != reached:
                started, tries, reached = self.clock(), 0, progress()
            tries += 1
            pause_ms = self.backoff_ms(tries)
            spent_ms = self.clock() - started
            span_ms = self._span_ms(failure)
            if spent_ms + pause_ms > (span_ms if retry_ms is None else min(span_ms, retry_ms)):
                raise _given_up(what, failure, tries, spent_ms) from failure
            yield Pause(pause_ms)

    def _span_ms(self, failure: OSError | Refused) -> int:
        """How long to try in the face of this."""
        unsure = isinstance(failure, Refused) and failure.code in _UNSURE
        return min(self.settings.unsure_ms if unsure else 1 << 62, self.settings.retry_ms)

    def backoff_ms(self, tries: int) -> int:
        """Twice as long each time, up to a limit, less a chance part: callers drift apart."""
        longest = min(
            self.settings.backoff_last_ms,
            self.settings.backoff_first_ms << min(tries - 1, 16),
        )
        return int(longest * (1 - self.chance() / 5))


Operation: TypeAlias = Callable[[Routes], Steps[T]]


class StreamOperation(Generic[T]):
    """As an operation, but it gives items of a type as it goes."""

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


def _topic_refused(row: Any, broker: Address | None) -> Refused:
    code = ErrorCode(row.error_code)
    hints = {
        ErrorCode.unknown_topic_or_partition: "it does not exist; check the name or create it",
        ErrorCode.invalid_topic_exception: "that is no legal name",
        ErrorCode.topic_authorization_failed: "this client may not see it",
    }
    hint = hints.get(code, code.name)
    return Refused(code, f"topic {row.name!r} at broker {broker}: {hint}")


def _given_up(
    what: str, failure: OSError | Refused, tries: int, spent_ms: int
) -> OSError | Refused:
    words = f"{what}: given up after {tries} tries in {spent_ms} ms"
    if isinstance(failure, Refused):
        return Refused(failure.code, f"{words}: {failure.message}")
    if isinstance(failure, TimeoutError):
        return TimeoutError(f"{words}: {failure}")
    return Unreachable(f"{words}: {failure}")
