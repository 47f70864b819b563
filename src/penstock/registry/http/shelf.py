"""Answers to reads by id, kept until something happens that could change them.

What an id stands for never changes, but which version speaks for it may, and the last id of a
context moves with every new one. A new version takes down what is said of its own id and of last
ids; whatever removes or hides versions takes down everything.
"""

from typing import Any, Final, NamedTuple

from penstock.registry.http.wire import Repeated
from penstock.registry.store.model import (
    ConfigSet,
    ContextMade,
    Event,
    Marked,
    ModeSet,
    VersionStored,
)
from penstock.registry.usage import Use

ANSWERS_MAX: Final = 10_000
BODIES_BYTES_MAX: Final = 64 << 20
_HARMLESS: Final = (Marked, ConfigSet, ModeSet, ContextMade)

Key = tuple[bytes, bytes]  # path and query


class Ready(NamedTuple):
    """An answer, but for its type."""

    body: bytes
    context: str
    id: int
    tells_last_id: bool

    def start(self, media: str) -> dict[str, Any]:
        """The beginning of the answer, in one of its types."""
        headers = [
            (b"content-type", media.encode()),
            (b"content-length", str(len(self.body)).encode()),
        ]
        return {"type": "http.response.start", "status": 200, "headers": headers}


class Known(NamedTuple):
    """The answer to a request in just these words, and who uses what by it."""

    answer: Repeated
    use: Use


class Shelf:
    """Bounded: when it is full it is emptied, and fills again with what is asked for now."""

    def __init__(self) -> None:
        self._ready: dict[Key, Ready] = {}
        self._known: dict[bytes, Known] = {}  # by the whole request; bodies are those of `_ready`
        self._of_id: dict[int, list[Key | bytes]] = {}
        self._of_last_ids: list[Key | bytes] = []
        self._bodies_bytes = 0

    def find(self, key: Key) -> Ready | None:
        """The answer to a path and query."""
        return self._ready.get(key)

    def repeat(self, request: bytes) -> Known | None:
        """The answer to a request that came before."""
        return self._known.get(request)

    def keep(self, key: Key, ready: Ready) -> None:
        """Put up an answer."""
        if len(self._ready) >= ANSWERS_MAX or self._bodies_bytes >= BODIES_BYTES_MAX:
            self.clear()
        self._ready[key] = ready
        self._bodies_bytes += len(ready.body)
        self._index(key, ready)

    def remember(self, request: bytes, ready: Ready, known: Known) -> None:
        """Put up an answer under the whole request."""
        if len(self._known) >= ANSWERS_MAX:
            self.clear()
        self._known[request] = known
        self._index(request, ready)

    def _index(self, key: Key | bytes, ready: Ready) -> None:
        self._of_id.setdefault(ready.id, []).append(key)
        if ready.tells_last_id:
            self._of_last_ids.append(key)

    def on_event(self, event: Event) -> None:
        """Take down what is perhaps no longer so."""
        if isinstance(event, VersionStored):
            self._drop(self._of_id.pop(event.version.id, []))
            dropped, self._of_last_ids = self._of_last_ids, []
            self._drop(dropped)
        elif not isinstance(event, _HARMLESS):
            self.clear()

    def _drop(self, keys: list[Key | bytes]) -> None:
        for key in keys:
            if isinstance(key, bytes):
                self._known.pop(key, None)
            elif (gone := self._ready.pop(key, None)) is not None:
                self._bodies_bytes -= len(gone.body)

    def clear(self) -> None:
        """Take down everything."""
        self._ready.clear()
        self._known.clear()
        self._of_id.clear()
        self._of_last_ids.clear()
        self._bodies_bytes = 0
