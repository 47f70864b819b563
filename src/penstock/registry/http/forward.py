"""Writes that reach a node which may not write: forwarded to the primary, and its response back.

Before it responds, the node waits until it has read what the primary wrote: the next request to
this node sees it.
"""

import asyncio
from contextlib import suppress
from http import HTTPStatus
from typing import Final

import httpx
from fastapi import Request, Response

from penstock.model import Offset
from penstock.registry.errors import forwarding_failed, primary_unknown
from penstock.registry.http.responses import END_OFFSET, MEDIA
from penstock.registry.registry_node import RegistryNode

FORWARDED: Final = "penstock-forwarded"  # only once: two nodes may disagree for a moment
FORWARD_S: Final = 30.0
RETRY_S: Final = 10.0  # as long as a change of primary may take
PAUSE_S: Final = 0.1
_FORWARDED_HEADERS: Final = ("content-type", "accept", "user-agent", "penstock-client")


class Forwarder:
    """Keeps connections to the primary. While there is none, requests wait for some time.

    Only what certainly had no effect, or may have it twice, is sent again.
    """

    def __init__(self, node: RegistryNode, own_url: str) -> None:
        self._node = node
        self._own_url = own_url
        self._client = httpx.AsyncClient(timeout=FORWARD_S)

    async def close(self) -> None:
        """Drop the connections."""
        await self._client.aclose()

    async def forward(self, request: Request, url: str) -> Response:
        """The primary's response."""
        if FORWARDED in request.headers:
            raise primary_unknown()
        deadline = asyncio.get_running_loop().time() + RETRY_S
        while True:
            may_retry = asyncio.get_running_loop().time() < deadline
            try:
                response = await self._send(request, url)
            except httpx.HTTPError as failure:
                was_sent = not isinstance(failure, httpx.ConnectError | httpx.ConnectTimeout)
                if not may_retry or (was_sent and request.method == "DELETE"):
                    raise forwarding_failed(str(failure) or type(failure).__name__) from None
            else:
                if not may_retry or not _is_undecided(response):
                    return await self._returned(response)
            await asyncio.sleep(PAUSE_S)
            role = self._node.role
            url = self._own_url if role.is_primary else role.primary_url or url

    async def _send(self, request: Request, url: str) -> httpx.Response:
        headers = {
            name: request.headers[name] for name in _FORWARDED_HEADERS if name in request.headers
        }
        query = request.scope["query_string"].decode("latin-1")
        return await self._client.request(
            request.method,
            f"{url}{request.scope['path']}{'?' if query else ''}{query}",
            content=getattr(request.state, "body", b""),
            headers={**headers, FORWARDED: "1"},
        )

    async def _returned(self, response: httpx.Response) -> Response:
        end_offset = response.headers.get(END_OFFSET, "0")
        with suppress(TimeoutError):  # it is written; only reads on this node may lag
            await self._node.topic.reached(Offset(int(end_offset)))
        return Response(response.content, response.status_code, media_type=MEDIA)


def _is_undecided(response: httpx.Response) -> bool:
    """Whether the other node is not the primary any more, or not yet."""
    is_failed = response.status_code == HTTPStatus.INTERNAL_SERVER_ERROR
    return is_failed and b"50004" in response.content
