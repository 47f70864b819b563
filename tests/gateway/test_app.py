"""What every path of the gateway has: errors, guard, request ids, health."""

from collections.abc import Iterator

import httpx
import pytest

from penstock.node.broker_process import BrokerOptions
from penstock.node.supervisor import BrokerProcess

PAGES = [
    {"Host": "evil.example"},
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
]


@pytest.fixture(scope="module")
def metrics_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = str(tmp_path_factory.mktemp("broker"))
    broker = BrokerProcess(BrokerOptions(folder=folder, kafka_port=0, quick=True))
    yield str(broker.wait_ready()["metrics"])
    broker.stop()


def test_the_process_is_live_and_ready(http: httpx.Client) -> None:
    for path in ("/health/live", "/health/ready"):
        answer = http.get(path)
        assert (answer.status_code, answer.content) == (200, b"")


def test_health_passes_the_guard(http: httpx.Client) -> None:
    assert http.get("/health/live", headers={"Host": "probe.example"}).status_code == 200


@pytest.mark.parametrize("headers", PAGES)
def test_pages_of_other_sites_are_refused_on_every_service(
    http: httpx.Client, headers: dict[str, str]
) -> None:
    refused = http.get("/topics", headers=headers)
    assert refused.status_code == 403
    assert refused.json()["error"]["code"] == "forbidden"
    for path in (
        "/subjects", "/docs", "/openapi.json", "/metrics", "/", "/v3/clusters",
        "/kafka/v3/clusters", "/console", "/console/api/overview", "/sql", "/topics/t/stream",
        "/consumer-groups/g/stream?topics=t", "/consumer-groups/g/offsets",
    ):  # fmt: skip
        assert http.get(path, headers=headers).status_code == 403, path


@pytest.mark.parametrize("headers", PAGES)
def test_pages_of_other_sites_are_refused_on_the_metrics_port_of_a_broker(
    headers: dict[str, str], metrics_url: str
) -> None:
    assert httpx.get(metrics_url).status_code == 200
    assert httpx.get(metrics_url, headers=headers).status_code == 403


def test_an_unknown_path_is_an_error_with_a_code(http: httpx.Client) -> None:
    missing = http.get("/topics/t/nothing")
    assert missing.status_code == 404
    assert missing.json()["error"] == {
        "code": "not_found",
        "message": "Not Found: GET /topics/t/nothing",
    }


def test_a_body_must_be_json(http: httpx.Client) -> None:
    headers = {"Content-Type": "text/plain"}
    refused = http.post("/topics", content=b"{}", headers=headers)
    assert refused.status_code == 415
    assert refused.json()["error"]["code"] == "unsupported_media_type"


def test_a_response_carries_the_request_id(http: httpx.Client) -> None:
    assert (
        http.get("/health/live", headers={"X-Request-ID": "a-1"}).headers["x-request-id"] == "a-1"
    )
    made = http.get("/health/live").headers["x-request-id"]
    assert len(made) == 32
    assert http.get("/health/live").headers["x-request-id"] != made
    assert http.get("/subjects").headers["x-request-id"]
