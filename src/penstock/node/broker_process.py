"""`python -m penstock.node.broker_process <options>`: a broker as a child process.

The options are one JSON object (see `BrokerOptions`). One line of JSON on standard output reports
that the broker is ready, or why it cannot start. It stops on SIGTERM and SIGINT, and when standard
input ends, because then the parent has ended.
"""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from penstock.node.child_process import stop_with_parent
from penstock.node.log_output import TEXT, configure_logging


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """The options of a broker, as one process passes them to another."""

    folder: str | None = None
    ephemeral: bool = False  # a new folder, removed at the end
    kafka_port: int | None = None
    metrics_port: int | None = None  # None: the usual one, or any if that is in use
    host: str | None = None
    advertised: str | None = None  # HOST or HOST:PORT
    properties: str | None = None
    settings: dict[str, str] = field(default_factory=dict)
    quick: bool = False
    insecure: bool = False  # may listen on addresses that other machines reach
    log_level: str = "INFO"
    log_format: str = TEXT
    node_id: int | None = None
    voters: str | None = None  # of a new cluster: 1@host:port,2@host:port
    join: str | None = None  # a cluster that this broker joins: host:port,host:port
    cluster_id: str | None = None  # of a new cluster
    rack: str | None = None

    def to_json(self) -> str:
        """The argument of the process."""
        return json.dumps(asdict(self))


def command_line(options: BrokerOptions) -> list[str]:
    """The command that starts the process."""
    return [sys.executable, "-m", "penstock.node.broker_process", options.to_json()]


def main() -> None:
    """The process itself."""
    options = BrokerOptions(**json.loads(sys.argv[1]))
    sys.exit(run(options, announce=lambda line: print(json.dumps(line), flush=True), watch=True))  # noqa: T201 - the parent reads it


def run(options: BrokerOptions, *, announce: Any, watch: bool = False) -> int:
    """Run a broker to its end; the exit status. `announce` gets the report of the start."""
    if not __debug__:
        announce({"error": "python -O removes the checks that protect the logs: start without -O"})
        return 1
    # Where hypothesis is installed, kio prepares its types for it: a third of the start-up time.
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]  # None: cannot be imported
    configure_logging("broker", options.log_level, options.log_format)
    from penstock.broker.lifecycle import WrongClusterError
    from penstock.errors import Malformed
    from penstock.log import LogDirectoryError
    from penstock.node.listen_address import CannotListenError, bracketed, raise_file_limit
    from penstock.node.serve_broker import BrokerFailedError, serve_broker
    from penstock.node.settings import InvalidSettingsError

    raise_file_limit()
    try:
        with _folder(options) as folder:
            settings = _settings(options, folder)

            def on_ready(port: int, metrics: str) -> None:
                kafka = f"{bracketed(settings.shown_host)}:{settings.shown_port(port)}"
                where = {"kafka": kafka, "port": port, "dir": str(settings.folder)}
                where["metrics"] = metrics
                rack = {} if settings.rack is None else {"rack": settings.rack}
                announce({"id": settings.node_id, **where, "pid": os.getpid(), **rack})
                if watch:
                    stop_with_parent()

            serve_broker(settings, on_ready)
    except (
        BrokerFailedError,
        InvalidSettingsError,
        CannotListenError,
        LogDirectoryError,
        WrongClusterError,
        Malformed,
    ) as error:
        announce({"error": str(error)})
        return 1
    except OSError as error:
        announce({"error": _describe(error)})
        return 1
    return 0


def _settings(options: BrokerOptions, folder: Path | None) -> Any:
    from penstock.node.listen_address import warn_if_exposed
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
        node_id=options.node_id,
        voters=options.voters,
        join=options.join,
        cluster_id=options.cluster_id,
        rack=options.rack,
    )
    settings = replace(settings, metrics_port=options.metrics_port)
    warn_if_exposed(settings.host)
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


def _describe(error: OSError) -> str:
    import errno

    if error.filename is None:
        return str(error)
    if error.errno in (errno.EACCES, errno.EROFS):
        return f"{error.filename}: {error.strerror}; choose a writable folder with --dir"
    if error.errno == errno.ENOTDIR:
        return f"{error.filename}: not a folder; choose another with --dir"
    return f"{error.filename}: {error.strerror}"


if __name__ == "__main__":
    main()
