"""Where a node listens and stores by default. Imports nothing heavy: commands load it first."""

from pathlib import Path
from typing import Final

LOCALHOST: Final = "127.0.0.1"
KAFKA_PORT: Final = 9092
DEFAULT_FOLDER: Final = Path("penstock-data")  # in the working directory
HTTP_PORT: Final = 8081
METRICS_PORT: Final = 9404  # of a broker; the HTTP process serves its metrics on its own port
