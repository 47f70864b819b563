"""The same registry over Apache Kafka: nothing but the Kafka protocol is used."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from penstock.node.http_process import HttpOptions
from tests.support.apache_kafka import ApacheKafka, PeerUnavailableError

pytestmark = [pytest.mark.slow, pytest.mark.interop, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def kafka() -> Iterator[str]:
    try:
        server = ApacheKafka(heap="512m")
    except PeerUnavailableError as reason:
        pytest.skip(str(reason))
    with server:
        yield server.bootstrap


def test_schemas_are_kept_by_apache_kafka_through_a_change_of_primary(
    kafka: str, node_class: Any
) -> None:
    options = HttpOptions(kafka, http_port=0, log_level="WARNING")
    first = node_class(options).wait_ready()
    second = node_class(options).wait_ready()
    made = {}
    try:
        for number in range(6):
            node = (first, second)[number % 2]
            schema = f'{{"type":"fixed","name":"F{number}","size":1}}'
            answer = httpx.post(
                f"{node.url}/subjects/s{number}/versions", json={"schema": schema}, timeout=60
            )
            made[f"s{number}"] = answer.json()["id"]
        assert sorted(made.values()) == [1, 2, 3, 4, 5, 6]
        first.end(kill=True)
        after = httpx.post(
            f"{second.url}/subjects/t/versions", json={"schema": '"int"'}, timeout=60
        )
        assert after.json()["id"] == 7
    finally:
        for node in (first, second):
            if node.process.returncode is None:
                node.end()
    third = node_class(options).wait_ready()
    with httpx.Client(base_url=third.url, timeout=60) as http:
        found = {one["subject"]: one["id"] for one in http.get("/schemas").json()}
        assert found == {**made, "t": 7}
    third.end()
