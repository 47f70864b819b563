"""The state of a running broker's upkeep, as a small JSON file in its data folder.

Written after each round of upkeep and removed by a clean stop. Any process that may read the folder
can tell whether retention and compaction work; `penstock doctor` does. Never read by the broker.
"""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from penstock.log.files import replace_file
from penstock.model import Millis
from penstock.upkeep.scheduler import Upkeep

FILE_NAME: Final = "upkeep-status.json"
PARTITIONS_MAX: Final = 20  # in each list: a full disk fails for all partitions
_KEYS: Final = {
    "pid",
    "written_at_ms",
    "stats",
    "failing_count",
    "failing",
    "damaged_count",
    "damaged",
}


def write_status(folder: Path, upkeep: Upkeep, now: Millis) -> None:
    """Replace the file. OSError when the disk refuses."""
    failing = [f"{duty} of {tp}: {why}" for (tp, duty), why in upkeep.failing.items()]
    damaged = [f"{tp}: {why}" for tp, why in upkeep.corrupt.items()]
    status = {  # these are _KEYS
        "pid": os.getpid(),
        "written_at_ms": now,
        "stats": asdict(upkeep.stats),
        "failing_count": len(failing),
        "failing": failing[:PARTITIONS_MAX],
        "damaged_count": len(damaged),
        "damaged": damaged[:PARTITIONS_MAX],
    }
    replace_file(str(folder / FILE_NAME), json.dumps(status, indent=1).encode())


def read_status(folder: Path) -> dict[str, Any] | None:
    """What the broker wrote last; None when there is no such file or it is damaged."""
    try:
        status = json.loads((folder / FILE_NAME).read_bytes())
    except (OSError, ValueError):
        return None
    is_whole = isinstance(status, dict) and status.keys() >= _KEYS
    return status if is_whole else None


def remove_status(folder: Path) -> None:
    """The broker has stopped."""
    (folder / FILE_NAME).unlink(missing_ok=True)
