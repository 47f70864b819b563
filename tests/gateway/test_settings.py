"""Settings of the gateway and of the HTTP process: limits, allowed origins, the access log."""

import subprocess
from collections.abc import Iterator

import httpx
import pytest

from penstock.gateway.settings import ROWS, gateway_settings
from penstock.node.http_process import HttpOptions, command_line
from penstock.node.supervisor import CannotStartError, HttpProcess
from penstock.testing.platform import Platform

KAFKA = {"bootstrap.servers": "127.0.0.1:9092"}
PAGE = "https://shop.example"


def test_every_setting_has_a_default_that_can_be_changed() -> None:
    for row in ROWS:
        assert getattr(gateway_settings(KAFKA, "", {}), row.name) == row.default
        assert getattr(gateway_settings(KAFKA, "", {row.name: "7"}), row.name) == 7


@pytest.fixture(scope="module")
def own(penstock: Platform) -> Iterator[httpx.Client]:
    """A process with other settings."""
    process = HttpProcess()
    process.configure(
        HttpOptions(
            penstock.bootstrap,
            http_port=0,
            log_level="WARNING",
            allowed_origins=(PAGE,),
            gateway={"records_max": "2", "body_bytes_max": "1000", "members_max": "1"},
        )
    )
    url = process.wait_ready()["http"]
    with httpx.Client(base_url=url, timeout=30) as client:
        yield client
    process.stop()


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


def test_an_unknown_setting_is_refused_at_the_start(penstock: Platform) -> None:
    process = HttpProcess()
    process.configure(HttpOptions(penstock.bootstrap, http_port=0, gateway={"typo": "1"}))
    with pytest.raises(CannotStartError, match="no setting 'typo'"):
        process.wait_ready()


def test_the_access_log_has_a_line_for_each_request(penstock: Platform) -> None:
    options = HttpOptions(penstock.bootstrap, http_port=0, log_level="WARNING", logs_access=True)
    process = subprocess.Popen(
        command_line(options),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    url = process.stdout.readline().split('"http": "')[1].split('"')[0]
    httpx.get(f"{url}/cluster", headers={"X-Request-ID": "mine-1"})
    process.terminate()
    _, errors = process.communicate(timeout=30)
    assert '"GET /cluster" 200' in errors
    assert "id=mine-1" in errors
