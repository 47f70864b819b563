"""Settings of the gateway and of the HTTP process: limits, allowed origins, the access log."""

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from penstock.errors import Refused
from penstock.gateway.settings import ROWS, gateway_settings
from penstock.node.http_process import HttpOptions, command_line
from penstock.node.supervisor import CannotStartError, HttpProcess
from penstock.testing.platform import Platform
from tests.support.sse_client import SseClient

KAFKA = {"bootstrap.servers": "127.0.0.1:9092"}
PAGE = "https://shop.example"


def test_every_setting_has_a_default_that_can_be_changed() -> None:
    for row in ROWS:
        assert getattr(gateway_settings(KAFKA, "", {}), row.name) == row.default
        assert getattr(gateway_settings(KAFKA, "", {row.name: "7"}), row.name) == 7


class OwnProcess(NamedTuple):
    """A process with other settings."""

    http: httpx.Client
    log: Path


@pytest.fixture(scope="module")
def own_process(
    penstock: Platform, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OwnProcess]:
    limits = {
        "records_max": "2",
        "body_bytes_max": "1000",
        "members_max": "1",
        "streams_per_client_max": "2",
    }
    options = HttpOptions(
        penstock.bootstrap,
        http_port=0,
        log_level="WARNING",
        logs_access=True,
        allowed_origins=(PAGE,),
        gateway=limits,
    )
    log = tmp_path_factory.mktemp("own") / "log"
    with log.open("w") as written:
        process = subprocess.Popen(
            command_line(options),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=written,
            text=True,
        )
    assert process.stdout is not None
    assert process.stdin is not None
    url = json.loads(process.stdout.readline())["http"]
    with httpx.Client(base_url=url, timeout=30) as client:
        yield OwnProcess(client, log)
    process.terminate()
    process.wait(30)
    process.stdin.close()
    process.stdout.close()


@pytest.fixture
def own(own_process: OwnProcess) -> httpx.Client:
    return own_process.http


def test_limits_are_those_of_the_settings(own: httpx.Client, penstock: Platform) -> None:
    topic = penstock.make_topic()
    many = {"records": [{"value": 1}] * 3}
    assert own.post(f"/topics/{topic}/produce", json=many).status_code == 413
    assert own.post(f"/topics/{topic}/produce", json={"value": "x" * 1000}).status_code == 413
    group = penstock.name("group")
    first = own.post(f"/consumer-groups/{group}/subscribe", json={"topics": [topic]})
    assert first.status_code == 201
    second = own.post(f"/consumer-groups/{group}/subscribe", json={"topics": [topic]})
    assert (second.status_code, second.json()["error"]["code"]) == (429, "too_many_members")
    assert second.headers["retry-after"]
    assert own.delete(first.headers["location"]).status_code == 204


def test_pages_of_an_allowed_origin_may_use_the_services(own: httpx.Client) -> None:
    asked = own.options(
        "/topics", headers={"Origin": PAGE, "Access-Control-Request-Method": "POST"}
    )
    assert asked.status_code == 204
    assert "Idempotency-Key" in asked.headers["access-control-allow-headers"]
    read = own.get("/topics", headers={"Origin": PAGE, "Sec-Fetch-Site": "cross-site"})
    assert read.status_code == 200
    assert read.headers["access-control-allow-origin"] == PAGE
    assert read.headers["vary"] == "Origin"
    other = own.get("/topics", headers={"Origin": "https://other.example"})
    assert other.status_code == 403
    assert "access-control-allow-origin" not in other.headers


def test_a_client_with_too_many_streams_gets_429(own: httpx.Client, penstock: Platform) -> None:
    url = f"/topics/{penstock.make_topic()}/stream"
    with own.stream("GET", url) as first, own.stream("GET", url) as second:
        clients = SseClient(first), SseClient(second)  # a collected one ends its stream
        for client in clients:
            assert client.next().name == "opened"
        refused = own.get(url)
        assert refused.status_code == 429
        assert refused.json()["error"]["code"] == "too_many_streams"
        assert int(refused.headers["Retry-After"]) >= 1


def test_the_access_log_has_a_line_for_each_request(own_process: OwnProcess) -> None:
    own_process.http.get("/cluster", headers={"X-Request-ID": "mine-1"})
    deadline = time.monotonic() + 10
    while "id=mine-1" not in (log := own_process.log.read_text()):
        assert time.monotonic() < deadline, log
        time.sleep(0.05)
    assert '"GET /cluster" 200' in log


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(Refused, match="no setting 'typo'"):
        gateway_settings(KAFKA, "", {"typo": "1"})
    with pytest.raises(Refused, match="not a number above 0"):
        gateway_settings(KAFKA, "", {"records_max": "0"})


@pytest.mark.slow
def test_a_process_with_an_unknown_setting_does_not_start(penstock: Platform) -> None:
    process = HttpProcess()
    process.configure(HttpOptions(penstock.bootstrap, http_port=0, gateway={"typo": "1"}))
    with pytest.raises(CannotStartError, match="no setting 'typo'"):
        process.wait_ready()
