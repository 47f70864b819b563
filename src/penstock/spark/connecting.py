"""From a query's options to the cluster and the registry that it means, kept by each process.

Spark's Python workers are used again: connections and learned schemas outlive the task that first
needed them. Imports no pyspark; everything here is called on the driver and in workers alike.
"""

import atexit
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit, urlunsplit

from penstock.errors import ErrorCode, Refused
from penstock.link.blocking import Cluster, kept_cluster
from penstock.link.options import settings_from
from penstock.link.settings import LinkSettings

if TYPE_CHECKING:
    from penstock.client.registry import Registry

CLIENT: Final = "penstock-spark"
BOOTSTRAP: Final = "bootstrap.servers"
_PREFIX: Final = "kafka."
_REGISTRIES_MAX: Final = 8
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
            " host:port,host:port",
        )
    properties.setdefault("client.id", CLIENT)
    return properties


def cluster(properties: Mapping[str, str]) -> Cluster:
    """This thread's connections to the brokers of these properties, kept between tasks.

    A driver runs each streaming query's `foreachBatch` in its own thread.
    """
    return kept_cluster(properties[BOOTSTRAP], settings_from(properties))


def cluster_apart(properties: Mapping[str, str]) -> Cluster:
    """The same for another thread, because connections are of one: that which works beside."""
    return _kept_apart(properties[BOOTSTRAP], settings_from(properties))


@lru_cache(maxsize=_CLUSTERS_MAX)
def _kept_apart(bootstrap: str, settings: LinkSettings) -> Cluster:
    kept = Cluster(bootstrap, settings)
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
