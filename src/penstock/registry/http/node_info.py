"""What a node says of itself: liveness, contexts, versions, metrics."""

from collections.abc import Iterator

from fastapi import APIRouter, Response
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from penstock.registry.http.front import Front
from penstock.registry.http.requests import Number, Text
from penstock.registry.http.responses import answered, page
from penstock.registry.node import Registry
from penstock.registry.subject_names import context_from_path, is_hidden
from penstock.version import __version__


def about(registry: Registry) -> APIRouter:
    """The node and its cluster."""
    router = APIRouter(tags=["node"])

    @router.get("/")
    async def is_alive() -> Response:
        """An empty object: the node serves."""
        return answered({})

    @router.post("/")
    async def is_alive_too() -> Response:
        """An empty object, as some probes ask for it."""
        return answered({})

    @router.get("/contexts")
    async def list_contexts(
        offset: Number = 0, limit: Number = -1, contextPrefix: Text = ""
    ) -> Response:
        """The contexts there are; that of registered readers only if it is named."""
        prefix = context_from_path(contextPrefix) if contextPrefix else ""
        names = (
            name
            for name in sorted(registry.store.contexts)
            if name.startswith(prefix) and (name == prefix or not is_hidden(name))
        )
        return answered(page(names, offset, limit))

    @router.get("/v1/metadata/id")
    async def identify() -> Response:
        """Which cluster this is."""
        clusters = {
            "kafka-cluster": registry.log.cluster_id,
            "schema-registry-cluster": "schema-registry",
        }
        return answered({"scope": {"path": [], "clusters": clusters}})

    @router.get("/v1/metadata/version")
    async def tell_version() -> Response:
        """Which release this is."""
        return answered({"version": __version__, "commitId": ""})

    return router


def metrics(registry: Registry, front: Front) -> APIRouter:
    """`/metrics`, read when asked for."""
    router = APIRouter(tags=["node"])
    collectors = CollectorRegistry()
    collectors.register(_Counts(registry, front))

    @router.get("/metrics")
    async def read_metrics() -> Response:
        """For Prometheus."""
        return Response(generate_latest(collectors), media_type="text/plain; version=0.0.4")

    return router


class _Counts:
    """The plain integers of the registry as metrics."""

    def __init__(self, registry: Registry, front: Front) -> None:
        self._registry = registry
        self._front = front

    def collect(self) -> Iterator[Metric]:
        """As prometheus-client asks."""
        store, front = self._registry.store, self._front
        gauges = {
            "subjects": (len(store.versions), "Subjects, the deleted ones included."),
            "versions": (sum(map(len, store.versions.values())), "Versions stored."),
            "contexts": (len(store.contexts), "Contexts."),
            "primary": (int(self._registry.standing.is_primary), "1 if this node may write."),
            "log_end_offset": (self._registry.log.end_offset, "Where the log was read to."),
        }
        for name, (value, text) in gauges.items():
            yield GaugeMetricFamily(f"penstock_registry_{name}", text, value=value)
        requests = CounterMetricFamily(
            "penstock_http_requests", "Requests answered, by status.", labels=["status"]
        )
        for status, count in sorted(front.answered.items()):
            requests.add_metric([str(status)], count)
        yield requests
        ended = CounterMetricFamily(
            "penstock_http_connections_closed",
            "Connections closed by the server before their request was complete.",
            labels=["reason"],
        )
        for reason, count in sorted(front.ended.items()):
            ended.add_metric([reason], count)
        yield ended
        yield CounterMetricFamily(
            "penstock_registry_shelf_hits", "Reads answered by ready bytes.", value=front.hits
        )
