"""The platform that tests share: a broker and a registry, and names that are never used twice.

Every name begins with the prefix of the platform, so that several runs can share one cluster.
Faults affect all users of the platform; `heal` ends them.
"""

import re
import time
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from typing import Any, Final, Protocol

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.client.registry import Registry
from penstock.node.http_process import HttpOptions
from penstock.node.supervisor import HttpProcess
from penstock.testing.embedded import EmbeddedBroker

APACHE: Final = "apache"
CREATE_S: Final = 30.0
_LOOK_S: Final = 0.05
STEM_CHARACTERS_MAX: Final = 100  # a topic's name has at most 249, and a prefix is added
_NOT_ALLOWED = re.compile(r"[^A-Za-z0-9._-]+")


class ForeignBrokerError(Exception):
    """A fault was requested, but the platform did not start the broker."""


class Log(Protocol):
    """A Kafka server that the platform starts and stops."""

    @property
    def bootstrap(self) -> str: ...
    def __enter__(self) -> Any: ...
    def __exit__(self, kind: None, error: None, trace: None, /) -> None: ...


class Platform:
    """A broker and a registry, or a registry with an existing cluster.

    `kafka` is None for a Penstock broker, which gets the `settings`; `apache` for an Apache Kafka
    that is started; or the address of an existing cluster: host:port.
    """

    def __init__(
        self, prefix: str, *, kafka: str | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        self.prefix = prefix
        self._kafka = kafka
        self._log: Log | None = _log_of(kafka, settings or {})
        self._http: HttpProcess | None = None
        self._registry_url: str | None = None
        self._registry: Registry | None = None
        self._admin: Any = None
        self._numbers = count(1)

    def start(self) -> "Platform":
        """Start both; returns when Kafka clients are served.

        The registry loads while the broker starts; the first use of `registry_url` waits for it.
        """
        self._http = HttpProcess()
        try:
            if self._log is not None:
                self._log.__enter__()
        except BaseException:
            self._http.kill()
            raise
        options = HttpOptions(self.bootstrap, http_port=0, log_level="WARNING")
        if self._kafka is not None:  # keep schemas of tests apart from those of the cluster
            options = replace(options, group=self.prefix, topic=f"_{self.prefix}")
        self._http.configure(options)
        return self

    def stop(self) -> None:
        """Stop both; remove the data if the broker was started here."""
        if self._registry is not None:
            self._registry.close()
        if self._http is not None:
            self._http.stop()
        if self._log is not None:
            self._log.__exit__(None, None, None)

    @property
    def bootstrap(self) -> str:
        """Where Kafka clients connect: host:port."""
        if self._log is not None:
            return self._log.bootstrap
        assert self._kafka is not None
        return self._kafka

    @property
    def registry_url(self) -> str:
        """Where the schema registry serves."""
        if self._registry_url is None:
            assert self._http is not None, "the platform has not been started"
            self._registry_url = str(self._http.wait_ready()["http"])
        return self._registry_url

    @property
    def registry(self) -> Registry:
        """A client of the registry, with its caches shared by all tests."""
        if self._registry is None:
            self._registry = Registry(self.registry_url, client="penstock-tests")
        return self._registry

    def name(self, stem: str = "test") -> str:
        """A new name for a topic, a group, a subject or a transactional id."""
        allowed = _NOT_ALLOWED.sub("-", stem)[:STEM_CHARACTERS_MAX].strip("-.")
        return f"{self.prefix}-{next(self._numbers)}-{allowed}"

    def make_topic(
        self,
        stem: str = "topic",
        *,
        partitions: int = 1,
        settings: Mapping[str, str] | None = None,
    ) -> str:
        """Create a topic; its name. `settings` are the topic's, by Kafka's names."""
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        name = self.name(stem)
        topic = NewTopic(name, partitions, 1, config=dict(settings or {}))
        self._admin.create_topics([topic], operation_timeout=CREATE_S)[name].result(CREATE_S)
        if self._kafka is not None:  # its brokers learn of a topic some time after the controller
            deadline_s = time.monotonic() + CREATE_S
            while name not in self._admin.list_topics(timeout=CREATE_S).topics:
                assert time.monotonic() < deadline_s, f"no broker knows topic {name}"
                time.sleep(_LOOK_S)
        return name

    @property
    def broker(self) -> EmbeddedBroker:
        """The Penstock broker that was started here; ForeignBrokerError if there is none."""
        if isinstance(self._log, EmbeddedBroker):
            return self._log
        raise ForeignBrokerError(
            f"faults need a Penstock broker that the tests start: {self.bootstrap} is not"
        )

    def kill(self) -> None:
        """Kill the broker (kill -9). What was acknowledged is there after `restart`."""
        self.broker.kill()

    def restart(self) -> None:
        """Start the broker again; stop it cleanly first if it runs."""
        self.broker.restart()

    def pause(self) -> None:
        """Pause the broker: connections stay open without responses."""
        self.broker.pause()

    def resume(self) -> None:
        """End `pause`."""
        self.broker.resume()

    def fill_disk(self) -> None:
        """Make every write of the broker to its files fail; reads work."""
        self.broker.fill_disk()

    def free_disk(self) -> None:
        """End `fill_disk`."""
        self.broker.free_disk()

    def add_latency(self, latency_ms: int) -> None:
        """Delay all bytes to and from the broker this long; 0 ends it."""
        self.broker.add_latency(latency_ms)

    def heal(self) -> None:
        """End every fault; returns when the broker serves."""
        if isinstance(self._log, EmbeddedBroker):
            self._log.heal()


def _log_of(kafka: str | None, settings: Mapping[str, str]) -> Log | None:
    if kafka is None:
        return EmbeddedBroker(settings=settings)
    if kafka == APACHE:
        from tests.support.apache_kafka import ApacheKafka  # its import looks for Java

        return ApacheKafka(heap="512m")
    return None
