"""Log lines of a process, on standard error: as text for people, or as JSON for programs."""

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Final

TEXT: Final = "text"
JSON: Final = "json"
_TEXT_FORMAT: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


class JsonFormatter(logging.Formatter):
    """One object per line: time (UTC, ISO 8601), level, logger, message, process and error."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, object] = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "process": self._process,
            "pid": record.process,
        }
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = "".join(traceback.format_exception(record.exc_info[1]))
        return json.dumps(line, ensure_ascii=False)


def configure_logging(process: str, level: str, log_format: str) -> None:
    """Log from now on, once per process."""
    handler = logging.StreamHandler(sys.stderr)
    is_json = log_format == JSON
    handler.setFormatter(JsonFormatter(process) if is_json else logging.Formatter(_TEXT_FORMAT))
    logging.basicConfig(handlers=[handler], level=level)
