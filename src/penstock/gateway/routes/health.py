"""`/health/live` and `/health/ready`: for probes; they pass the guard of hosts and origins."""

import asyncio
from typing import Final

from fastapi import APIRouter, Response

from penstock.errors import Refused
from penstock.gateway.errors import as_gateway_error, unavailable
from penstock.gateway.gateway_node import GatewayNode
from penstock.gateway.json_responses import error_response, json_response
from penstock.gateway.kafka.topic_admin import describe_cluster

_READY_S: Final = 2.0


def checking(node: GatewayNode) -> APIRouter:
    """Whether the process lives, and whether it can serve."""
    router = APIRouter(tags=["health"])

    @router.get("/health/live")
    async def is_live() -> Response:
        """The process responds."""
        return json_response({"status": "live"})

    @router.get("/health/ready")
    async def is_ready() -> Response:
        """The Kafka cluster responds, so that requests can be served; else 503."""
        if node.is_stopping:
            return error_response(unavailable("the gateway is stopping", "stopping"))
        try:
            async with asyncio.timeout(_READY_S):
                cluster = await node.run(describe_cluster())
        except TimeoutError:
            return error_response(unavailable(f"no broker responded in {_READY_S:g} s"))
        except (OSError, Refused) as failure:
            return error_response(as_gateway_error(failure))
        return json_response({"status": "ready", "brokers": len(cluster.brokers)})

    return router
