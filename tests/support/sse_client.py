"""A client of server-sent events for tests: what came, event by event, as EventSource sees it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx


class SseEvent(NamedTuple):
    """One dispatched event, or an id that moved without one (`name` is None)."""

    name: str | None
    id: str  # the last one that was received
    fields: Any


class SseClient:
    """One connection. `id` is the last event id, as a browser keeps it."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.id = ""
        self.retry_ms = 0
        self._events = self._read()

    def _read(self) -> Iterator[SseEvent]:
        name, lines = "message", list[str]()
        has_id = False
        for line in self.response.iter_lines():
            field, _, value = line.partition(": ")
            match field:
                case "event":
                    name = value
                case "id":
                    self.id, has_id = value, True
                case "data":
                    lines.append(value)
                case "retry":
                    self.retry_ms = int(value)
                case "":
                    if lines:
                        yield SseEvent(name, self.id, json.loads("\n".join(lines)))
                    elif has_id:
                        yield SseEvent(None, self.id, None)
                    name, lines, has_id = "message", [], False

    def next(self) -> SseEvent:
        """The next event of any kind."""
        return next(self._events)

    def take(self, count: int) -> list[SseEvent]:
        """The next events that are records."""
        taken: list[SseEvent] = []
        while len(taken) < count:
            event = self.next()
            if event.name == "message":
                taken.append(event)
        return taken


@contextmanager
def sse(url: str, **headers: str) -> Iterator[SseClient]:
    """Connect to a stream."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with httpx.stream("GET", url, headers=named, timeout=30) as response:
        assert response.status_code == 200, response.read()
        yield SseClient(response)
