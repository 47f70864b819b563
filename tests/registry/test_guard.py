"""Web pages of other sites, which a browser sends here: refused, whatever they ask."""

from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from penstock.http.guard import Guard
from penstock.node.http_process import HttpOptions

HOSTS = ["evil.example", "evil.example:8081", "localhost.evil.example", "127.0.0.1.evil.example"]
OURS = ["localhost", "localhost:8081", "127.0.0.1:8081", "[::1]:8081", "10.1.2.3", "a.localhost"]


def refusal(method: str = "POST", *, allowed: tuple[str, ...] = (), **headers: str) -> str | None:
    return refused(method, headers, Guard(allowed))


def refused(
    method: str, headers: Mapping[str, str], guard: Guard | None = None, path: str = "/topics"
) -> str | None:
    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return (guard or Guard()).refusal(method, path, named)


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_a_foreign_host_is_refused_with_what_to_do(host: str, method: str) -> None:
    found = refusal(method, host=host)
    assert found is not None
    assert "--allowed-host" in found


@pytest.mark.parametrize("host", OURS)
def test_addresses_and_names_of_this_machine_are_ours(host: str) -> None:
    assert refusal(host=host) is None


def test_names_that_were_allowed_are_ours_in_any_spelling() -> None:
    allowed = ("Registry.Example",)
    assert refusal(allowed=allowed, host="registry.example:8081") is None
    assert refusal(allowed=allowed, host="REGISTRY.example.") is None
    assert refusal(allowed=allowed, host="other.example") is not None
    assert refusal(allowed=("*",), host="other.example") is None


def test_an_origin_must_be_the_host_itself() -> None:
    assert refusal(host="localhost:8081", origin="http://localhost:8081") is None
    for origin in ("http://evil.example", "null", "http://localhost:3000", "http://[", "file://"):
        assert refusal(host="localhost:8081", origin=origin) is not None, origin


def test_a_page_of_another_site_may_link_here_and_nothing_else() -> None:
    link = {
        "host": "localhost", "sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate",
        "sec_fetch_dest": "document",
    }  # fmt: skip
    assert refused("GET", link) is None
    assert refused("GET", link, path="/consumer-groups/g/stream") is not None  # joins the group
    assert refused("GET", link, path="/consumer-groups/g%2Fh/stream/") is not None
    for dest in ("iframe", "frame", "embed", "object"):
        assert refused("GET", link | {"sec_fetch_dest": dest}) is not None
    assert refused("POST", link) is not None
    assert refused("GET", link | {"sec_fetch_mode": "no-cors"}) is not None
    assert refusal("POST", host="localhost", sec_fetch_site="same-site") is not None
    for site in ("same-origin", "none"):
        assert refusal("POST", host="localhost", sec_fetch_site=site) is None


def test_what_a_page_sends_without_asking_first_changes_nothing(
    http: httpx.Client, subject: str
) -> None:
    path, body = f"/subjects/{subject}/versions", b'{"schema": "\\"int\\""}'
    for headers, status in (
        ({}, 415),  # a Blob without a type
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({"content-type": "multipart/form-data; boundary=x"}, 415),
        ({"content-type": "application/json", "origin": "http://evil.example"}, 403),
        ({"content-type": "application/json", "sec-fetch-site": "cross-site"}, 403),
        ({"content-type": "application/json", "host": "evil.example"}, 403),
    ):
        answer = http.post(path, content=body, headers=headers)
        assert answer.status_code == answer.json()["error_code"] == status, headers
    assert http.get("/subjects", headers={"host": "evil.example"}).status_code == 403
    assert http.get("/metrics", headers={"host": "evil.example"}).status_code == 403
    assert subject not in http.get("/subjects").json()


def test_curl_without_a_content_type_is_refused_with_advice(
    http: httpx.Client, subject: str
) -> None:
    answer = http.post(
        f"/subjects/{subject}/versions",
        content=b"{}",
        headers={"content-type": "application/x-www-form-urlencoded"},
    )
    assert '-H "Content-Type: application/json"' in answer.json()["message"]


def test_requests_without_a_body_need_no_content_type(http: httpx.Client, subject: str) -> None:
    made = http.post(f"/subjects/{subject}/versions", json={"schema": '"int"'})
    assert made.is_success
    assert http.post("/").json() == {}
    assert http.delete(f"/subjects/{subject}").json() == [1]


def test_a_name_given_at_start_is_answered_to(broker: Any, node_class: Any) -> None:
    options = HttpOptions(
        broker.bootstrap, http_port=0, topic="_schemas-names", group="names",
        allowed_hosts=("registry.example",),
    )  # fmt: skip
    node = node_class(options).wait_ready()
    try:
        own = httpx.get(f"{node.url}/subjects", headers={"host": "registry.example:8081"})
        assert own.json() == []
        other = httpx.get(f"{node.url}/subjects", headers={"host": "other.example"})
        assert other.status_code == 403
    finally:
        node.end()
