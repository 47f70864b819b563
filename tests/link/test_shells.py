"""One connection, in both shells, to brokers and to servers that are none."""

import asyncio
import gc
import os
import socket
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import uvloop

from penstock.errors import Malformed
from penstock.link import aio, blocking
from penstock.link.operation import Steps
from penstock.link.routing import Routes
from penstock.link.settings import Address, LinkSettings, UnreachableError, read_bootstrap
from penstock.protocol.messages.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from penstock.protocol.messages.metadata import METADATA, MetadataRequest
from penstock.testing.embedded import EmbeddedBroker
from tests.support.apache_kafka import free_port

NO_TOPICS = MetadataRequest([])
QUICK = LinkSettings(connect_timeout_ms=2_000, request_timeout_ms=300)
Behave = Callable[[socket.socket], None]


@contextmanager
def impostor(behave: Behave) -> Iterator[Address]:
    """A server that accepts one connection and is not a broker."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            taken, _ = listener.accept()
            with taken:
                behave(taken)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield Address("127.0.0.1", listener.getsockname()[1])
        thread.join(10)
        assert not thread.is_alive()


def connect_either(kind: str, address: Address, settings: LinkSettings = QUICK) -> None:
    if kind == "blocking":
        blocking.BlockingLink.connect(address, settings).close()
        return

    async def connect() -> None:
        await (await aio.AsyncLink.connect(address, settings)).close()

    asyncio.run(connect())


both = pytest.mark.parametrize("kind", ["blocking", "aio"])


def test_requests_are_pipelined_and_responses_come_in_order(server_address: Address) -> None:
    async def scenario() -> None:
        link = await aio.AsyncLink.connect(server_address)
        names = [f"group-{number}" for number in range(200)]  # more than may be in flight
        responses = await asyncio.gather(
            *(link.call(FIND_COORDINATOR, FindCoordinatorRequest([name])) for name in names)
        )
        assert [response.coordinators[0].key for response in responses] == names
        assert link.features["transaction.version"] == 2
        await link.close()
        with pytest.raises(UnreachableError, match="closed here"):
            await link.call(METADATA, NO_TOPICS)

    for new_loop in (asyncio.new_event_loop, uvloop.new_event_loop):
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(scenario())


def test_the_blocking_link_behaves_the_same(server_address: Address) -> None:
    link = blocking.BlockingLink.connect(server_address)
    response = link.call(METADATA, NO_TOPICS)
    assert response.brokers[0].port == server_address.port
    assert link.features["transaction.version"] == 2
    assert not link.is_stale()
    link.close()
    with pytest.raises(UnreachableError, match="closed here"):
        link.call(METADATA, NO_TOPICS)


def test_an_abandoned_response_is_dropped_when_it_comes(server_address: Address) -> None:
    async def scenario() -> None:
        link = await aio.AsyncLink.connect(server_address)
        task = asyncio.create_task(link.call(METADATA, NO_TOPICS))
        await asyncio.sleep(0)
        task.cancel()
        assert (await link.call(FIND_COORDINATOR, FindCoordinatorRequest(["g"]))).coordinators
        await link.close()

    asyncio.run(scenario())


@both
def test_a_refused_connection_is_reported_with_the_address(kind: str) -> None:
    address = Address("127.0.0.1", free_port())
    with pytest.raises(
        UnreachableError, match=f"cannot connect to broker {address}.*check that it is running"
    ):
        connect_either(kind, address)


@both
def test_a_web_server_is_reported_as_not_a_broker(kind: str) -> None:
    def behave(taken: socket.socket) -> None:
        taken.recv(1000)
        taken.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        taken.recv(1)

    with (
        impostor(behave) as address,
        pytest.raises(
            Malformed, match=f"the server at {address} does not speak the Kafka protocol"
        ),
    ):
        connect_either(kind, address)


@both
def test_a_server_that_disconnects_may_require_tls_or_a_login(kind: str) -> None:
    def behave(taken: socket.socket) -> None:
        taken.recv(1000)

    with (
        impostor(behave) as address,
        pytest.raises(UnreachableError, match=r"during the handshake .*TLS or a login"),
    ):
        connect_either(kind, address)


@both
def test_a_silent_server_times_out(kind: str) -> None:
    def behave(taken: socket.socket) -> None:
        while taken.recv(1000):
            continue

    with (
        impostor(behave) as address,
        pytest.raises(TimeoutError, match="did not respond to api_versions in"),
    ):
        connect_either(kind, address)


def test_a_handshake_whose_coroutine_is_closed_does_not_wait_for_the_transport() -> None:
    def behave(taken: socket.socket) -> None:
        while taken.recv(1000):
            continue

    async def close_while_connecting(address: Address) -> None:
        connecting = asyncio.create_task(aio.AsyncLink.connect(address))
        await asyncio.sleep(0.1)
        coroutine: Any = connecting.get_coro()
        coroutine.close()
        connecting.cancel()
        await asyncio.wait((connecting,))

    with impostor(behave) as address:
        asyncio.run(close_while_connecting(address))


@pytest.fixture
def server_address(server: object) -> Address:
    (address,) = read_bootstrap(server.bootstrap)  # type: ignore[attr-defined]  # either broker
    return address


def test_a_forked_child_opens_its_own_connections(broker: EmbeddedBroker) -> None:
    cluster = blocking.thread_cluster(broker.bootstrap)
    assert blocking.thread_cluster(broker.bootstrap) is cluster
    cluster.run(describe_all)
    child = os.fork()
    if child == 0:
        cluster.run(describe_all)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for _ in range(3):  # the parent's connection was neither closed nor used
        cluster.run(describe_all)
    cluster.close()


def test_concurrent_threads_have_their_own_connections(broker: EmbeddedBroker) -> None:
    begin = threading.Barrier(5)

    def work() -> "weakref.ref[blocking.BlockingCluster]":
        cluster = blocking.thread_cluster(broker.bootstrap)
        begin.wait(20)
        for _ in range(50):
            cluster.run(describe_all)
        assert blocking.thread_cluster(broker.bootstrap) is cluster
        return weakref.ref(cluster)

    with ThreadPoolExecutor(5) as threads:
        known = [one.result() for one in [threads.submit(work) for _ in range(5)]]
        assert len({id(one()) for one in known}) == 5
    gc.collect()
    assert [one() for one in known] == [None] * 5  # closed with their threads


def test_a_thread_keeps_its_most_recently_used_clusters() -> None:
    first = blocking.thread_cluster("127.0.0.1:1")
    others = [blocking.thread_cluster(f"127.0.0.1:{port}") for port in range(2, 9)]
    assert blocking.thread_cluster("127.0.0.1:1") is first
    blocking.thread_cluster("127.0.0.1:9")
    assert blocking.thread_cluster("127.0.0.1:1") is first
    assert blocking.thread_cluster("127.0.0.1:2") is not others[0]


def describe_all(routes: Routes) -> Steps[object]:
    return routes.request_metadata(None)


def test_a_garbage_collected_cluster_closes_its_sockets_without_a_warning(
    broker: EmbeddedBroker,
) -> None:
    class Holder:
        """Refers to itself, as an exception and its frame do."""

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            holder: Any = Holder()
            holder.itself, holder.cluster = holder, blocking.BlockingCluster(broker.bootstrap)
            gc.collect()  # the cluster is in an older generation than its sockets
            holder.cluster.run(describe_all)
            gc.freeze()  # younger generations first, so that the sockets are finalized first
            gc.unfreeze()
            del holder
            gc.collect()
    assert [str(each.message) for each in caught] == []
