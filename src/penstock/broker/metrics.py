"""The metrics of a broker: reads the counts of its parts when scraped, and changes nothing."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.broker.counts import TopicCounts
from penstock.broker.partition_survey import PartitionSurvey
from penstock.broker.quotas import QuotaKind
from penstock.metrics import broker_rows as rows
from penstock.metrics.histogram import Histogram, sum_of
from penstock.metrics.row import BYTES, SECONDS
from penstock.protocol.api import Api

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.broker.broker import Broker
    from penstock.broker.counts import RequestCounts
    from penstock.broker.flusher import Flusher
    from penstock.broker.listener import Listener
    from penstock.broker.partitions import HostedTopic
    from penstock.metrics.text_format import Family, Sample

_SHOWN_APIS: Final = (Api.PRODUCE, Api.FETCH)  # with histograms of their own
_OTHER: Final = "other"
_QUOTAS: Final = {
    QuotaKind.PRODUCE_BYTES: "produce",
    QuotaKind.FETCH_BYTES: "fetch",
    QuotaKind.REQUEST_MS: "request",
}


class MeasuredParts(NamedTuple):
    """The parts of a broker that count."""

    broker: Broker
    listener: Listener
    flusher: Flusher
    folder: str


class BrokerMetrics:
    """All metrics of a broker but those of its process and its upkeep."""

    def __init__(self, measured: MeasuredParts) -> None:
        self._broker, self._listener, self._flusher, self._folder = measured
        self._survey = PartitionSurvey(measured.broker)

    def families(self) -> Iterator[Family | None]:
        """The metrics; None where other work may be done."""
        yield from self._survey.refresh()
        yield from _of_requests(self._broker.counts)
        yield from self._of_topics()
        yield from self._of_connections()
        yield from self._of_cluster()
        yield from self._of_logs()
        yield from self._of_groups()
        yield from self._of_transactions()

    def _of_topics(self) -> Iterator[Family | None]:
        topics = self._broker.partitions.topics
        shown = list(islice(topics.values(), rows.TOPICS_MAX))
        yield rows.TOPICS_NOT_SHOWN, [((), len(topics) - len(shown))]
        yield rows.RECEIVED_BYTES, [((t.name,), t.counts.received_bytes) for t in shown]
        yield rows.RECORDS, [((t.name,), t.counts.records) for t in shown]
        yield rows.SENT_BYTES, [((t.name,), t.counts.sent_bytes) for t in shown]
        sizes = self._survey.result.size_bytes
        yield rows.LOG_SIZE_BYTES, [((t.name,), sizes.get(t.name, 0)) for t in shown]
        skew = self._survey.skew
        yield rows.PARTITION_SKEW, [((t.name,), skew.get(t.name, 0)) for t in shown]
        lag = self._survey.result.lag
        yield rows.REPLICA_LAG, [((t.name,), lag.get(t.name, 0)) for t in shown]
        yield None
        yield from _of_batches(list(topics.values()), self._broker.partitions.deleted_counts)

    def _of_connections(self) -> Iterator[Family | None]:
        listener, unsent_bytes, waiting = self._listener, 0, Counter[str]()
        name = (listener.name,)
        yield rows.CONNECTIONS, [(name, len(listener.connections))]
        yield rows.CONNECTIONS_MAX, [(name, listener.settings.connections_max)]
        yield rows.CONNECTIONS_ACCEPTED, [(name, listener.stats.accepted)]
        yield rows.CONNECTIONS_REFUSED, [(name, listener.stats.refused)]
        for number, connection in enumerate(tuple(listener.connections), 1):
            unsent_bytes += connection.unsent_bytes
            waiting.update("fetch" if a == Api.FETCH else _OTHER for a in connection.waiting_apis)
            if number % 100 == 0:
                yield None
        yield rows.UNSENT_BYTES, [((), unsent_bytes)]
        yield rows.WAITING_REQUESTS, [((kind,), waiting[kind]) for kind in ("fetch", _OTHER)]
        throttled_ms = self._broker.quotas.throttled_ms
        yield (
            rows.THROTTLED_SECONDS,
            [((name,), throttled_ms[kind] / 1000) for kind, name in _QUOTAS.items()],
        )

    def _of_cluster(self) -> Iterator[Family]:
        broker, found = self._broker, self._survey.result
        yield rows.CLUSTER_BROKERS, [((), sum(1 for _ in broker.cluster.brokers()))]
        yield rows.CLUSTER_TOPICS, [((), sum(1 for _ in broker.cluster.topics()))]
        yield rows.ACTIVE_CONTROLLER, [((), int(broker.controller.is_active))]
        yield rows.OFFLINE_PARTITIONS, [((), found.offline)]
        yield rows.UNDER_REPLICATED, [((), found.under_replicated)]
        yield rows.UNDER_MIN_ISR, [((), found.under_min_isr)]
        yield rows.OFFLINE_REPLICAS, [((), broker.unusable.offline_count)]
        yield rows.REPLACED_REPLICAS, [((), broker.unusable.set_aside_count)]
        yield rows.PARTITIONS, [(("leader",), found.leaders), (("follower",), found.followers)]

    def _of_logs(self) -> Iterator[Family]:
        yield rows.LOG_SEGMENTS, [((), self._survey.result.segments)]
        yield rows.LOG_FLUSH_SECONDS, [((), self._flusher.seconds)]
        yield rows.LOG_FLUSH_ERRORS, [((), self._flusher.errors)]
        disk = os.statvfs(self._folder)
        yield rows.DISK_FREE_BYTES, [((self._folder,), disk.f_bavail * disk.f_frsize)]
        yield rows.DISK_SIZE_BYTES, [((self._folder,), disk.f_blocks * disk.f_frsize)]

    def _of_groups(self) -> Iterator[Family]:
        count = self._broker.groups.group_count
        shown = list(islice(self._broker.groups.members_and_generations(), rows.GROUPS_MAX))
        yield rows.GROUPS, [((), count)]
        yield rows.GROUPS_NOT_SHOWN, [((), count - len(shown))]
        yield rows.GROUP_MEMBERS, [((group,), members) for group, members, _ in shown]
        yield rows.GROUP_REBALANCES, [((group,), number) for group, _, number in shown]

    def _of_transactions(self) -> Iterator[Family]:
        started_ms = self._broker.transactions.open_since_ms()
        age_s = (self._broker.clock() - min(started_ms)) / 1000 if started_ms else 0.0
        yield rows.TRANSACTIONS_OPEN, [((), len(started_ms))]
        yield rows.TRANSACTION_OLDEST_SECONDS, [((), max(age_s, 0.0))]


def _of_requests(counts: RequestCounts) -> Iterator[Family]:
    by_api = {title(api): counts.by_api[api] for api in counts.apis}
    fine = {name: max(count.requests - count.errors, 0) for name, count in by_api.items()}
    yield (
        rows.REQUESTS,
        [
            sample
            for name, count in by_api.items()
            for sample in (((name, "ok"), fine[name]), ((name, "error"), count.errors))
        ],
    )
    yield rows.ERRORS, [((code.name,), count) for code, count in counts.by_error.items()]
    shown = {title(api): counts.by_api[api] for api in _SHOWN_APIS}
    others = [count for name, count in by_api.items() if name not in shown]
    for row, own, rest in (
        (
            rows.REQUEST_SECONDS,
            {name: count.seconds for name, count in shown.items()},
            sum_of((count.seconds for count in others), SECONDS),
        ),
        (
            rows.WAIT_SECONDS,
            {name: count.waits for name, count in shown.items()},
            sum_of((count.waits for count in others), SECONDS),
        ),
    ):
        yield row, _by_name({**own, _OTHER: rest})


def _by_name(histograms: dict[str, Histogram]) -> list[Sample]:
    return [((name,), histogram) for name, histogram in histograms.items()]


def _of_batches(topics: list[HostedTopic], deleted: TopicCounts) -> Iterator[Family | None]:
    total = TopicCounts()
    for number, counts in enumerate((deleted, *(topic.counts for topic in topics)), 1):
        total.add(counts)
        if number % 100 == 0:
            yield None
    sizes = Histogram(BYTES)
    for bits, count in enumerate(total.batches):
        sizes.counts[bisect_left(BYTES, float(1 << bits))] += count
    sizes.total = float(total.received_bytes)
    yield rows.BATCH_BYTES, [((), sizes)]
    yield rows.ELECTIONS, [((), total.elections)]
    yield rows.UNCLEAN_ELECTIONS, [((), total.unclean_elections)]
    changes = (("shrink",), total.isr_shrinks), (("expand",), total.isr_expansions)
    yield rows.ISR_CHANGES, changes


def title(api: Api) -> str:
    """Kafka's name of an API, as `ListOffsets`."""
    return api.name.title().replace("_", "")
