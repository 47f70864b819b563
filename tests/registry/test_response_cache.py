"""Answers on the cache: what takes them down, and what does not."""

import pytest

from penstock.http.http_protocol import ResponseBytes
from penstock.registry.http import response_cache as module
from penstock.registry.http.response_cache import (
    CachedRequest,
    CachedResponse,
    ResponseCache,
)
from penstock.registry.store.events import (
    Contents,
    Event,
    LogMarked,
    SubjectConfig,
    SubjectConfigSet,
    SubjectDeleted,
    Version,
    VersionRemoved,
    VersionStored,
)
from penstock.registry.subject_names import Subject
from penstock.registry.usage import SchemaUse
from penstock.schemas.model import SchemaText, SchemaType

ORDERS = Subject("orders-value")


def stored(schema_id: int) -> VersionStored:
    contents = Contents(SchemaText(SchemaType.AVRO, '"int"'))
    return VersionStored(Version(ORDERS, 1, schema_id, contents, b""))


def key(schema_id: int) -> tuple[bytes, bytes]:
    return (b"/schemas/ids/%d" % schema_id, b"")


def put_up(cache: ResponseCache, schema_id: int, *, has_last_id: bool = False) -> None:
    ready = CachedResponse(b"{}", ".", schema_id, has_last_id)
    cache.add(key(schema_id), ready)
    cache.add_request(
        b"GET %d" % schema_id,
        ready,
        CachedRequest(ResponseBytes(b"", b"{}"), SchemaUse(".", schema_id, "c", "consumer")),
    )


def left(cache: ResponseCache) -> set[int]:
    found = {schema_id for schema_id in range(10) if cache.find(key(schema_id)) is not None}
    assert found == {
        schema_id for schema_id in range(10) if cache.repeat(b"GET %d" % schema_id) is not None
    }
    return found


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (stored(1), {2}),
        (stored(7), {1, 2}),
        (VersionRemoved(ORDERS, 1), set()),
        (SubjectDeleted(ORDERS, 1), set()),
        (SubjectConfigSet(None, SubjectConfig()), {1, 2, 3}),
        (LogMarked({}), {1, 2, 3}),
    ],
)
def test_an_event_takes_down_what_it_could_change(event: Event, expected: set[int]) -> None:
    cache = ResponseCache()
    put_up(cache, 1)
    put_up(cache, 2)
    put_up(cache, 3, has_last_id=True)
    cache.on_event(event)
    assert left(cache) == expected
    for schema_id in (1, 2, 3):
        put_up(cache, schema_id, has_last_id=schema_id == 3)
    cache.on_event(stored(2))
    assert left(cache) == {1}


def test_a_full_cache_is_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RESPONSES_MAX", 2)
    cache = ResponseCache()
    for schema_id in (1, 2, 3):
        cache.add(key(schema_id), CachedResponse(b"{}", ".", schema_id, has_last_id=False))
    assert [cache.find(key(schema_id)) is not None for schema_id in (1, 2, 3)] == [
        False,
        False,
        True,
    ]


def test_a_cache_of_large_answers_is_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BODIES_BYTES_MAX", 10)
    cache = ResponseCache()
    large = CachedResponse(b"x" * 10, ".", 1, has_last_id=False)
    cache.add(key(1), large)
    cache.on_event(stored(1))
    cache.add(key(2), large)
    cache.add(key(3), large)
    assert [cache.find(key(schema_id)) is not None for schema_id in (1, 2, 3)] == [
        False,
        False,
        True,
    ]
