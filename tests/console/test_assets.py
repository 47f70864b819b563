"""Files of the console's pages over HTTP: types, compression, validation, the policy."""

import gzip
from collections.abc import Iterator

import httpx
import pytest

from penstock.console.assets import MEDIA_TYPES, POLICY, STATIC

FILES = sorted(path for path in STATIC.rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def http(registry_url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=registry_url) as client:
        yield client


@pytest.mark.parametrize("path", ["/console", "/console/", "/console/topics/a%2Fb/records?q=1"])
def test_every_address_of_the_console_answers_with_the_page_under_its_policy(
    http: httpx.Client, path: str
) -> None:
    response = http.get(path)
    assert response.status_code == 200
    assert response.text == (STATIC / "index.html").read_text()
    assert response.headers["content-security-policy"] == POLICY
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["referrer-policy"] == "no-referrer"
    assert "trusted-types 'none'" in POLICY


def test_every_file_has_a_type_of_the_table() -> None:
    assert [path.name for path in FILES if path.suffix not in MEDIA_TYPES] == []


def test_a_module_is_compressed_and_validated_by_its_etag(http: httpx.Client) -> None:
    with http.stream("GET", "/console/static/theme.js") as response:
        raw = b"".join(response.iter_raw())
    assert gzip.decompress(raw) == (STATIC / "theme.js").read_bytes()
    assert response.headers["content-type"] == "text/javascript; charset=utf-8"
    same = http.get("/console/static/theme.js", headers={"If-None-Match": response.headers["etag"]})
    assert (same.status_code, same.content) == (304, b"")
    plain = http.get("/console/static/theme.js", headers={"Accept-Encoding": "identity"})
    assert plain.content == (STATIC / "theme.js").read_bytes()


@pytest.mark.parametrize(
    "name", ["none.js", "views/none.js", "..%2Fassets.py", "%2e%2e/assets.py", "views/", ""]
)
def test_only_files_of_the_folder_are_served(http: httpx.Client, name: str) -> None:
    response = http.get(f"/console/static/{name}")
    assert response.status_code == 404
    assert "Assets" not in response.text


def test_pages_are_only_read(http: httpx.Client) -> None:
    assert http.post("/console/topics").status_code == 405
    head = http.head("/console")
    assert (head.status_code, head.content) == (200, b"")
