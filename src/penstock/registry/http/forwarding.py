"""Writes that came to a node that may not write: sent on to the primary, and its answer back.

Then the node waits until it has read what the primary wrote: who asks here next, finds it here.
"""

from contextlib import suppress
from typing import Final

import httpx
from fastapi import Request, Response

from penstock.model import Offset
from penstock.registry.errors import forwarding_failed, primary_unknown
from penstock.registry.http.answers import END_OFFSET, MEDIA
from penstock.registry.service import Elsewhere, Registry

FORWARDED: Final = "penstock-forwarded"  # once is enough: two nodes may disagree for a moment
FORWARD_S: Final = 30.0
_PASSED_ON: Final = ("content-type", "accept", "user-agent", "penstock-client")


class Forwarder:
    """Keeps connections to the primary."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._client = httpx.AsyncClient(timeout=FORWARD_S)

    async def close(self) -> None:
        """Drop the connections."""
        await self._client.aclose()

    async def forward(self, request: Request, elsewhere: Elsewhere) -> Response:
        """The primary's answer."""
        if FORWARDED in request.headers:
            raise primary_unknown()
        headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        query = request.scope["query_string"].decode("latin-1")
        url = f"{elsewhere.url}{request.scope['path']}{'?' if query else ''}{query}"
        try:
            answer = await self._client.request(
                request.method,
                url,
                content=getattr(request.state, "body", b""),
                headers={**headers, FORWARDED: "1"},
            )
        except httpx.HTTPError as failure:
            raise forwarding_failed(str(failure) or type(failure).__name__) from None
        end_offset = answer.headers.get(END_OFFSET, "0")
        with suppress(TimeoutError):  # it is written all the same; only reads here may lag behind
            await self._registry.log.applied(Offset(int(end_offset)))
        return Response(answer.content, answer.status_code, media_type=MEDIA)
