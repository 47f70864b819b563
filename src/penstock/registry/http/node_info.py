"""A node about itself: liveness, contexts, version."""

from fastapi import APIRouter, Response

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
