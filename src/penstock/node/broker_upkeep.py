"""Retention and compaction of a broker's partitions, with their worker and their status file."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from penstock.config.resolve import view
from penstock.node.upkeep_status import remove_status, write_status
from penstock.upkeep.scheduler import Upkeep, UpkeepTarget
from penstock.upkeep.settings import UpkeepSettings
from penstock.upkeep.worker_process import WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.broker.partitions import Partitions
    from penstock.config.resolve import Values
    from penstock.node.clocks import Clocks

logger: Final = logging.getLogger(__name__)

STATUS_INTERVAL_S: Final = 1.0  # at most this often, however short the rounds are


class BrokerUpkeep:
    """Runs beside a broker."""

    def __init__(
        self, partitions: Partitions, folder: Path, settings: Values, clocks: Clocks
    ) -> None:
        self._partitions = partitions
        self._folder = folder
        self._clocks = clocks
        self._status_due_at = 0.0
        self._worker = WorkerProcess()
        self.upkeep: Upkeep = Upkeep(
            self._targets,
            self._worker,
            view(UpkeepSettings, settings),
            clock=clocks.wall,
            steady_clock=clocks.steady,
            on_round=self._write_status,
        )

    async def stop(self) -> None:
        """End the worker; `run` of the upkeep was cancelled."""
        await self._worker.stop()
        with suppress(OSError):
            remove_status(self._folder)

    def _targets(self) -> Iterator[UpkeepTarget]:
        for partition in tuple(self._partitions):
            settings = partition.settings
            yield UpkeepTarget(partition.log, settings.retention, settings.compaction)

    def _write_status(self) -> None:
        now = self._clocks.monotonic_s()
        if now < self._status_due_at:
            return
        self._status_due_at = now + STATUS_INTERVAL_S
        try:
            write_status(self._folder, self.upkeep, self._clocks.wall())
        except OSError as error:  # nothing depends on it
            logger.debug("the upkeep status could not be written: %s", error)
