"""What the broker must know of its settings: frozen, built once from the rows by the node."""

from dataclasses import dataclass

from penstock.model import Millis, NodeId


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """The limits of connections. Each limit costs only the connection that meets it."""

    request_bytes_max: int = 100 << 20  # a larger frame closes the connection
    connections_max: int = 4000  # beyond, a new connection is closed at once
    connections_per_host_max: int = 4000
    idle_ms: Millis = Millis(600_000)  # without a request in flight
    frame_ms: Millis = Millis(30_000)  # a frame that began must be whole by then
    in_flight_max: int = 100  # requests without their reply; beyond, reading pauses
    unsent_bytes_max: int = 64 << 10  # replies the client does not read; beyond, reading pauses
    send_buffer_bytes: int = 256 << 10  # of the kernel's, for one connection
    backlog: int = 512


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """The broker's own."""

    node_id: NodeId = NodeId(1)
    network: NetworkSettings = NetworkSettings()
    fetch_bytes_max: int = 55 << 20  # of one response, whatever the client asks for
    fetch_sessions_max: int = 1000  # beyond, an idle session gives way, or none is given
    fetch_session_idle_ms: Millis = Millis(120_000)  # a session may be evicted after that
    stop_ms: Millis = Millis(4000)  # a graceful stop waits so long for pending answers
