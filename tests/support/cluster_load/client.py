"""One client of a load: a thread that works until it is stopped, and counts what succeeded."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.history import History

WORK_S = 60.0  # how long one call of a client may take


class Client(ABC):
    """Works step by step on its own thread. `acknowledged` counts what the cluster confirmed."""

    def __init__(self, name: str, history: History) -> None:
        self.name = name
        self.history = history
        self.acknowledged = 0
        self.errors: list[str] = []  # none of these may reach an application
        self.notes: Counter[str] = Counter()  # of what clients are expected to retry
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)

    @abstractmethod
    def step(self) -> None:
        """Do one piece of work."""

    @abstractmethod
    def close(self) -> None:
        """Finish what is pending."""

    def start(self) -> None:
        """Work until `stop`."""
        self._thread.start()

    def stop(self) -> None:
        """Finish; returns when everything has an outcome, as far as it ever will."""
        self._is_stopping.set()
        self._thread.join()

    def pause(self, seconds: float) -> None:
        """Wait, unless the client is stopped meanwhile."""
        self._is_stopping.wait(seconds)

    @property
    def is_stopping(self) -> bool:
        """Whether the client should finish."""
        return self._is_stopping.is_set()

    def _run(self) -> None:
        try:
            while not self._is_stopping.is_set():
                self.step()
            self.close()
        except Exception as error:  # noqa: BLE001 - reported by the load
            self.errors.append(f"{type(error).__name__}: {error}")
