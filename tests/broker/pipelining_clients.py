"""Clients in their own process: `greedy` ones that pipeline, or a `polite` one that waits.

python pipelining_clients.py PORT greedy FRAME_FILE CONNECTIONS    until standard input closes
python pipelining_clients.py PORT polite FRAME_FILE SECONDS        prints latencies in ms, as JSON
"""

import json
import selectors
import socket
import struct
import sys
import time
from pathlib import Path

SENT_BYTES = 512 << 10  # at a time, at least: whole requests


def flood(port: int, frame: bytes, connections: int) -> None:
    """Send as fast as the broker reads, and drop the responses."""
    selector = selectors.DefaultSelector()
    block = frame * (SENT_BYTES // len(frame) + 1)
    unsent: dict[socket.socket, memoryview] = {}
    clients: dict[int, socket.socket] = {}
    for _ in range(connections):
        client = socket.create_connection(("127.0.0.1", port))
        client.setblocking(False)
        unsent[client], clients[client.fileno()] = memoryview(block), client
        selector.register(client, selectors.EVENT_READ | selectors.EVENT_WRITE)
    selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        for key, events in selector.select():
            if key.fd == sys.stdin.fileno():
                return
            client = clients[key.fd]
            if events & selectors.EVENT_READ:
                assert client.recv(1 << 20), "the broker closed the connection"
            if events & selectors.EVENT_WRITE:
                sent = client.send(unsent[client])
                unsent[client] = unsent[client][sent:] or memoryview(block)


def ask_politely(port: int, frame: bytes, for_s: float) -> list[float]:
    """One request after another, with pauses; how long each took."""
    took_ms = []
    with socket.create_connection(("127.0.0.1", port)) as client:
        replies = client.makefile("rb")
        until = time.monotonic() + for_s
        while time.monotonic() < until:
            began = time.monotonic()
            client.sendall(frame)
            (size,) = struct.unpack(">i", replies.read(4))
            replies.read(size)
            took_ms.append((time.monotonic() - began) * 1000)
            time.sleep(0.005)
    return took_ms


if __name__ == "__main__":
    given_port, role, path, amount = sys.argv[1:]
    request = Path(path).read_bytes()
    if role == "greedy":
        flood(int(given_port), request, int(amount))
    else:
        sys.stdout.write(json.dumps(ask_politely(int(given_port), request, float(amount))))
