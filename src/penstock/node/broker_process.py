"""`python -m penstock.node.broker_process <options>`: a broker as a child of who watches it.

The options are one JSON object (see `BrokerOptions`). One line of JSON on standard output says
that the broker is ready, or why it cannot start. It stops on SIGTERM and SIGINT, and when standard
input ends: then the parent is gone, and nobody would stop it any more.
"""

import asyncio
import json
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

LOG_FORMAT: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """What a person may choose, as it crosses from one process to another."""

    folder: str | None = None
    ephemeral: bool = False  # a folder of its own, removed at the end
    kafka_port: int | None = None
    host: str | None = None
    advertised: str | None = None  # HOST or HOST:PORT
    properties: str | None = None
    settings: dict[str, str] = field(default_factory=dict)
    quick: bool = False
    insecure: bool = False  # may listen beyond this machine
    log_level: str = "INFO"

    def to_json(self) -> str:
        """As it is given to the process."""
        return json.dumps(asdict(self))


def command_line(options: BrokerOptions) -> list[str]:
    """How the process is started."""
    return [sys.executable, "-m", "penstock.node.broker_process", options.to_json()]


def main() -> None:
    """The process itself."""
    options = BrokerOptions(**json.loads(sys.argv[1]))
    sys.exit(run(options, announce=lambda line: print(json.dumps(line), flush=True), watch=True))  # noqa: T201 - the parent reads it


def run(options: BrokerOptions, *, announce: Any, watch: bool = False) -> int:
    """Run a broker to its end; the exit status. `announce` is told what became of the start."""
    if not __debug__:
        announce({"error": "python -O leaves out the checks that keep the logs safe: run without"})
        return 1
    # kio prepares its types for hypothesis wherever that is installed: a third of a start
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]  # None: not to be found
    logging.basicConfig(stream=sys.stderr, level=options.log_level, format=LOG_FORMAT)
    from penstock.errors import Malformed
    from penstock.log import LogDirectoryError
    from penstock.node.listen_address import CannotListenError, bracketed, raise_file_limit
    from penstock.node.run_broker import run_broker
    from penstock.node.settings import InvalidSettingsError

    raise_file_limit()
    try:
        with _folder(options) as folder:
            settings = _settings(options, folder)

            def on_ready(port: int) -> None:
                kafka = f"{bracketed(settings.shown_host)}:{settings.shown_port(port)}"
                where = {"kafka": kafka, "port": port, "dir": str(settings.folder)}
                announce({**where, "pid": os.getpid()})
                if watch:
                    _stop_with_parent()

            run_broker(settings, on_ready)
    except (InvalidSettingsError, CannotListenError, LogDirectoryError, Malformed) as error:
        announce({"error": str(error)})
        return 1
    except OSError as error:
        announce({"error": _explained(error)})
        return 1
    return 0


def _settings(options: BrokerOptions, folder: Path | None) -> Any:
    from penstock.node.listen_address import is_loopback
    from penstock.node.settings import node_settings

    settings = node_settings(
        folder=folder,
        kafka_port=options.kafka_port,
        host=options.host,
        advertised=options.advertised,
        properties=None if options.properties is None else Path(options.properties),
        given=options.settings,
        quick=options.quick,
        insecure=options.insecure,
    )
    if not is_loopback(settings.host):
        warning = "listening on %s without logins: whoever can reach it can read and write"
        logging.getLogger(__name__).warning(warning, settings.host)
    return settings


@contextmanager
def _folder(options: BrokerOptions) -> Iterator[Path | None]:
    if not options.ephemeral:
        yield None if options.folder is None else Path(options.folder)
        return
    folder = Path(tempfile.mkdtemp(prefix="penstock-", dir=options.folder))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _stop_with_parent() -> None:
    """End as on SIGTERM when standard input does."""
    loop = asyncio.get_running_loop()

    def on_input() -> None:
        with suppress(OSError):
            if os.read(sys.stdin.fileno(), 4096):
                return
        loop.remove_reader(sys.stdin.fileno())
        os.kill(os.getpid(), 15)

    loop.add_reader(sys.stdin.fileno(), on_input)


def _explained(error: OSError) -> str:
    import errno

    if error.filename is None:
        return str(error)
    if error.errno in (errno.EACCES, errno.EROFS):
        return f"{error.filename}: {error.strerror}; choose a folder you may write with --dir"
    if error.errno == errno.ENOTDIR:
        return f"{error.filename}: a file is where a folder should be; choose another with --dir"
    return f"{error.filename}: {error.strerror}"


if __name__ == "__main__":
    main()
