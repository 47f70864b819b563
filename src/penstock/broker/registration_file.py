"""What a broker remembers of its last registration: `broker-registration` in its log folder.

A broker that starts again tells the controller the epoch it had, if it still has every record that
it acknowledged in it: after a clean stop, or when only the process was killed. The page cache
outlives a process; an unchanged boot id of the machine tells a kill from a power cut.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from penstock.log.files import replace_file, sync_folder

FILE_NAME: Final = "broker-registration"
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
NO_EPOCH: Final = -1


def boot_id() -> str:
    """Of this machine since it was started; empty where that cannot be known."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


def save_registration(folder: Path, epoch: int, boot: str) -> None:
    """Remember the epoch. Synced: run it off the event loop."""
    content = json.dumps({"epoch": epoch, "boot_id": boot})
    replace_file(str(folder / FILE_NAME), content.encode(), sync=True)
    sync_folder(str(folder))


def previous_epoch(folder: Path, boot: str, *, was_clean: bool) -> int:
    """The epoch of the last registration if nothing acknowledged was lost since, or NO_EPOCH."""
    try:
        fields = json.loads((folder / FILE_NAME).read_text())
        epoch, last_boot = int(fields["epoch"]), fields["boot_id"]
    except (OSError, ValueError, KeyError, TypeError):
        return NO_EPOCH
    return epoch if was_clean or (boot and boot == last_boot) else NO_EPOCH
