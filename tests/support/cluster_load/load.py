"""All clients of a load on one cluster, from the first topic to the verdict."""

from __future__ import annotations

import re
import sys
import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # undeclared

from tests.support.cluster_load.changes import MetadataChanges
from tests.support.cluster_load.final_state import (
    moved_otherwise_than_once,
    read_topics,
    unequal_replicas,
)
from tests.support.cluster_load.java_clients import JavaClients
from tests.support.cluster_load.members import Member
from tests.support.cluster_load.once import OnceWriter
from tests.support.cluster_load.writers import PARTITIONS, TransactionalWriter, Writer
from tests.support.history import History, Outcome, check

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from penstock.testing.embedded_cluster import EmbeddedCluster
    from tests.support.cluster_load.client import Client

EVENTS, LEDGER, MOVED = "events", "ledger", "moved"
JAVA_EVENTS, JAVA_LEDGER = "java-events", "java-ledger"
TOPICS = (EVENTS, LEDGER, MOVED, JAVA_EVENTS, JAVA_LEDGER)
PROGRESS_S = 120.0
MORE = 3  # acknowledgements of each client that count as progress


class Load:
    """Clients that use a cluster for the length of a `with` block.

    Inside, `wait_for_progress` returns when every client is served again. Afterwards, with a healed
    cluster, `problems` says what the clients saw that may not be.
    """

    def __init__(self, cluster: EmbeddedCluster, libraries: Path) -> None:
        self.history = History()
        self.changes = MetadataChanges("changes", self.history, cluster.bootstrap)
        self._cluster = cluster
        where = self.history, cluster.bootstrap
        self._writers: list[Client] = [
            Writer("writer", *where, EVENTS),
            TransactionalWriter("transactions", *where, LEDGER),
            OnceWriter("once", *where, LEDGER),
        ]
        self._members = [
            Member(
                f"{protocol}-member-{number}", *where, EVENTS,
                group=f"{protocol}-group", protocol=protocol, leaves=number == 2,
            )
            for protocol in ("classic", "consumer")
            for number in (1, 2)
        ]  # fmt: skip
        self._java = JavaClients(
            self.history,
            libraries,
            *(cluster.bootstrap, JAVA_EVENTS, JAVA_LEDGER, EVENTS, MOVED),
        )
        self.waits_s: defaultdict[str, float] = defaultdict(float)  # the longest, by client
        self.incomplete: list[str] = []  # why the final read is not complete

    @property
    def _clients(self) -> list[Client]:
        return [*self._writers, *self._members, self.changes]

    def __enter__(self) -> Load:
        for topic in TOPICS:
            new = NewTopic(topic, num_partitions=PARTITIONS)
            self._cluster.admin.create_topics([new])[topic].result(60)
        self._java.start()
        for client in self._clients:
            client.start()
        try:
            self.wait_for_progress()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End all faults; let every client finish; read what there is."""
        self._cluster.heal()
        for client in self._writers:
            client.stop()
        self._java.stop()
        for client in (*self._members, self.changes):
            client.stop()
        if error is None:
            self.wait_in_sync()
            self.incomplete = read_topics(self.history, self._cluster.bootstrap, TOPICS)

    def wait_for_progress(self, more: int = MORE, *, within_s: float = PROGRESS_S) -> None:
        """Wait until every client has had more acknowledgements than it has now."""
        goals = {name: count + more for name, count in self.counts().items()}
        started_at = time.monotonic()
        while goals:
            waited_s = time.monotonic() - started_at
            for name, count in self.counts().items():
                if name in goals and count >= goals[name]:
                    del goals[name]
                    self.waits_s[name] = max(waited_s, self.waits_s[name])
            stuck = f"{[*goals]} have not continued after {within_s:g} s: {self.reports()}"
            assert waited_s < within_s, stuck
            time.sleep(0.02)

    def counts(self) -> dict[str, int]:
        """Acknowledgements by client, or by group."""
        counts = Counter({client.name: client.acknowledged for client in self._writers})
        counts["changes"] = self.changes.acknowledged
        for member in self._members:
            counts[member.name.rpartition("-")[0]] += member.acknowledged
        java = ("java-writer", "java-transactions", "java-mover", "java-group")
        return {**counts, **{name: self._java.acknowledged[name] for name in java}}

    def wait_in_sync(self) -> None:
        """Wait until every replica of the topics of this load is in sync."""
        for topic in TOPICS:
            self._cluster.wait_in_sync(topic)

    def errors(self) -> list[str]:
        """Errors that no application may see."""
        return [
            *(f"{client.name}: {error}" for client in self._clients for error in client.errors),
            *self._java.errors,
        ]

    def interruptions(self) -> list[str]:
        """What applications had to handle: transactions that were aborted, clients replaced.

        A commit that a rebalance refuses is none: members of these groups leave and return.
        """
        seen = re.compile(r" (aborted|replaced|uncommitted): (?!.*(Rebalance|CommitFailed))")
        return [f"{count} x {note}" for note, count in self._notes().items() if seen.search(note)]

    def reports(self) -> dict[str, int]:
        """What clients had to retry, or gave up."""
        return dict(self._notes().most_common(12))

    def _notes(self) -> Counter[str]:
        notes = Counter(self._java.notes)
        for client in self._clients:
            notes.update({f"{client.name} {note}": n for note, n in client.notes.items()})
        return notes

    def problems(self) -> list[str]:
        """What was lost, duplicated, torn or refused without reason."""
        folders = [broker.folder for broker in self._cluster.brokers.values()]
        return [
            *self.incomplete,
            *check(self.history),
            *moved_otherwise_than_once(self.history, EVENTS, MOVED),
            *unequal_replicas(folders, TOPICS),
            *self.errors(),
        ]

    def summary(self) -> str:
        """How much was judged."""
        operations: Counter[str] = Counter()
        for operation in self.history.operations:
            outcome: Any = getattr(operation, "outcome", None)
            kind = type(operation).__name__
            operations[
                kind if outcome in (None, Outcome.ACKNOWLEDGED) else f"{kind} {outcome}"
            ] += 1
        return ", ".join(f"{count} {kind}" for kind, count in sorted(operations.items()))
