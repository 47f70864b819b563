"""What every path of the gateway has: errors, guard, request ids, health."""

import httpx
import pytest


def test_the_process_is_live_and_ready(http: httpx.Client) -> None:
    for path in ("/health/live", "/health/ready"):
        answer = http.get(path)
        assert (answer.status_code, answer.content) == (200, b"")


def test_health_passes_the_guard(http: httpx.Client) -> None:
    assert http.get("/health/live", headers={"Host": "probe.example"}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_pages_of_other_sites_are_refused_on_every_service(
    http: httpx.Client, headers: dict[str, str]
) -> None:
    refused = http.get("/topics", headers=headers)
    assert refused.status_code == 403
    assert refused.json()["error"]["code"] == "forbidden"
    for path in ("/subjects", "/docs", "/openapi.json", "/metrics", "/"):
        assert http.get(path, headers=headers).status_code == 403, path


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
