"""Writes the checkpoints of a data folder at intervals, and removes what was deleted."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.log import LogDirectory
    from penstock.model import Millis

logger: Final = logging.getLogger(__name__)

INTERVAL_MIN_MS: Final = 1000


async def write_checkpoints(
    folder: LogDirectory, clock: Callable[[], Millis], interval_ms: Millis
) -> None:
    """Until it is cancelled. The work is done in a thread."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(max(interval_ms, INTERVAL_MIN_MS) / 1000)
        try:
            await loop.run_in_executor(None, folder.plan_checkpoint().run)
        except OSError as error:  # only makes the next recovery longer
            logger.warning("the checkpoints could not be written: %s", error)
        remove = partial(
            folder.remove_folders, folder.take_deleted(clock()), keep_names=folder.has_deleted_rows
        )
        await loop.run_in_executor(None, remove)
