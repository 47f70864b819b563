"""Writes that came to a node that may not write: sent on to the primary, and its answer back.

Then the node waits until it has read what the primary wrote: who asks here next, finds it here.
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
from penstock.registry.node import Elsewhere, Registry

FORWARDED: Final = "penstock-forwarded"  # once is enough: two nodes may disagree for a moment
FORWARD_S: Final = 30.0
RETRY_S: Final = 10.0  # as long as a change of primary may take
PAUSE_S: Final = 0.1
_PASSED_ON: Final = ("content-type", "accept", "user-agent", "penstock-client")


class Forwarder:
    """Keeps connections to the primary. While there is none to be reached, requests wait a while.

    Only what was surely not carried out, or may be carried out twice, is sent again.
    """

    def __init__(self, registry: Registry, own_url: str) -> None:
        self._registry = registry
        self._own_url = own_url
        self._client = httpx.AsyncClient(timeout=FORWARD_S)

    async def close(self) -> None:
        """Drop the connections."""
        await self._client.aclose()

    async def forward(self, request: Request, elsewhere: Elsewhere) -> Response:
        """The primary's answer."""
        if FORWARDED in request.headers:
            raise primary_unknown()
        url = elsewhere.url
        deadline = asyncio.get_running_loop().time() + RETRY_S
        while True:
            may_retry = asyncio.get_running_loop().time() < deadline
            try:
                answer = await self._send(request, url)
            except httpx.HTTPError as failure:
                was_sent = not isinstance(failure, httpx.ConnectError | httpx.ConnectTimeout)
                if not may_retry or (was_sent and request.method == "DELETE"):
                    raise forwarding_failed(str(failure) or type(failure).__name__) from None
            else:
                if not may_retry or not _is_undecided(answer):
                    return await self._passed_back(answer)
            await asyncio.sleep(PAUSE_S)
            standing = self._registry.standing
            url = self._own_url if standing.is_primary else standing.primary_url or url

    async def _send(self, request: Request, url: str) -> httpx.Response:
        headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        query = request.scope["query_string"].decode("latin-1")
        return await self._client.request(
            request.method,
            f"{url}{request.scope['path']}{'?' if query else ''}{query}",
            content=getattr(request.state, "body", b""),
            headers={**headers, FORWARDED: "1"},
        )

    async def _passed_back(self, answer: httpx.Response) -> Response:
        end_offset = answer.headers.get(END_OFFSET, "0")
        with suppress(TimeoutError):  # it is written all the same; only reads here may lag behind
            await self._registry.log.applied(Offset(int(end_offset)))
        return Response(answer.content, answer.status_code, media_type=MEDIA)


def _is_undecided(answer: httpx.Response) -> bool:
    """Whether the node that was asked does not take itself for the primary any more, or yet."""
    return answer.status_code == HTTPStatus.INTERNAL_SERVER_ERROR and b"50004" in answer.content
