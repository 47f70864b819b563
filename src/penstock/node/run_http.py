"""The HTTP process: registry, gateway and console behind one address, until a signal arrives.

The last to start is the first to stop: streams and members end before the registry does.
"""

import asyncio
import gc
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

import uvicorn
import uvloop

from penstock.clock import wall_ms
from penstock.console.console_app import ConsoleFront, build_console, console_service
from penstock.console.console_node import ConsoleNode, ConsoleOptions
from penstock.console.console_routes import console_routers, topic_routers
from penstock.gateway.gateway_app import GatewayFront, gateway_service
from penstock.gateway.gateway_app import build as build_gateway
from penstock.gateway.gateway_node import GatewayNode
from penstock.gateway.groups.group_offsets import GroupOffsets
from penstock.gateway.groups.group_quarantine import GroupQuarantine
from penstock.gateway.groups.living_members import Members
from penstock.gateway.produce.gateway_producer import GatewayProducer
from penstock.gateway.rest_v3.v3_app import build_v3, v3_service
from penstock.gateway.settings import gateway_settings
from penstock.gateway.streams.group_reading import GroupStreams
from penstock.gateway.streams.stream_hub import StreamHub
from penstock.gateway.streams.stream_messages import websocket_schema
from penstock.gateway.streams.stream_routes import streaming, streaming_groups
from penstock.http import openapi_page
from penstock.http.empty_app import empty_app
from penstock.http.guard import Guard
from penstock.http.http_protocol import ConnectionLimits, RepeatingProtocol
from penstock.http.openapi_page import reference
from penstock.http.site import HttpService, Site
from penstock.http.websocket_protocol import TransportWebSocketProtocol
from penstock.link.settings import read_properties
from penstock.monitor.http_counts import HttpCounts
from penstock.node.http_monitor import MONITOR_ROOTS, HttpMonitor
from penstock.node.http_process import HttpOptions
from penstock.node.listen_address import CannotListenError, raise_file_limit
from penstock.registry.election import Election, PrimaryCandidate
from penstock.registry.http.app import build as build_registry
from penstock.registry.http.forward import Forwarder
from penstock.registry.http.front import ROOTS, Front
from penstock.registry.http.responses import http_error
from penstock.registry.kafka_journal import SchemaTopicSettings
from penstock.registry.registry_node import RegistryNode

BACKLOG: Final = 2048
KEEP_ALIVE_S: Final = 75
SWITCH_S: Final = 0.0005  # the longest that a read waits for a thread that checks schemas
FILES_RESERVED: Final = 128  # descriptors that are not for connections of clients
PING_S: Final = 15.0
MESSAGE_BYTES_MAX: Final = 64 << 10  # of a client's message on a WebSocket
_DOCUMENTS: Final = {"/docs/websocket.json": websocket_schema}
FINISH_S: Final = 3  # for running requests when the process is stopped


class Server(uvicorn.Server):
    """Reports when it serves and before it stops.

    Handles no signals: uvicorn would raise them again at its end.
    """

    def __init__(
        self,
        on_started: Callable[[], None],
        on_stopping: Callable[[], None],
        config: uvicorn.Config,
    ) -> None:
        super().__init__(config)
        self._on_started = on_started
        self._on_stopping = on_stopping

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and report it."""
        await super().startup(sockets)
        self._on_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop; streams end first, because it waits for responses that are under way."""
        self._on_stopping()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Captures none."""
        yield

    def request_stop(self) -> None:
        """As a signal would."""
        self.should_exit = True


def run_http(options: HttpOptions, on_ready: Callable[[str], None]) -> None:
    """Serve in this process until SIGTERM or SIGINT; `on_ready` gets the URL."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(options, on_ready))


async def serve(options: HttpOptions, on_ready: Callable[[str], None]) -> None:
    """Read the log, elect the primary, serve."""
    where = options.host, options.http_port
    try:
        family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
        listener = socket.create_server(where, family=family, backlog=BACKLOG)
    except OSError as error:
        raise CannotListenError(error, *where, "--http-port") from error
    candidate = PrimaryCandidate(options.shown_host, listener.getsockname()[1])
    kafka = {"bootstrap.servers": options.kafka}
    if options.kafka_config is not None:
        kafka = read_properties(options.kafka_config) | kafka
    topic_settings = SchemaTopicSettings(kafka, topic=options.topic, transactional_id=options.group)
    node = RegistryNode(topic_settings, wall_ms)
    forwarder = Forwarder(node, candidate.url)
    address = f"{candidate.host}:{candidate.port}"
    election = Election(node, kafka, options.group, candidate, session_ms=options.session_ms)
    gateway = GatewayNode(gateway_settings(kafka, candidate.url, options.gateway))
    monitor = HttpMonitor(options, kafka, address, node, gateway, wall_ms)
    try:
        await node.start()
        election.start()
        await election.first_known()
        gc.freeze()  # these objects live until the end: exclude them from collections
        sys.setswitchinterval(SWITCH_S)
        streams = StreamHub(gateway)
        front = build_registry(empty_app(), node, forwarder)
        monitor.start(front, streams)
        chosen = ConsoleOptions(read_only=options.read_only)
        console = ConsoleNode(gateway, node, monitor.cluster.lag, wall_ms, chosen)
        app = monitor.count(_site(options, front, console, streams, monitor))
        server = Server(
            lambda: on_ready(candidate.url),
            lambda: _end_streams(streams, console),
            _config(front, app, _limits(options)),
        )
        await _serve_until_signal(server, listener)
    finally:
        listener.close()
        await gateway.stop()
        await monitor.stop()
        await election.stop()
        await forwarder.close()
        await node.stop()


def _end_streams(streams: StreamHub, console: ConsoleNode) -> None:
    streams.end_streams()
    console.live.end_pages()


def _site(
    options: HttpOptions,
    front: Front,
    console: ConsoleNode,
    streams: StreamHub,
    monitor: HttpMonitor,
) -> Site:
    """All services behind one address."""
    gateway = console.gateway
    producer = GatewayProducer(gateway)
    quarantine = GroupQuarantine(gateway, producer)
    members = Members(gateway, quarantine)
    offsets = GroupOffsets(gateway, members)
    routers = [
        streaming(streams),
        streaming_groups(GroupStreams(gateway, streams, quarantine, offsets)),
        *topic_routers(console),
    ]
    gateway_app = build_gateway(gateway, producer, members, offsets, routers)
    v3_app, v3_front = build_v3(gateway, producer)
    console_app = build_console(console_routers(console))
    apps = (front.app, gateway_app, v3_app, monitor.app, console_app)
    documents = [app.openapi for app in apps]
    guard = Guard(
        (options.host, options.shown_host, *options.allowed_hosts), options.allowed_origins
    )
    services = (
        HttpService(front, ROOTS, _registry_error),
        HttpService(reference(documents, _DOCUMENTS), openapi_page.ROOTS, _registry_error),
        HttpService(monitor.app, MONITOR_ROOTS, _registry_error),
        v3_service(v3_front),
        console_service(ConsoleFront(GatewayFront(gateway, console_app), console.sampler.touch)),
        gateway_service(GatewayFront(gateway, gateway_app)),
    )
    return Site(services, guard, logs_access=options.logs_access, is_read_only=options.read_only)


def _registry_error(status: int, _code: str, message: str) -> bytes:
    return bytes(http_error(status, message).body)


def _limits(options: HttpOptions) -> ConnectionLimits:
    """As many connections as the options allow; some descriptors are reserved for all else."""
    files_max = raise_file_limit()
    connections_max = max(1, min(options.connections_max, files_max - FILES_RESERVED))
    return ConnectionLimits(options.head_s, options.body_s, connections_max)


def _config(front: Front, app: HttpCounts, limits: ConnectionLimits) -> uvicorn.Config:
    protocol = partial(RepeatingProtocol, front.repeat, limits, front.closed)
    return uvicorn.Config(
        app,
        http=protocol,  # type: ignore[arg-type]  # a factory
        proxy_headers=False,  # no service depends on the client's address behind a proxy
        loop="none",
        lifespan="off",
        ws=TransportWebSocketProtocol,
        ws_per_message_deflate=False,  # up to 100 kB and twice the time per connection
        ws_max_size=MESSAGE_BYTES_MAX,
        ws_ping_interval=PING_S,
        ws_ping_timeout=None,  # a slow client may read the ping late
        access_log=False,
        log_level="error",  # it warns of clients that do not speak HTTP
        timeout_graceful_shutdown=FINISH_S,
        timeout_keep_alive=KEEP_ALIVE_S,
    )


async def _serve_until_signal(server: Server, listener: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.request_stop)
    await server.serve(sockets=[listener])
