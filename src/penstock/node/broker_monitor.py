"""The metrics port of a broker process: its metrics and its health.

It is there before the broker, so that a broker that is recovering is alive and not ready. Live: the
event loop answers. Ready: the logs are recovered, the cluster counts this broker as alive, and the
controller answered a heartbeat within the session.
"""

from __future__ import annotations

import errno
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from penstock.broker.metrics import BrokerMetrics, MeasuredParts
from penstock.http.guard import Guard
from penstock.metrics import broker_rows as rows
from penstock.metrics.loop_watch import LoopWatch
from penstock.metrics.process import ProcessMetrics
from penstock.metrics.responder import MetricsResponder, ServedState
from penstock.metrics.text_format import Family, write_families
from penstock.node.addresses import METRICS_PORT
from penstock.node.listen_address import CannotListenError, bracketed
from penstock.upkeep.metrics import upkeep_families

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.node.run_broker import RunningBroker
    from penstock.node.settings import NodeSettings

LISTENER_KEY: Final = "penstock.metrics.listener"


class BrokerMonitor:
    """Serves metrics and health from `start` to `close`."""

    def __init__(self, settings: NodeSettings) -> None:
        self.settings: NodeSettings = settings
        self.url: str = ""
        self._running: RunningBroker | None = None
        self._metrics: BrokerMetrics | None = None
        self._recovery_s = 0.0
        self._began_s = time.perf_counter()
        self._watch = LoopWatch()
        self._process = ProcessMetrics(self._watch)
        guard = Guard((settings.host, settings.shown_host), option="--advertise")
        self._responder = MetricsResponder(
            ServedState(
                self._text, is_live=lambda: True, is_ready=self._is_ready, refusal=guard.refusal
            )
        )

    async def start(self) -> NodeSettings:
        """Listen; returns the broker's settings with the address, for others to find it."""
        settings = self.settings
        is_any = settings.metrics_port is None and settings.kafka_port == 0
        port = await self._listen(0 if is_any else settings.metrics_port)
        self.url = f"http://{bracketed(settings.shown_host)}:{port}/metrics"
        self._watch.start()
        return replace(settings, static=settings.static | {LISTENER_KEY: self.url})

    def attach(self, running: RunningBroker) -> None:
        """The broker serves."""
        self._recovery_s = time.perf_counter() - self._began_s
        self._metrics = BrokerMetrics(
            MeasuredParts(running.broker, running.server, running.flusher, str(running.folder.path))
        )
        self._running = running

    def detach(self) -> None:
        """The broker stops: it is not ready any more."""
        self._running = self._metrics = None

    async def close(self) -> None:
        self._watch.stop()
        await self._responder.close()

    async def _listen(self, port: int | None) -> int:
        """The usual port, or any if another broker of this machine has that."""
        host = self.settings.host
        try:
            return await self._responder.listen(host, METRICS_PORT if port is None else port)
        except OSError as error:
            if port is None and error.errno == errno.EADDRINUSE:
                return await self._responder.listen(host, 0)
            is_of_port = error.errno in (errno.EADDRINUSE, errno.EACCES)
            shown = port if is_of_port and port is not None else self.settings.kafka_port
            raise CannotListenError(error, host, shown, "--metrics-port") from error

    def _is_ready(self) -> bool:
        running = self._running
        if running is None or not running.lifecycle.is_in_session:
            return False
        alive = running.broker.cluster.brokers()
        return any(endpoint.node_id == self.settings.node_id for endpoint in alive)

    def _text(self) -> Iterator[str]:
        return write_families(self._families())

    def _families(self) -> Iterator[Family | None]:
        yield from self._process.families(is_ready=self._is_ready())
        running, metrics = self._running, self._metrics
        if running is None or metrics is None:
            return
        yield from metrics.families()
        yield from upkeep_families(running.upkeep)
        yield rows.LOG_RECOVERY_SECONDS, [((), round(self._recovery_s, 3))]
        yield rows.LOG_WAS_CLEAN, [((), int(running.folder.was_clean))]
