"""`/search`: topics, groups and subjects by a part of their names."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Annotated

from fastapi import APIRouter, Query, Response

from penstock.console.console_node import ConsoleNode
from penstock.console.routes.schema_routes import listed_subjects
from penstock.gateway.json_responses import json_response


def find_routes(node: ConsoleNode) -> APIRouter:
    """Names."""
    router = APIRouter(tags=["console"])

    @router.get("/search")
    async def find_names(
        q: Annotated[str, Query(max_length=500, description="Part of a name.")] = "",
        limit: Annotated[int, Query(ge=1, le=200)] = 20,
    ) -> Response:
        """Topics, groups and subjects whose names contain a text, the nearest first."""
        sample = await node.sampler.sample()
        kinds = {
            "topic": (row.name for row in sample.topics or ()),
            "group": (row.group for row in sample.groups or ()),
            "subject": listed_subjects(node.registry.state),
        }
        named = [(kind, name) for kind, names in kinds.items() for name in names]
        results = [{"kind": kind, "name": name} for kind, name in islice(ranked(q, named), limit)]
        return json_response({"results": results})

    return router


def ranked(text: str, named: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """What contains the text, whatever its case: equal, then beginning with it, then the others."""
    wanted = text.casefold()
    ranks: dict[int, list[tuple[str, str]]] = {0: [], 1: [], 2: []}
    for kind, name in named:
        folded = name.casefold()
        if wanted in folded:
            rank = 0 if folded == wanted else 1 if folded.startswith(wanted) else 2
            ranks[rank].append((kind, name))
    for rows in ranks.values():
        yield from rows
