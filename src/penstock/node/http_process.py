"""`python -m penstock.node.http_process <options>`: the HTTP services as a child process.

The options are one JSON object (see `HttpOptions`). One line of JSON on standard output says that
it serves, or why it cannot. It stops on SIGTERM and SIGINT, and when standard input ends. It
reaches the log over the Kafka protocol only.
"""

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib import import_module
from typing import Any, Final

from penstock.node.addresses import HTTP_PORT, LOCALHOST
from penstock.node.listen_address import bracketed

LOG_FORMAT: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"

LATER: Final = "-"

Announce = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """What a person may choose, as it crosses from one process to another."""

    kafka: str
    # A file, because a password belongs neither on a command line nor in what is printed
    kafka_config: str | None = None
    host: str = LOCALHOST
    http_port: int = HTTP_PORT  # 0 takes any free one
    advertised_host: str | None = None  # where the other nodes of the registry reach this one
    group: str = "schema-registry"
    topic: str = "_schemas"
    session_ms: int = 6_000  # a primary that died is replaced after so long
    log_level: str = "INFO"
    insecure: bool = False  # may listen beyond this machine
    allowed_hosts: tuple[str, ...] = ()  # names in `Host` that are ours too; "*" is any
    head_s: float = 10.0  # a request's head must be there so soon
    body_s: float = 60.0  # then its body
    connections_max: int = 4_096
    allowed_origins: tuple[str, ...] = ()  # of web pages that may use the services (CORS)
    logs_access: bool = False  # a line for each request
    gateway: dict[str, int] = field(default_factory=dict)  # settings by name

    @property
    def shown_host(self) -> str:
        """Where others are told to connect."""
        return bracketed(self.host) if self.advertised_host is None else self.advertised_host

    def to_json(self) -> str:
        """As it is given to the process."""
        return json.dumps(asdict(self))


def command_line(options: HttpOptions | None) -> list[str]:
    """How the process is started. None: it is told later, in a line on standard input."""
    told = LATER if options is None else options.to_json()
    return [sys.executable, "-m", "penstock.node.http_process", told]


def main() -> None:
    """The process itself."""
    told = sys.argv[1]
    if told == LATER:
        sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]  # as in `run`
        import_module("penstock.node.run_http")  # the wait is used to load all that is needed
        told = sys.stdin.readline()
        if not told:
            sys.exit(0)  # nobody waits for it any more
    options = HttpOptions(**json.loads(told))
    sys.exit(run(options, announce=lambda line: print(json.dumps(line), flush=True), watch=True))  # noqa: T201 - the parent reads it


def run(options: HttpOptions, *, announce: Announce, watch: bool = False) -> int:
    """Serve to the end; the exit status. `announce` is told what became of the start."""
    if not __debug__:
        announce({"error": "python -O leaves out the checks that keep the log safe: run without"})
        return 1
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]  # kio would prepare for it
    logging.basicConfig(stream=sys.stderr, level=options.log_level, format=LOG_FORMAT)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    from confluent_kafka import KafkaException

    from penstock.errors import Refused
    from penstock.node.listen_address import (
        CannotListenError,
        NotAllowedError,
        check_exposure,
        is_loopback,
    )
    from penstock.node.run_http import run_http
    from penstock.registry.topic_reader import CannotWriteError

    def on_ready(url: str) -> None:
        announce({"http": url, "pid": os.getpid()})
        if watch:
            _stop_with_parent()

    try:
        check_exposure("registry", options.host, options.advertised_host, insecure=options.insecure)
        if not is_loopback(options.host):
            warning = "listening on %s without logins: whoever can reach it can read and write"
            logging.getLogger(__name__).warning(warning, options.host)
        run_http(options, on_ready)
    except (CannotListenError, CannotWriteError, NotAllowedError) as reason:
        announce({"error": str(reason)})
        return 1
    except Refused as refusal:
        announce({"error": refusal.message})
        return 1
    except KafkaException as failure:
        announce({"error": f"no Kafka cluster answers at {options.kafka}: {failure.args[0].str()}"})
        return 1
    except OSError as error:
        announce({"error": str(error)})
        return 1
    return 0


def _stop_with_parent() -> None:
    """End as on SIGTERM when standard input does."""
    loop = asyncio.get_running_loop()

    def on_input() -> None:
        with suppress(OSError):
            if os.read(sys.stdin.fileno(), 4096):
                return
        loop.remove_reader(sys.stdin.fileno())
        os.kill(os.getpid(), signal.SIGTERM)

    loop.add_reader(sys.stdin.fileno(), on_input)


if __name__ == "__main__":
    main()
