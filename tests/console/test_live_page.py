"""What waits for a page is bounded: the latest of each kind, and so many records."""

import asyncio
import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.console.live.live_page import BYTES_MAX, RECORDS_MAX, LivePage


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 5)), max_size=8))
def test_every_record_is_sent_or_counted(turns: list[tuple[int, int]]) -> None:
    page = LivePage()
    number = 0
    for count, dropped in turns:
        page.offer_records("t", [b"%d" % (number + at) for at in range(count)], dropped, 1.0)
        number += count
    messages = [json.loads(message) for message in page.take()]
    sent = [record for message in messages for record in message["records"]]
    lost = sum(message["dropped"] for message in messages)
    assert len(sent) <= RECORDS_MAX
    assert len(sent) + lost == number + sum(dropped for _, dropped in turns)
    assert sent == list(range(number - len(sent), number))
    assert page.take() == []


def test_large_records_are_bounded_by_their_bytes() -> None:
    page = LivePage()
    record = b'"' + b"x" * (BYTES_MAX // 3) + b'"'
    page.offer_records("t", [record] * 5, 0, 1.0)
    (message,) = page.take()
    assert len(json.loads(message)["records"]) == 2
    assert json.loads(message)["dropped"] == 3


def test_only_the_latest_of_a_kind_is_sent() -> None:
    page = LivePage()
    for number in range(3):
        page.offer("overview", {"type": "overview", "number": number})
    page.offer("error t", {"type": "error"})
    assert [json.loads(each) for each in page.take()] == [
        {"type": "overview", "number": 2},
        {"type": "error"},
    ]


def test_a_page_that_is_ended_sends_what_is_left() -> None:
    async def run() -> list[bytes]:
        sent: list[bytes] = []
        page = LivePage()
        page.offer("overview", {"type": "overview"})

        async def send(message: bytes) -> None:
            sent.append(message)
            page.end()

        await asyncio.wait_for(page.send_all(send), 10)
        return sent

    assert asyncio.run(run()) == [b'{"type":"overview"}']


def test_a_page_is_sent_at_most_five_messages_of_a_kind_per_second() -> None:
    async def run() -> list[float]:
        loop = asyncio.get_running_loop()
        sent_s: list[float] = []
        page = LivePage()

        async def send(message: bytes) -> None:
            sent_s.append(loop.time())

        sending = asyncio.create_task(page.send_all(send))
        deadline_s = loop.time() + 1.5
        while loop.time() < deadline_s:
            page.offer_records("t", [b"1"], 0, 1.0)
            await asyncio.sleep(0.01)
        page.end()
        await sending
        return sent_s

    sent_s = asyncio.run(run())
    assert len(sent_s) > 1
    gaps_s = [after - before for before, after in pairwise(sent_s)]
    assert min(gaps_s) > 0.19


@pytest.mark.parametrize("count", [0, 1])
def test_a_rate_alone_is_no_message(count: int) -> None:
    page = LivePage()
    page.offer_records("t", [b"1"] * count, 0, 2.5)
    assert len(page.take()) == count
