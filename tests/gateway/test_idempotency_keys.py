"""Requests under an Idempotency-Key: appended once, whatever happens."""

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.gateway.errors import GatewayError
from penstock.gateway.produce.key_table import (
    NEW,
    KeyTable,
    ScopedKey,
    StoredResponse,
    read_key,
    read_stored,
    write_stored,
)
from penstock.model import Millis
from penstock.node.http_process import HttpOptions
from penstock.node.supervisor import HttpProcess
from penstock.testing.embedded import EmbeddedBroker
from penstock.testing.platform import Platform

A = ScopedKey("orders", "a")


def stored(digest: str = "d", at: int = 0) -> StoredResponse:
    return StoredResponse(digest, msgspec.Raw(b"{}"), at)


# The table.


def test_a_key_is_new_then_in_progress_then_answered() -> None:
    table = KeyTable(10, 1000)
    assert table.begin(A, "d", Millis(0)) == NEW
    with pytest.raises(GatewayError) as caught:
        table.begin(A, "d", Millis(0))
    assert (caught.value.status, caught.value.code) == (409, "idempotency_key_in_progress")
    table.store(A, stored())
    assert table.begin(A, "d", Millis(0)) == stored()


def test_another_request_under_the_same_key_is_refused_at_any_time() -> None:
    table = KeyTable(10, 1000)
    table.begin(A, "d", Millis(0))
    for _ in range(2):
        with pytest.raises(GatewayError) as caught:
            table.begin(A, "other", Millis(0))
        assert caught.value.status == 422
        table.store(A, stored())
    assert table.begin(ScopedKey("payments", "a"), "other", Millis(0)) == NEW


def test_what_appended_nothing_is_not_remembered() -> None:
    table = KeyTable(10, 1000)
    table.begin(A, "d", Millis(0))
    table.end(A)
    assert table.begin(A, "other", Millis(0)) == NEW


def test_a_key_is_forgotten_after_its_time() -> None:
    table = KeyTable(10, 1000)
    table.store(A, stored(at=5))
    assert table.begin(A, "d", Millis(1004)) == stored(at=5)
    assert table.begin(A, "other", Millis(1005)) == NEW


def test_a_full_table_refuses_new_keys_and_answers_known_ones() -> None:
    table = KeyTable(1, 1000)
    table.store(A, stored())
    with pytest.raises(GatewayError) as caught:
        table.begin(ScopedKey("orders", "b"), "d", Millis(0))
    assert caught.value.status == 429
    assert table.begin(A, "d", Millis(0)) == stored()


KEYS = st.sampled_from([ScopedKey("t", name) for name in "abc"])
STEPS = st.one_of(
    st.tuples(st.just("begin"), KEYS, st.sampled_from("xy")),
    st.tuples(st.just("store"), KEYS, st.just("")),
    st.tuples(st.just("end"), KEYS, st.just("")),
    st.tuples(st.just("wait"), KEYS, st.just("")),
)


@given(st.lists(STEPS, max_size=40))
def test_a_key_is_appended_once_until_it_is_forgotten(steps: list[tuple[str, Any, str]]) -> None:
    """A model: a key is absent, in progress or stored, with the digest it began with."""
    table, model, now = KeyTable(100, 10), dict[ScopedKey, tuple[str, str, int]](), 0
    for action, key, digest in steps:
        model = {k: v for k, v in model.items() if v[0] != "stored" or v[2] + 10 > now}
        known = model.get(key)
        if action == "begin":
            if known is None:
                assert table.begin(key, digest, Millis(now)) == NEW
                model[key] = ("progress", digest, now)
            elif known[:2] == ("stored", digest):
                assert isinstance(table.begin(key, digest, Millis(now)), StoredResponse)
            else:
                with pytest.raises(GatewayError) as caught:
                    table.begin(key, digest, Millis(now))
                assert caught.value.status == (422 if known[1] != digest else 409)
        elif action == "store" and known is not None and known[0] == "progress":
            table.store(key, stored(known[1], now))
            model[key] = ("stored", known[1], now)
        elif action == "end" and known is not None and known[0] == "progress":
            table.end(key)
            del model[key]
        elif action == "wait":
            now += 4
        table.validate()


@given(st.text(max_size=50), st.text(max_size=50), st.text(max_size=70), st.integers(0, 1 << 52))
def test_a_stored_answer_is_read_as_it_was_written(
    topic: str, key: str, digest: str, at: int
) -> None:
    scoped, answer = ScopedKey(topic, key), stored(digest, at)
    try:
        f"{topic}{key}{digest}".encode()
    except UnicodeEncodeError:
        return
    again, read = read_stored(*write_stored(scoped, answer))
    assert (again, read.digest, bytes(read.answer), read.at) == (scoped, digest, b"{}", at)


def test_a_key_may_be_quoted_or_bare() -> None:
    assert read_key(' "a\\"b" ') == 'a"b'
    assert read_key("8e03978e-40d5-43dd-bc93-6894a57f9324").startswith("8e03978e")
    for header in ("", '""', "x" * 256, "a\tb"):
        with pytest.raises(GatewayError):
            read_key(header)


# The gateway.


def keyed(http: httpx.Client, topic: str, key: str, body: Any, **options: Any) -> httpx.Response:
    headers = {"Idempotency-Key": key}
    return http.post(f"/topics/{topic}/produce", json=body, headers=headers, params=options)


def values(http: httpx.Client, topic: str, partition: int = 0) -> list[Any]:
    found, offset = [], 0
    while True:
        read = http.get(
            f"/topics/{topic}/partitions/{partition}/events",
            params={"offset": offset, "max_wait_ms": 300},
        ).json()
        found += [event["value"] for event in read["events"]]
        if not read["events"]:
            return found
        offset = read["next_offset"]


def test_a_repeated_request_gets_the_same_answer_and_appends_nothing(
    http: httpx.Client, penstock: Platform
) -> None:
    topic = penstock.make_topic(partitions=2)
    body = {"records": [{"key": "a", "value": 1}, {"key": "b", "value": 2}, {"key": "no value"}]}
    first = keyed(http, topic, "order-1", body)
    assert first.status_code == 200
    assert "idempotency-replayed" not in first.headers
    again = keyed(http, topic, '"order-1"', body)
    assert again.content == first.content
    assert again.headers["idempotency-replayed"] == "true"
    assert first.json()["records"][2]["error"]["code"] == "invalid_record"
    assert sorted(values(http, topic, 0) + values(http, topic, 1)) == [1, 2]


def test_another_body_or_acks_is_refused(http: httpx.Client, penstock: Platform) -> None:
    topic, other = penstock.make_topic(), penstock.make_topic()
    assert keyed(http, topic, "k", {"value": 1}).status_code == 200
    refused = keyed(http, topic, "k", {"value": 2})
    assert refused.status_code == 422
    assert refused.json()["error"]["code"] == "idempotency_key_reused"
    assert keyed(http, topic, "k2", {"value": 2}, acks="1").status_code == 400
    assert keyed(http, other, "k", {"value": 2}).status_code == 200
    assert keyed(http, topic, "k" * 300, {"value": 1}).status_code == 400
    assert values(http, topic) == [1]


def test_requests_at_the_same_time_share_transactions_and_are_written_once(
    http: httpx.Client, penstock: Platform
) -> None:
    topic = penstock.make_topic()
    with ThreadPoolExecutor(16) as threads:
        calls = [
            threads.submit(keyed, http, topic, f"k{n % 20}", {"value": n % 20}) for n in range(60)
        ]
        statuses = Counter(call.result().status_code for call in calls)
    assert set(statuses) <= {200, 409}
    for n in range(20):
        assert keyed(http, topic, f"k{n}", {"value": n}).status_code == 200
    assert Counter(values(http, topic)) == Counter(range(20))


def test_a_request_that_a_broker_refuses_does_not_harm_others(
    http: httpx.Client, penstock: Platform
) -> None:
    topic = penstock.make_topic(settings={"max.message.bytes": "5000"})
    with ThreadPoolExecutor(4) as threads:
        good = [threads.submit(keyed, http, topic, f"g{n}", {"value": n}) for n in range(3)]
        bad = threads.submit(keyed, http, topic, "bad", {"value": "x" * 50_000})
        assert bad.result().status_code == 413
        assert {call.result().status_code for call in good} == {200}
    assert keyed(http, topic, "bad", {"value": "small"}).status_code == 200
    assert Counter(values(http, topic)) == Counter([0, 1, 2, "small"])


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("victim", ["gateway", "broker"])
def test_no_key_is_appended_twice_across_kill_9(broker: EmbeddedBroker, victim: str) -> None:
    """Clients retry until each of their keyed requests is answered with 200."""
    options = HttpOptions(broker.bootstrap, http_port=0, log_level="ERROR")

    def start() -> HttpProcess:
        process = HttpProcess()
        process.configure(options)
        return process

    process = start()
    url = process.wait_ready()["http"]
    options = replace(options, http_port=httpx.URL(url).port or 0)
    httpx.post(f"{url}/topics", json={"name": "keyed"}).raise_for_status()
    requests_done = threading.Event()

    def send(number: int) -> None:
        for _ in range(600):
            try:
                answer = keyed(http, "keyed", f"k{number}", {"value": number})
                if answer.status_code == 200:
                    return
                assert answer.status_code in (409, 429, 503), answer.text
            except httpx.TransportError:
                pass
            requests_done.wait(0.1)
        raise AssertionError(f"request {number} was never answered")

    http = httpx.Client(base_url=url, timeout=20)
    with http, ThreadPoolExecutor(8) as threads:
        calls = [threads.submit(send, number) for number in range(120)]
        for _ in range(3):
            requests_done.wait(0.7)
            if victim == "gateway":
                process.kill()
                process = start()
                process.wait_ready()
            else:
                broker.kill()
                broker.start()
        for call in calls:
            call.result(120)
        assert Counter(values(http, "keyed")) == Counter(range(120))
    process.stop()
