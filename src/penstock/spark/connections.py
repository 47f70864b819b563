"""From a query's options to the cluster and the registry that it means, kept by each process.

Spark's Python workers are used again: connections and learned schemas outlive the task that first
needed them. Imports no pyspark; everything here is called on the driver and in workers alike.

A stream's place, shown to the cluster as the offsets of a consumer group.

Only shown: Spark's checkpoint is what a stream goes on from. So a cluster that refuses the commit
is a line in the log, never the end of a query, and no micro-batch waits for it: a thread with
connections of its own commits one position after another, and leaves out those that a later one has
overtaken.
"""

import atexit
import difflib
import logging
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit, urlunsplit

from penstock.errors import ErrorCode, Refused
from penstock.link.blocking import BlockingCluster, thread_cluster
from penstock.link.offsets import commit_offsets
from penstock.link.operation import Steps
from penstock.link.routing import Routes
from penstock.link.settings import LINK_PROPERTIES, LinkSettings, UnreachableError, link_settings
from penstock.spark.planning import Position

if TYPE_CHECKING:
    from penstock.client.registry import Registry


logger = logging.getLogger(__name__)

CLIENT: Final = "penstock-spark"
BOOTSTRAP: Final = "bootstrap.servers"
FIRST_CONTACT_MS: Final = 10_000  # a driver that no broker has answered fails after this
NO_TABLES: Final = (
    "Spark hands a Python source no options of CREATE TABLE; use CREATE TEMPORARY VIEW orders USING"
    " penstock OPTIONS (`kafka.bootstrap.servers` 'host:port', subscribe 'orders')"
)
_PREFIX: Final = "kafka."
_USED: Final = LINK_PROPERTIES | {"group.id", "isolation.level", "compression.type", "batch.size"}
_REGISTRIES_MAX: Final = 8
_REPORTS_MAX: Final = 64
_CLUSTERS_MAX: Final = 8


def kafka_properties(options: Mapping[str, str]) -> dict[str, str]:
    """The options that a Kafka client would be given: those after `kafka.`, with it cut off."""
    properties = {
        name.lower().removeprefix(_PREFIX): value
        for name, value in options.items()
        if name.lower().startswith(_PREFIX)
    }
    for name, value in options.items():
        if name.lower() == BOOTSTRAP:
            properties.setdefault(BOOTSTRAP, value)
    if not properties.get(BOOTSTRAP, "").strip():
        raise Refused(
            ErrorCode.invalid_config,
            "option kafka.bootstrap.servers is missing: say where the brokers are, as"
            f" host:port,host:port. In SQL: {NO_TABLES}",
        )
    properties.setdefault("client.id", CLIENT)
    _report_unused(frozenset(properties) - _USED)
    return properties


@lru_cache(maxsize=_REPORTS_MAX)  # one line for a query, not one for each of its plans
def _report_unused(names: frozenset[str]) -> None:
    for name in sorted(names):
        near = difflib.get_close_matches(name, _USED, 1)
        hint = f"; did you mean kafka.{near[0]}?" if near else ""
        logger.warning("option kafka.%s has no effect in Penstock's source and sink%s", name, hint)


def cluster(properties: Mapping[str, str]) -> BlockingCluster:
    """This thread's connections to the brokers of these properties, kept between tasks.

    A driver runs each streaming query's `foreachBatch` in its own thread.
    """
    return thread_cluster(properties[BOOTSTRAP], link_settings(properties))


def reached(properties: Mapping[str, str]) -> BlockingCluster:
    """The same on a driver, once a broker has answered; UnreachableError if none does in time.

    An outage later on is waited for as long as the link's settings say. Before the first answer the
    usual cause is a wrong address, and waiting does not help.
    """
    brokers = cluster(properties)
    if not brokers.routes.brokers:
        try:
            brokers.run(_first_contact)
        except OSError as failure:
            raise UnreachableError(
                f"no broker answered within {FIRST_CONTACT_MS} ms: {failure.__cause__ or failure}."
                f" Is kafka.bootstrap.servers={properties[BOOTSTRAP]} right?"
                ' "penstock up" starts a broker on 127.0.0.1:9092'
            ) from failure
    return brokers


def _first_contact(routes: Routes) -> Steps[object]:
    return (
        yield from routes.with_retries(
            "connect",
            lambda: routes.request_metadata([]),
            lambda: None,
            retry_timeout_ms=FIRST_CONTACT_MS,
        )
    )


def cluster_apart(properties: Mapping[str, str]) -> BlockingCluster:
    """The same for another thread, because connections are of one: that which works beside."""
    return _kept_apart(properties[BOOTSTRAP], link_settings(properties))


@lru_cache(maxsize=_CLUSTERS_MAX)
def _kept_apart(bootstrap: str, settings: LinkSettings) -> BlockingCluster:
    kept = BlockingCluster(bootstrap, settings)
    atexit.register(kept.close)
    return kept


def is_classic(session: object) -> bool:
    """Whether this process has the session's JVM; over Spark Connect it has not."""
    return hasattr(session, "_jsparkSession")


@lru_cache(maxsize=_REGISTRIES_MAX)
def registry(url: str) -> "Registry":
    """The process's client of a registry; `http://user:password@host` logs in.

    Several nodes are separated by commas; the login is that of the first that has one.
    """
    from penstock.client.registry import Registry  # HTTP: most of Spark's processes ask nothing

    auth: tuple[str, str] | None = None
    plain: list[str] = []
    for one in url.split(","):
        parts = urlsplit(one.strip())
        if parts.username is not None:
            auth = auth or (unquote(parts.username), unquote(parts.password or ""))
        host = parts.netloc.rpartition("@")[2]
        plain.append(urlunsplit(parts._replace(netloc=host)))
    kept = Registry(",".join(plain), client=CLIENT, auth=auth)
    atexit.register(kept.close)
    return kept


_SETTLE_S: Final = 5.0  # waited for by who has nothing else to do


class Progress:
    """The group of one stream."""

    def __init__(self, group: str | None, properties: Mapping[str, str]) -> None:
        self._group = group
        self._properties = properties
        self._told: Position | None = None
        self._last: Future[None] | None = None

    def show(self, position: Position) -> None:
        """Everything before this position has been dealt with: commit that, soon."""
        if self._group is None or position == self._told or not position.offsets:
            return
        self._told = position
        self._last = _thread().submit(self._commit, self._group, position)

    def settle(self) -> None:
        """Wait, within reason, until what was told is shown."""
        if self._last is not None:
            with suppress(TimeoutError):
                self._last.result(_SETTLE_S)

    def _commit(self, group: str, position: Position) -> None:
        if position is not self._told:
            return
        try:
            cluster_apart(self._properties).run(commit_offsets(group, position.offsets))
        except (OSError, Refused) as failure:
            logger.warning("progress is not shown as group %s: %s", group, failure)


@cache
def _thread() -> ThreadPoolExecutor:
    """One for the process: it alone uses its connections."""
    return ThreadPoolExecutor(1, thread_name_prefix="progress")
