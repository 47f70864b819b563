"""Connections between simulated processes: reliable, ordered byte streams, as TCP gives them.

A link from one host to another may be slow or cut. Bytes sent over a cut link wait and arrive after
it is healed, unless the connection ended meanwhile; so a request may take effect long after its
sender gave up. A connection may be reset at any time: bytes on the way are lost and neither side
knows how many arrived. A killed process resets its connections; a host without power says nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.cluster_simulation.event_loop import SimulatedLoop
    from tests.support.cluster_simulation.world import World

CONNECT_S: Final = 60.0  # of silence before the caller's kernel gives up
HIGH_WATER_BYTES: Final = 64 << 10
FIRST_EPHEMERAL_PORT: Final = 40_000


class Delays(NamedTuple):
    """How long bytes take: drawn for each chunk, kept in order."""

    least_s: float = 0.0001
    most_s: float = 0.001


class SimulatedServer:
    """What `create_server` returns."""

    def __init__(self, network: Network, loop: SimulatedLoop, factory: Any, port: int) -> None:
        self.loop = loop
        self.factory = factory
        self.port = port
        self.sockets = [self]
        self._network = network

    def getsockname(self) -> tuple[str, int]:
        """As of a listening socket."""
        return self.loop.host, self.port

    def close(self) -> None:
        """Accept no more connections."""
        self._network.unlisten(self)

    async def wait_closed(self) -> None:
        """Closed is closed."""


class Network:
    """Hosts, listeners, and the links between hosts."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.delays = Delays()
        self.slow: dict[tuple[str, str], Delays] = {}
        self._cut: dict[tuple[str, str], None] = {}  # (from, to)
        self._listeners: dict[tuple[str, int], SimulatedServer] = {}
        self._connections: dict[_Connection, None] = {}
        self._last_port = FIRST_EPHEMERAL_PORT

    # What the simulation does with it.

    def cut(self, source: str, target: str) -> None:
        """Let nothing through in this direction."""
        self._cut[source, target] = None

    def heal(self, source: str, target: str) -> None:
        """Let bytes through again, those that waited first."""
        self._cut.pop((source, target), None)
        for connection in tuple(self._connections):
            connection.on_healed(source, target)

    def heal_all(self) -> None:
        """Heal every link."""
        for source, target in tuple(self._cut):
            self.heal(source, target)
        self.slow.clear()

    def is_cut(self, source: str, target: str) -> bool:
        """Whether bytes wait in this direction."""
        return (source, target) in self._cut

    def reset_some(self, share: float) -> None:
        """End a share of the connections as a router that lost its state would."""
        for connection in tuple(self._connections):
            if self.world.rng.random() < share:
                connection.reset()

    def kill_host(self, host: str, *, silently: bool) -> None:
        """End the connections of a process: with a reset, or without a word (power)."""
        for address in [address for address in self._listeners if address[0] == host]:
            del self._listeners[address]
        for connection in tuple(self._connections):
            connection.on_host_killed(host, silently=silently)

    # What loops call.

    def listen(self, loop: SimulatedLoop, factory: Any, port: int) -> SimulatedServer:
        """Accept connections to this host and port."""
        server = SimulatedServer(self, loop, factory, port or self._next_port())
        address = loop.host, server.port
        if address in self._listeners:
            raise OSError(98, f"{address} is in use")
        self._listeners[address] = server
        return server

    def unlisten(self, server: SimulatedServer) -> None:
        """Refuse new connections."""
        address = server.loop.host, server.port
        if self._listeners.get(address) is server:
            del self._listeners[address]

    async def connect(
        self, loop: SimulatedLoop, factory: Any, host: str, port: int
    ) -> tuple[Any, Any]:
        """A connection, as `create_connection` makes it."""
        there_and_back = (loop.host, host), (host, loop.host)
        waited_s = 0.0
        while any(self.is_cut(*link) for link in there_and_back):
            if waited_s >= CONNECT_S:
                raise TimeoutError(110, f"{host}:{port} does not reply")
            await asyncio.sleep(0.1)
            waited_s += 0.1
        await asyncio.sleep(self.delay_s(loop.host, host) + self.delay_s(host, loop.host))
        server = self._listeners.get((host, port))
        if server is None or server.loop.is_closed():
            raise ConnectionRefusedError(111, f"{host}:{port} refused the connection")
        connection = _Connection(self, loop, server, self._next_port())
        self._connections[connection] = None
        protocol = factory()
        connection.ends[0].attach(protocol)
        protocol.connection_made(connection.ends[0])
        server.loop.call_soon(connection.accept, server.factory)
        return connection.ends[0], protocol

    def delay_s(self, source: str, target: str) -> float:
        """How long the next chunk takes."""
        least_s, most_s = self.slow.get((source, target), self.delays)
        return self.world.rng.uniform(least_s, most_s)

    def forget(self, connection: _Connection) -> None:
        """Both ends are closed."""
        self._connections.pop(connection, None)

    def _next_port(self) -> int:
        self._last_port += 1
        return self._last_port


class _Connection:
    """Two ends and the chunks on their way."""

    def __init__(
        self, network: Network, client: SimulatedLoop, server: SimulatedServer, port: int
    ) -> None:
        self.network = network
        here, there = (client.host, port), (server.loop.host, server.port)
        self.ends = (
            _Transport(self, client, here, there, 0),
            _Transport(self, server.loop, there, here, 1),
        )

    def accept(self, factory: Callable[[], Any]) -> None:
        """The listener's side of the connection begins."""
        end = self.ends[1]
        if end.is_closing():
            return
        protocol = factory()
        end.attach(protocol)
        protocol.connection_made(end)
        end.deliver()

    def on_healed(self, source: str, target: str) -> None:
        """Send what waited."""
        for end in self.ends:
            if (end.loop.host, self.ends[1 - end.index].loop.host) == (source, target):
                end.send_waiting()

    def reset(self) -> None:
        """Both sides lose the connection; bytes on the way are lost."""
        for end in self.ends:
            end.lose(ConnectionResetError(104, "connection reset by peer"))
        self.network.forget(self)

    def on_host_killed(self, host: str, *, silently: bool) -> None:
        """One side is gone."""
        for end in self.ends:
            if end.loop.host != host:
                continue
            end.abandon()
            other = self.ends[1 - end.index]
            if not silently and not self.network.is_cut(host, other.loop.host):
                other.lose(ConnectionResetError(104, "connection reset by peer"))
            elif silently:
                other.peer_is_silent = True


class _Transport(asyncio.Transport):
    """One end of a connection."""

    def __init__(
        self,
        connection: _Connection,
        loop: SimulatedLoop,
        here: tuple[str, int],
        there: tuple[str, int],
        index: int,
    ) -> None:
        super().__init__({"peername": there, "sockname": here, "socket": _Socket()})
        self.loop = loop
        self.index = index
        self.peer_is_silent = False
        self._connection = connection
        self._protocol: Any = None
        self._is_closed = False
        self._is_reading = True
        self._is_write_paused = False
        self._high = HIGH_WATER_BYTES
        self._waiting: deque[bytes] = deque()  # the link is cut
        self._unread: deque[bytes] = deque()  # arrived, not given to the protocol
        self._on_the_way_bytes = 0
        self._last_arrival_s = 0.0
        self._has_ended = False  # the other side closed: after what is unread

    def attach(self, protocol: Any) -> None:
        """The protocol that is called from now on."""
        self._protocol = protocol

    # What protocols call.

    def write(self, data: Any) -> None:
        self.writelines([data])

    def writelines(self, list_of_data: Any) -> None:
        if self._is_closed:
            return
        chunk = b"".join(bytes(piece) for piece in list_of_data)
        if not chunk:
            return
        self._on_the_way_bytes += len(chunk)
        network, target = self._connection.network, self._other.loop.host
        if self._waiting or network.is_cut(self.loop.host, target):
            self._waiting.append(chunk)
        else:
            self._send(chunk)
        if self._on_the_way_bytes > self._high and not self._is_write_paused:
            self._is_write_paused = True
            self._protocol.pause_writing()

    def send_waiting(self) -> None:
        """The link was healed."""
        while self._waiting:
            self._send(self._waiting.popleft())

    def close(self) -> None:
        self._close(None)

    def abort(self) -> None:
        self._waiting.clear()
        self._close(None)

    def is_closing(self) -> bool:
        return self._is_closed

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self.loop.call_soon(self.deliver)

    def is_reading(self) -> bool:
        return self._is_reading

    def get_write_buffer_size(self) -> int:
        return max(0, self._on_the_way_bytes - HIGH_WATER_BYTES)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = HIGH_WATER_BYTES if high is None else high

    # What the network does.

    @property
    def _other(self) -> _Transport:
        return self._connection.ends[1 - self.index]

    def _send(self, chunk: bytes) -> None:
        other, network = self._other, self._connection.network
        arrival_s = self.loop.time() + network.delay_s(self.loop.host, other.loop.host)
        self._last_arrival_s = max(arrival_s, self._last_arrival_s)
        if not self.peer_is_silent:
            other.loop.call_at(self._last_arrival_s, other.receive, chunk)

    def receive(self, chunk: bytes) -> None:
        """Bytes have arrived."""
        self._other.on_arrived(len(chunk))
        if not self._is_closed:
            self._unread.append(chunk)
            self.deliver()

    def on_arrived(self, size: int) -> None:
        """The other side's kernel has the bytes: there is space for more."""
        self._on_the_way_bytes -= size
        if self._is_write_paused and self._on_the_way_bytes <= self._high // 4:
            self._is_write_paused = False
            if not self._is_closed:
                self.loop.call_soon(self._resume_writing)

    def _resume_writing(self) -> None:
        if not self._is_closed:
            self._protocol.resume_writing()

    def deliver(self) -> None:
        """Give the protocol what has arrived, in pieces of any size."""
        while self._unread and self._is_reading and not self._is_closed and self._protocol:
            self._give(self._unread.popleft())
        if self._has_ended and not self._unread and not self._is_closed and self._protocol:
            self._close(None)

    def _give(self, chunk: bytes) -> None:
        if not isinstance(self._protocol, asyncio.BufferedProtocol):
            self._protocol.data_received(chunk)
            return
        position = 0
        while position < len(chunk):
            if self._is_closed or not self._is_reading:
                self._unread.appendleft(chunk[position:])
                return
            buffer: Any = self._protocol.get_buffer(-1)
            size = min(len(buffer), len(chunk) - position)
            if self.loop.world.rng.random() < 0.05:
                size = self.loop.world.rng.randint(1, size)
            buffer[:size] = chunk[position : position + size]
            position += size
            self._protocol.buffer_updated(size)

    def _close(self, error: Exception | None) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._unread.clear()
        if self._protocol is not None:
            self.loop.call_soon(self._protocol.connection_lost, error)
        other, network = self._other, self._connection.network
        if other.is_closing():
            network.forget(self._connection)
        elif not network.is_cut(self.loop.host, other.loop.host) and not self.peer_is_silent:
            other.loop.call_at(
                max(self._last_arrival_s, self.loop.time() + 0.0001), other.on_peer_closed
            )

    def on_peer_closed(self) -> None:
        """The other side closed: end after what it sent."""
        self._has_ended = True
        self.deliver()

    def lose(self, error: Exception) -> None:
        """The connection broke."""
        if not self._is_closed:
            self._is_closed = True
            self._unread.clear()
            self._waiting.clear()
            if self._protocol is not None:
                self.loop.call_soon(self._protocol.connection_lost, error)

    def abandon(self) -> None:
        """The process of this end was killed."""
        self._is_closed = True
        self._unread.clear()
        self._waiting.clear()


class _Socket:
    """Takes the options that a real socket would."""

    def setsockopt(self, *_: object) -> None:
        """Has no effect here."""
