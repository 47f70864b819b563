"""The small HTTP server for metrics and health."""

import asyncio
import gc
import socket
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest

from penstock.http.guard import Guard
from penstock.metrics.loop_watch import IDLE_TICK_S, TICK_S, LoopWatch
from penstock.metrics.responder import (
    CONNECTIONS_MAX,
    HEAD_BYTES_MAX,
    MetricsResponder,
    ServedState,
    in_turns,
)


class Served:
    def __init__(self) -> None:
        self.is_live = self.is_ready = True
        self.responder = MetricsResponder(
            ServedState(
                self.text,
                lambda: self.is_live,
                lambda: self.is_ready,
                Guard(("metrics.example",), option="--advertise").refusal,
            )
        )

    def text(self) -> Iterator[str]:
        yield "penstock_up 1\n"


def run(work: Callable[[Served, int], Any]) -> None:
    async def served() -> None:
        state = Served()
        port = await state.responder.listen("127.0.0.1", 0)
        try:
            await work(state, port)
        finally:
            await state.responder.close()
        assert not state.responder.connections, "the server left connections open"

    asyncio.run(served())


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Origin": "http://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
    ],
)
def test_pages_of_other_sites_get_no_metrics(headers: dict[str, str]) -> None:
    async def work(_state: Served, port: int) -> None:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
            assert (await http.get("/metrics", headers=headers)).status_code == 403
            assert (await http.get("/health/live", headers=headers)).status_code == 200
            for host in (f"metrics.example:{port}", "10.1.2.3", f"LOCALHOST:{port}"):
                assert (await http.get("/metrics", headers={"Host": host})).status_code == 200

    run(work)


def test_the_paths_and_their_statuses() -> None:
    async def work(state: Served, port: int) -> None:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
            metrics = await http.get("/metrics")
            assert metrics.text == "penstock_up 1\n"
            assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
            assert (await http.head("/metrics")).status_code == 200
            for path in ("/health/live", "/health/ready"):
                answer = await http.get(path)
                assert (answer.status_code, answer.content) == (200, b"")
            state.is_ready = state.is_live = False
            for path in ("/health/live", "/health/ready"):
                answer = await http.get(path)
                assert (answer.status_code, answer.content) == (503, b""), "no detail in the body"
            assert (await http.get("/")).status_code == 404
            assert (await http.post("/metrics", content=b"x")).status_code == 405

    run(work)


def test_more_connections_than_the_limit_are_closed() -> None:
    async def work(state: Served, port: int) -> None:
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS_MAX)]
        for reader, writer in opened:
            writer.write(b"GET /health/live HTTP/1.1\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        for _, each in [*opened, (reader, writer)]:
            each.close()

    run(work)


@pytest.mark.parametrize("sent", [b"\x00" * 64 + b"\r\n\r\n", b"x" * (HEAD_BYTES_MAX * 2)])
def test_bytes_that_are_no_request_end_their_connection_only(sent: bytes) -> None:
    async def work(state: Served, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        writer.write_eof()
        await reader.read()
        writer.close()
        async with httpx.AsyncClient() as http:
            url = f"http://127.0.0.1:{port}/health/live"
            assert (await http.get(url)).status_code == 200

    run(work)


def test_a_server_closed_while_clients_connect_leaves_nothing_open() -> None:
    async def open_and_close() -> None:
        loop, responder = asyncio.get_running_loop(), Served().responder
        port = await responder.listen("127.0.0.1", 0)
        near, far = socket.socketpair()
        closing = loop.create_future()
        with near, far:
            loop.add_reader(near, closing.set_result, None)
            far.send(b"x")  # before the clients: the server is closed in the turn that accepts them
            clients = [socket.create_connection(("127.0.0.1", port), 5) for _ in range(4)]
            await closing
            loop.remove_reader(near)
            await responder.close()
        assert not responder.connections
        for client in clients:
            with suppress(ConnectionResetError):
                assert client.recv(1) == b""
            client.close()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(open_and_close())
        gc.collect()
    assert [str(each.message) for each in caught] == []


def test_a_long_scrape_gives_the_loop_back() -> None:
    async def work() -> int:
        turns, done = 0, False

        async def count() -> None:
            nonlocal turns
            while not done:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        text, _ = await in_turns("x" * 10 for _ in range(200_000))
        done = True
        await counting
        assert len(text) == 2_000_000
        return turns

    assert asyncio.run(work()) > 2


def test_a_long_turn_of_the_loop_is_seen() -> None:
    async def work() -> tuple[float, float]:
        watch = LoopWatch()
        watch.start()
        await asyncio.sleep(0.1)
        deadline = asyncio.get_running_loop().time() + 0.3
        while asyncio.get_running_loop().time() < deadline:
            pass
        await asyncio.sleep(0.1)
        watch.stop()
        return watch.turn_max_s, watch.busy_ratio

    turn_max_s, busy_ratio = asyncio.run(work())
    assert turn_max_s > 0.2
    assert 0 < busy_ratio <= 1


def test_the_watch_of_an_idle_loop_sleeps_and_that_of_a_busy_one_looks_closely() -> None:
    async def work() -> tuple[float, float]:
        watch = LoopWatch()
        watch.start()
        for _ in range(100):  # on a busy machine a second may not look idle
            await asyncio.sleep(0.2)
            if watch.tick_s == IDLE_TICK_S:
                break
        idle_s = watch.tick_s
        end_at = time.thread_time() + 1.5
        while time.thread_time() < end_at:
            sum(range(1_000))
            await asyncio.sleep(0)
        watch.stop()
        return idle_s, watch.tick_s

    assert asyncio.run(work()) == (IDLE_TICK_S, TICK_S)
