"""A node about itself: liveness, contexts, version, metrics."""

from collections.abc import Iterator, Sequence

from fastapi import APIRouter, Response
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.registry.http.front import Front
from penstock.registry.http.requests import ContextPrefix, Number
from penstock.registry.http.responses import json_response, page
from penstock.registry.registry_node import RegistryNode
from penstock.registry.subject_names import context_from_path, is_hidden
from penstock.version import __version__


def about(node: RegistryNode) -> APIRouter:
    """The node and its cluster."""
    router = APIRouter(tags=["node"])

    @router.get("/")
    async def is_alive() -> Response:
        """An empty object: the node serves."""
        return json_response({})

    @router.post("/")
    async def is_alive_too() -> Response:
        """An empty object, as some probes ask for it."""
        return json_response({})

    @router.get("/contexts")
    async def list_contexts(
        offset: Number = 0, limit: Number = -1, context_prefix: ContextPrefix = ""
    ) -> Response:
        """The contexts there are; that of registered readers only if it is named."""
        prefix = context_from_path(context_prefix) if context_prefix else ""
        names = (
            name
            for name in sorted(node.state.contexts)
            if name.startswith(prefix) and (name == prefix or not is_hidden(name))
        )
        return json_response(page(names, offset, limit))

    @router.get("/v1/metadata/id")
    async def identify() -> Response:
        """Which cluster this is."""
        clusters = {
            "kafka-cluster": node.topic.cluster_id,
            "schema-registry-cluster": "schema-registry",
        }
        return json_response({"scope": {"path": [], "clusters": clusters}})

    @router.get("/v1/metadata/version")
    async def tell_version() -> Response:
        """Which release this is."""
        return json_response({"version": __version__, "commitId": ""})

    return router


def metrics(node: RegistryNode, front: Front, others: Sequence[Collector] = ()) -> APIRouter:
    """`/metrics`, read on request."""
    router = APIRouter(tags=["node"])
    collectors = CollectorRegistry()
    for collector in (_Counts(node, front), *others):
        collectors.register(collector)

    @router.get("/metrics")
    async def read_metrics() -> Response:
        """For Prometheus."""
        return Response(generate_latest(collectors), media_type="text/plain; version=0.0.4")

    return router


class _Counts:
    """The counters of the registry as metrics."""

    def __init__(self, node: RegistryNode, front: Front) -> None:
        self._node = node
        self._front = front

    def collect(self) -> Iterator[Metric]:
        """As prometheus-client calls it."""
        state, front = self._node.state, self._front
        gauges = {
            "subjects": (len(state.versions), "Subjects, the deleted ones included."),
            "versions": (sum(map(len, state.versions.values())), "Versions stored."),
            "contexts": (len(state.contexts), "Contexts."),
            "primary": (int(self._node.role.is_primary), "1 if this node may write."),
            "log_end_offset": (self._node.topic.end_offset, "Where the log was read to."),
        }
        for name, (value, text) in gauges.items():
            yield GaugeMetricFamily(f"penstock_registry_{name}", text, value=value)
        requests = CounterMetricFamily(
            "penstock_http_requests", "Requests json_response, by status.", labels=["status"]
        )
        for status, count in sorted(front.responses.items()):
            requests.add_metric([str(status)], count)
        yield requests
        closed = CounterMetricFamily(
            "penstock_http_connections_closed",
            "Connections closed by the server before their request was complete.",
            labels=["reason"],
        )
        for reason, count in sorted(front.closed.items()):
            closed.add_metric([reason], count)
        yield closed
        yield CounterMetricFamily(
            "penstock_registry_response_cache_hits",
            "Reads served from the response cache.",
            value=front.hits,
        )
