"""Turns of requests that change the same subject."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from penstock.registry.subject_names import Subject


class SubjectTurns:
    """One request at a time per subject; nothing is kept of subjects without requests."""

    def __init__(self) -> None:
        self._locks: dict[Subject, asyncio.Lock] = {}
        self._requests: dict[Subject, int] = {}

    @asynccontextmanager
    async def turn(self, subject: Subject) -> AsyncIterator[None]:
        """Wait for the turn, and have it for the body of the `async with`."""
        lock = self._locks.setdefault(subject, asyncio.Lock())
        self._requests[subject] = self._requests.get(subject, 0) + 1
        try:
            async with lock:
                yield
        finally:
            self._requests[subject] -= 1
            if not self._requests[subject]:
                del self._requests[subject], self._locks[subject]
