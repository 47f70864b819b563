"""What a reader is told where the disk failed, or shows bytes that nobody wrote.

Rot costs the readers of that place, and nobody else: not the broker, not its neighbours, and not
whoever reads before it or after it.
"""

import errno
import logging
from functools import lru_cache
from struct import error as StructError
from typing import Final, TypeAlias

from penstock.errors import ErrorCode, Malformed, Refused

logger = logging.getLogger(__name__)

DAMAGE: Final = (OSError, Malformed, StructError)  # struct's: the file is shorter than it was
Damage: TypeAlias = OSError | Malformed | StructError


class DamagedLog(OSError):
    """A log lacks what was on disk; it is not opened until a person has mended it."""

    def __init__(self, reason: str, path: str) -> None:
        super().__init__(errno.EIO, reason, path)


def unreadable(where: str, damage: Damage) -> Refused:
    """The refusal for a read in the file or folder `where`."""
    _tell(where, str(damage))
    if isinstance(damage, OSError):
        return Refused(ErrorCode.kafka_storage_error, f"{where} could not be read: {damage}")
    return Refused(ErrorCode.corrupt_message, f"{where} is damaged: {damage}")


@lru_cache(maxsize=1000)  # a damaged log is opened again and again: one line for all attempts
def warn_of_damage(where: str, damage: str) -> None:
    """Something in the file `where` is not as it was written."""
    logger.warning("%s: %s", where, damage)


@lru_cache(maxsize=1000)  # readers try again and again: one line for all of them
def _tell(where: str, damage: str) -> None:
    logger.error(
        "%s cannot be read: %s. Fetches of these offsets fail and the rest is served. "
        "Stop the broker and restore the folder from a copy, or move consumers past this place",
        where,
        damage,
    )
