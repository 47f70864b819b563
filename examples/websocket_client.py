"""Print the events of a stream of the gateway over a WebSocket.

    python examples/websocket_client.py ws://127.0.0.1:8081/topics/orders/stream?offset=earliest

Grants credit for what it can take, acknowledges what it has printed, and after a disconnect
continues after the last event that it printed.
"""

import asyncio
import json
import sys
from contextlib import suppress
from urllib.parse import quote

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

RECORDS = 100
BYTES = 1 << 20


async def send(stream: ClientConnection, **message: str | int) -> None:
    await stream.send(json.dumps(message))


async def read(url: str) -> None:
    position, separator = "", "&" if "?" in url else "?"
    while True:
        resumed = f"{url}{separator}last_event_id={quote(position)}" if position else url
        with suppress(ConnectionClosed, OSError):
            async with connect(resumed) as stream:
                await send(stream, type="credit", records=RECORDS, bytes=BYTES)
                async for text in stream:
                    message = json.loads(text)
                    position = message.get("id", position)
                    if message["type"] == "records":
                        for event in message["events"]:
                            sys.stdout.write(json.dumps(event) + "\n")
                        sys.stdout.flush()
                        await send(stream, type="ack", number=message["number"])
                        count = len(message["events"])
                        await send(stream, type="credit", records=count, bytes=len(text))
        await asyncio.sleep(1)


if __name__ == "__main__":
    asyncio.run(read(sys.argv[1]))
