"""Metrics and health of the HTTP process, and the list of every process that has metrics.

Live: the event loop answers. Ready: a broker responds, and the registry has applied its log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from penstock.gateway.streams.stream_metrics import stream_families
from penstock.link.settings import link_settings
from penstock.metrics import http_rows as rows
from penstock.metrics.loop_watch import LoopWatch
from penstock.metrics.process import ProcessMetrics
from penstock.metrics.responder import in_turns
from penstock.metrics.text_format import CONTENT_TYPE, Family, write_families
from penstock.monitor.cluster_watch import ClusterWatch
from penstock.monitor.http_counts import HttpCounts
from penstock.monitor.lag_metrics import lag_families
from penstock.registry.metrics import registry_families
from penstock.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.gateway.gateway_node import GatewayNode
    from penstock.gateway.streams.stream_hub import StreamHub
    from penstock.http.site import Site
    from penstock.model import Millis
    from penstock.node.http_process import HttpOptions
    from penstock.registry.http.front import Front
    from penstock.registry.registry_node import RegistryNode

MONITOR_ROOTS: Final = frozenset((b"metrics", b"health"))
CATCH_UP_RECORDS_MAX: Final = 1000  # so far behind, a node of the registry is not ready


class HttpMonitor:
    """Watches from `start` to `stop`."""

    def __init__(
        self,
        options: HttpOptions,
        kafka: dict[str, str],
        own_address: str,
        node: RegistryNode,
        gateway: GatewayNode,
        clock: Callable[[], Millis],
    ) -> None:
        self._node = node
        self._gateway = gateway
        self._clock = clock
        self._front: Front | None = None
        self._streams: StreamHub | None = None
        self._loop_watch = LoopWatch()
        self._process = ProcessMetrics(self._loop_watch)
        self._counts: HttpCounts | None = None
        self.app: Final = self._build()
        self.cluster: Final = ClusterWatch(
            options.kafka,
            link_settings(kafka),
            clock=clock,
            own_address=own_address,
            registry_group=options.group,
            schemas_topic=options.topic,
        )

    def start(self, front: Front, streams: StreamHub) -> None:
        """Watch the cluster, and publish the counts of the registry and of streams."""
        self._front, self._streams = front, streams
        self._loop_watch.start()
        self.cluster.start()

    async def stop(self) -> None:
        """Before the event loop ends."""
        self._loop_watch.stop()
        await self.cluster.stop()

    def count(self, site: Site) -> HttpCounts:
        """The application to serve: it counts the requests to the site."""
        self._counts = HttpCounts(site)
        return self._counts

    def _build(self) -> FastAPI:
        app = FastAPI(
            title="Penstock", version=__version__, docs_url=None, redoc_url=None, openapi_url=None
        )

        @app.get("/metrics", tags=["node"], response_class=PlainTextResponse)
        async def read_metrics() -> Response:
            """The metrics of this process, for Prometheus."""
            text, _ = await in_turns(write_families(self._families()))
            return Response(text, media_type=CONTENT_TYPE)

        @app.get("/metrics/targets", tags=["node"])
        async def list_targets() -> JSONResponse:
            """Every process of the platform, for Prometheus' HTTP service discovery."""
            return JSONResponse(self.cluster.targets.to_json())

        @app.get("/health/live", tags=["node"])
        async def is_live() -> Response:
            """200: the process responds. The body is empty."""
            return Response()

        @app.get("/health/ready", tags=["node"])
        async def is_ready() -> Response:
            """200: a broker responds, and the registry has applied its log; else 503. No body."""
            return Response(status_code=200 if self._is_ready() else 503)

        return app

    def _is_ready(self) -> bool:
        end = self.cluster.schemas_end
        is_behind = end is not None and end - self._node.topic.end_offset > CATCH_UP_RECORDS_MAX
        return self.cluster.is_reachable and not is_behind and not self._gateway.is_stopping

    def _families(self) -> Iterator[Family | None]:
        yield from self._process.families(is_ready=self._is_ready())
        if self._counts is not None and self._front is not None:
            yield from self._counts.families()
            yield from registry_families(self._node, self._front, self.cluster.schemas_end)
        counts = self._gateway.counts.items()
        yield rows.GATEWAY_COUNTS, [((name,), count) for name, count in counts]
        if self._streams is not None:
            yield from stream_families(self._streams)
        yield rows.KAFKA_REACHABLE, [((), int(self.cluster.is_reachable))]
        yield from lag_families(self.cluster.lag, self._clock())
