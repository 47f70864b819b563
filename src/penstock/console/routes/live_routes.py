"""`/console/live`: the WebSocket of a page."""

import asyncio
from contextlib import suppress
from typing import Final

from fastapi import APIRouter, WebSocket
from starlette.websockets import WebSocketDisconnect

from penstock.console.live.live_hub import LiveHub
from penstock.gateway.errors import GatewayError

TRY_AGAIN_LATER: Final = 1013
GOING_AWAY: Final = 1001


def live_routes(hub: LiveHub) -> APIRouter:
    """Live views."""
    router = APIRouter(tags=["console"])

    @router.websocket("/console/live")
    async def connect_page(websocket: WebSocket) -> None:
        try:
            page = hub.open()
        except GatewayError as declined:
            await websocket.close(TRY_AGAIN_LATER, declined.message)
            return
        await websocket.accept()

        async def send(message: bytes) -> None:
            await websocket.send_text(message.decode())

        async def serve() -> None:
            await page.send_all(send)
            await websocket.close(GOING_AWAY)

        sending = asyncio.create_task(serve())
        try:
            while True:
                await hub.handle(page, await websocket.receive_text())
        except (WebSocketDisconnect, KeyError):  # KeyError: a message of bytes
            pass
        finally:
            sending.cancel()
            # The connection may have ended while a message was being sent.
            with suppress(asyncio.CancelledError, WebSocketDisconnect, RuntimeError):
                await sending
            await hub.close(page)

    return router
