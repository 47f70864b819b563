"""Reads the topics of the cluster regularly, once for everything in the process that follows them.

Patterns of subscriptions, leaders of groups and streams of whole topics learn here of topics and
partitions that were added. Reads nothing while nothing listens.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, TypeAlias

from penstock.link.operation import FAILURES
from penstock.link.topic_admin import TopicDescription

WATCH_S: Final = 3.0
Topics: TypeAlias = Sequence[TopicDescription]
TopicListener: TypeAlias = Callable[[Topics], None]


class TopicWatch:
    """Calls its listeners with all topics; a cluster that is away is tried again."""

    def __init__(self, read: Callable[[], Awaitable[Topics]]) -> None:
        self._read = read
        self._listeners: dict[TopicListener, None] = {}
        self._task: asyncio.Task[None] | None = None

    def add(self, listener: TopicListener) -> None:
        """Call a listener with all topics every `WATCH_S`."""
        self._listeners[listener] = None
        if self._task is None:
            self._task = asyncio.create_task(self._watch(), name="topics of the cluster")

    def remove(self, listener: TopicListener) -> None:
        """Call it no more; a listener that is not there is no error."""
        self._listeners.pop(listener, None)
        if not self._listeners and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_S)
            with suppress(*FAILURES):
                topics = await self._read()
                for listener in list(self._listeners):
                    listener(topics)
