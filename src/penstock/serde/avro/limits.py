"""How large one Avro event may be; beyond, it is neither written nor read."""

from typing import Final

EVENT_BYTES_MAX: Final = 64 << 20
ITEMS_MAX: Final = 1 << 20  # of all arrays and maps of an event together
NESTING_MAX: Final = 200  # arrays, maps and records that contain themselves, within each other
