"""The platform that tests share: a broker and a registry, started at once, named apart.

Every name it gives out begins with a prefix of its own and is never given out twice, so that tests
can run side by side on one cluster. Faults hit everybody who uses the platform: `heal` ends them.
"""

import re
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
STEM_CHARACTERS_MAX: Final = 100  # a topic's name has 249 at most, and ours are made longer
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")


class ForeignBrokerError(Exception):
    """A fault was asked for, and the cluster is not ours to break."""


class Log(Protocol):
    """A Kafka server that is started and stopped here."""

    @property
    def bootstrap(self) -> str: ...
    def __enter__(self) -> Any: ...
    def __exit__(self, kind: None, error: None, trace: None, /) -> None: ...


class Platform:
    """A broker and a registry of one's own, or a registry over a cluster that is there.

    `kafka` is None for a broker of ours, which gets the `settings`; `apache` for an Apache Kafka
    started here; or where a cluster is: host:port.
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
        """Start both; returns when Kafka clients are served. The registry may take a moment more.

        The registry's process loads while the broker starts, and is waited for by who first asks.
        """
        self._http = HttpProcess()
        try:
            if self._log is not None:
                self._log.__enter__()
        except BaseException:
            self._http.kill()
            raise
        options = HttpOptions(self.bootstrap, http_port=0, log_level="WARNING")
        if self._kafka is not None:  # schemas of tests do not belong with those of others
            options = replace(options, group=self.prefix, topic=f"_{self.prefix}")
        self._http.configure(options)
        return self

    def stop(self) -> None:
        """Stop both, and remove what they kept if the broker was ours."""
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
        """A name nobody used before, for a topic, a group, a subject or a transactional id."""
        fit = _UNFIT.sub("-", stem)[:STEM_CHARACTERS_MAX].strip("-.")
        return f"{self.prefix}-{next(self._numbers)}-{fit}"

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
        wanted = NewTopic(name, partitions, 1, config=dict(settings or {}))
        self._admin.create_topics([wanted], operation_timeout=CREATE_S)[name].result(CREATE_S)
        return name

    @property
    def broker(self) -> EmbeddedBroker:
        """The broker, if it is ours."""
        if isinstance(self._log, EmbeddedBroker):
            return self._log
        raise ForeignBrokerError(f"{self.bootstrap} is no broker of ours: it is left in peace")

    def kill(self) -> None:
        """End the broker at once (kill -9). What was acknowledged is there after `restart`."""
        self.broker.kill()

    def restart(self) -> None:
        """Start the broker again, after a kill or by stopping it in good order first."""
        self.broker.restart()

    def pause(self) -> None:
        """Put the broker to sleep: connections stay open and nobody answers."""
        self.broker.pause()

    def resume(self) -> None:
        """Wake it."""
        self.broker.resume()

    def fill_disk(self) -> None:
        """From now on the broker cannot write to its files; reads go on."""
        self.broker.fill_disk()

    def free_disk(self) -> None:
        """There is room again."""
        self.broker.free_disk()

    def add_latency(self, latency_ms: int) -> None:
        """From now on everything takes so long to and from the broker; 0 ends it."""
        self.broker.add_latency(latency_ms)

    def heal(self) -> None:
        """End every fault; returns when the broker serves."""
        if isinstance(self._log, EmbeddedBroker):
            self._log.heal()


def _log_of(kafka: str | None, settings: Mapping[str, str]) -> Log | None:
    if kafka is None:
        return EmbeddedBroker(settings=settings)
    if kafka == APACHE:
        from tests.support.apache_kafka import ApacheKafka  # looks for Java at once

        return ApacheKafka(heap="512m")
    return None
