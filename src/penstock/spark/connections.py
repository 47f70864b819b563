"""From a query's options to its Kafka cluster and registry; clients are kept by each process.

Spark reuses its Python workers, so connections and learned schemas outlive the task that first
needed them. Called on the driver and in workers. Imports no pyspark.
"""

import atexit
import difflib
import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit, urlunsplit

from penstock.errors import ErrorCode, Refused
from penstock.link.blocking import BlockingCluster, thread_cluster
from penstock.link.operation import Steps
from penstock.link.routing import Routes
from penstock.link.settings import LINK_PROPERTIES, UnreachableError, link_settings

if TYPE_CHECKING:
    from penstock.client.registry import Registry


logger: Final = logging.getLogger(__name__)

CLIENT: Final = "penstock-spark"
BOOTSTRAP: Final = "bootstrap.servers"
FIRST_CONTACT_MS: Final = 10_000
CREATE_TABLE_HINT: Final = (
    "Spark passes no options of CREATE TABLE to a Python source; use CREATE TEMPORARY VIEW orders"
    " USING penstock OPTIONS (`kafka.bootstrap.servers` 'host:port', subscribe 'orders')"
)
_PREFIX: Final = "kafka."
_USED: Final = LINK_PROPERTIES | {"group.id", "isolation.level", "compression.type", "batch.size"}
_REGISTRIES_MAX: Final = 8
_REPORTS_MAX: Final = 64


def kafka_properties(options: Mapping[str, str]) -> dict[str, str]:
    """The Kafka client properties among a query's options: those that start with `kafka.`."""
    properties = {
        name.lower().removeprefix(_PREFIX): value
        for name, value in options.items()
        if name.lower().startswith(_PREFIX)
    }
    for name, value in options.items():
        if name.lower() == BOOTSTRAP:
            properties.setdefault(BOOTSTRAP, value)
    return client_properties(properties.pop(BOOTSTRAP, ""), properties)


def client_properties(bootstrap: str, kafka: Mapping[str, str]) -> dict[str, str]:
    """Properties of a Kafka client, complete; a warning names those that have no effect."""
    if not bootstrap.strip():
        raise Refused(
            ErrorCode.invalid_config,
            "kafka.bootstrap.servers is missing: give the brokers as host:port,host:port. In SQL:"
            f" {CREATE_TABLE_HINT}",
        )
    properties = {"client.id": CLIENT, **kafka, BOOTSTRAP: bootstrap}
    _report_unused(frozenset(properties) - _USED)
    return properties


@lru_cache(maxsize=_REPORTS_MAX)  # one line per query, not one per plan
def _report_unused(names: frozenset[str]) -> None:
    for name in sorted(names):
        near = difflib.get_close_matches(name, _USED, 1)
        hint = f"; did you mean kafka.{near[0]}?" if near else ""
        logger.warning("option kafka.%s has no effect in Penstock's source and sink%s", name, hint)


def cluster_for(properties: Mapping[str, str]) -> BlockingCluster:
    """This thread's connections to the brokers of these properties, kept between tasks.

    A driver runs each streaming query's `foreachBatch` in its own thread.
    """
    return thread_cluster(properties[BOOTSTRAP], link_settings(properties))


def connected_cluster(properties: Mapping[str, str]) -> BlockingCluster:
    """This thread's connections, after a broker has responded; UnreachableError if none does.

    For drivers. Later outages are retried for as long as the link's settings say; before the first
    response the usual cause is a wrong address, and retrying does not help.
    """
    cluster = cluster_for(properties)
    if not cluster.routes.brokers:
        try:
            cluster.run(_first_contact)
        except OSError as failure:
            raise UnreachableError(
                f"no broker responded within {FIRST_CONTACT_MS} ms: {failure.__cause__ or failure}."
                f" Check kafka.bootstrap.servers={properties[BOOTSTRAP]};"
                ' "penstock up" starts a broker on 127.0.0.1:9092'
            ) from failure
    return cluster


def _first_contact(routes: Routes) -> Steps[object]:
    return (
        yield from routes.with_retries(
            "connect",
            lambda: routes.request_metadata([]),
            lambda: None,
            retry_timeout_ms=FIRST_CONTACT_MS,
        )
    )


@cache
def background_thread() -> ThreadPoolExecutor:
    """One thread per process for requests that a task does not wait for, with its own connections.

    Callers bound what they submit: at most one request each is unfinished.
    """
    return ThreadPoolExecutor(1, thread_name_prefix="penstock-background")


def is_classic(session: object) -> bool:
    """Whether this process has the session's JVM; over Spark Connect it does not."""
    return hasattr(session, "_jsparkSession")


@lru_cache(maxsize=_REGISTRIES_MAX)
def registry_client(url: str) -> "Registry":
    """The process's client of a registry; `http://user:password@host` logs in.

    Several nodes are separated by commas; the first login among them is used for all.
    """
    from penstock.client.registry import Registry  # HTTP: most of Spark's processes send nothing

    auth: tuple[str, str] | None = None
    nodes: list[str] = []
    for node in url.split(","):
        parts = urlsplit(node.strip())
        if parts.username is not None:
            auth = auth or (unquote(parts.username), unquote(parts.password or ""))
        host = parts.netloc.rpartition("@")[2]
        nodes.append(urlunsplit(parts._replace(netloc=host)))
    client = Registry(",".join(nodes), client=CLIENT, auth=auth)
    atexit.register(client.close)
    return client
