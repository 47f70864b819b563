"""`/console/api/info` and `/console/api/overview`: what cluster this is, and how it does."""

from fastapi import APIRouter, Response

from penstock.console.console_node import ConsoleNode
from penstock.console.overview import panels
from penstock.extras import is_installed
from penstock.gateway.json_responses import json_response
from penstock.version import __version__


def overview_routes(node: ConsoleNode) -> APIRouter:
    """The cluster as a whole."""
    router = APIRouter(tags=["console"])

    @router.get("/console/api/info")
    async def read_info() -> Response:
        """What this server is, what it may do, and which panels the cluster can fill.

        A panel is `served` as the cluster tells it, `derived` from what it tells (rates from
        offsets), or `unavailable`.
        """
        sample = await node.sampler.sample()
        cluster, kind, has_sql = sample.cluster, await node.kind(), is_installed("sql")
        return json_response(
            {
                "version": __version__,
                "read_only": node.options.read_only,
                "cluster_id": None if cluster is None else cluster.cluster_id,
                "kind": kind,
                "sql": has_sql,
                "panels": panels(sample, kind, has_sql=has_sql),
            }
        )

    @router.get("/console/api/overview")
    async def read_overview() -> Response:
        """Brokers, controller, throughput, partitions in trouble, disks, groups by lag."""
        history = [
            {"time": str(row.at), "records_in": row.records_in, "bytes_in": row.bytes_in}
            for row in node.sampler.throughput.history
        ]
        return json_response({**await node.overview(), "history": history})

    return router
