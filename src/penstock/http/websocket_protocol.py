"""uvicorn's WebSocket protocol, with the connection's transport among a scope's extensions.

Streams write whole frames to it directly, between the frames of the protocol itself. A peer that
does not respond to a ping is not closed here: a client that is slow may read the ping late, and one
that vanished is dropped by the streams themselves.
"""

from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

from penstock.http.http_protocol import TRANSPORT


class TransportWebSocketProtocol(WebSocketsSansIOProtocol):
    """The protocol of one connection."""

    def handle_connect(self, event: Request) -> None:
        """As uvicorn calls it; the application starts afterwards."""
        super().handle_connect(event)
        if self.response.status_code == 101:
            extensions: dict[str, Any] = self.scope["extensions"]
            extensions[TRANSPORT] = {"transport": self.transport}
