"""`python -m penstock.node.http_process <options>`: the HTTP services as a child process.

The options are one JSON object (see `HttpOptions`). One line of JSON on standard output reports
that it serves, or why it cannot. It stops on SIGTERM and SIGINT, and when standard input ends. It
reaches the log over the Kafka protocol only.
"""

import json
import logging
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from importlib import import_module
from typing import Any, Final

from penstock.node.addresses import HTTP_PORT, LOCALHOST
from penstock.node.child_process import stop_with_parent
from penstock.node.listen_address import bracketed
from penstock.node.log_output import TEXT, configure_logging

LATER: Final = "-"

Announce = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """The options of the HTTP services, as one process passes them to another."""

    kafka: str
    # A file: a password must not be on a command line or in what is printed.
    kafka_config: str | None = None
    host: str = LOCALHOST
    http_port: int = HTTP_PORT  # 0: any free port
    advertised_host: str | None = None  # where other nodes of the registry connect
    group: str = "schema-registry"
    topic: str = "_schemas"
    session_ms: int = 6_000  # until a failed primary is replaced
    log_level: str = "INFO"
    log_format: str = TEXT
    insecure: bool = False  # may listen on addresses that other machines reach
    allowed_hosts: tuple[str, ...] = ()  # more names that `Host` may have; "*": any
    head_s: float = 10.0  # for the head of a request to arrive
    body_s: float = 60.0  # then for its body
    connections_max: int = 4_096
    allowed_origins: tuple[str, ...] = ()  # of web pages that may use the services (CORS)
    logs_access: bool = False  # a line for each request
    read_only: bool = False  # refuse every request that changes something
    gateway: Mapping[str, int | str] = field(default_factory=dict)  # settings by name

    @property
    def shown_host(self) -> str:
        """The host that others connect to."""
        return bracketed(self.host) if self.advertised_host is None else self.advertised_host

    def to_json(self) -> str:
        """The argument of the process."""
        return json.dumps(asdict(self))


def command_line(options: HttpOptions | None) -> list[str]:
    """The command that starts the process. None: the options follow on standard input."""
    argument = LATER if options is None else options.to_json()
    return [sys.executable, "-m", "penstock.node.http_process", argument]


def main() -> None:
    """The process itself."""
    argument = sys.argv[1]
    if argument == LATER:
        sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]  # as in `run`
        import_module("penstock.node.run_http")  # load everything while waiting
        argument = sys.stdin.readline()
        if not argument:
            sys.exit(0)  # the parent has ended
    options = HttpOptions(**json.loads(argument))
    sys.exit(run(options, announce=lambda line: print(json.dumps(line), flush=True), watch=True))  # noqa: T201 - the parent reads it


def run(options: HttpOptions, *, announce: Announce, watch: bool = False) -> int:
    """Serve to the end; the exit status. `announce` gets the report of the start."""
    if not __debug__:
        announce({"error": "python -O removes the checks that protect the log: start without -O"})
        return 1
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]  # kio would prepare for it
    configure_logging("http", options.log_level, options.log_format)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    if options.logs_access:
        logging.getLogger("penstock.access").setLevel(logging.INFO)
    from confluent_kafka import KafkaException

    from penstock.errors import Refused
    from penstock.node.listen_address import (
        CannotListenError,
        NotAllowedError,
        check_exposure,
        warn_if_exposed,
    )
    from penstock.node.run_http import run_http
    from penstock.registry.topic_reader import CannotWriteError

    def on_ready(url: str) -> None:
        announce({"http": url, "pid": os.getpid()})
        if watch:
            stop_with_parent()

    try:
        check_exposure("registry", options.host, options.advertised_host, insecure=options.insecure)
        warn_if_exposed(options.host)
        run_http(options, on_ready)
    except (CannotListenError, CannotWriteError, NotAllowedError) as reason:
        announce({"error": str(reason)})
        return 1
    except Refused as refusal:
        announce({"error": refusal.message})
        return 1
    except KafkaException as failure:
        announce({"error": f"cannot connect to {options.kafka}: {failure.args[0].str()}"})
        return 1
    except OSError as error:
        announce({"error": str(error)})
        return 1
    return 0


if __name__ == "__main__":
    main()
