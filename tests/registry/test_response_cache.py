"""Answers on the shelf: what takes them down, and what does not."""

import pytest

from penstock.registry.http import response_cache as room
from penstock.registry.http.response_cache import Known, Ready, Repeated, Shelf
from penstock.registry.store.events import (
    Config,
    ConfigSet,
    Contents,
    Event,
    Marked,
    SubjectDeleted,
    Version,
    VersionRemoved,
    VersionStored,
)
from penstock.registry.subject_names import Subject
from penstock.registry.usage import Use
from penstock.schemas.model import SchemaText, SchemaType

ORDERS = Subject("orders-value")


def stored(id: int) -> VersionStored:
    contents = Contents(SchemaText(SchemaType.AVRO, '"int"'))
    return VersionStored(Version(ORDERS, 1, id, contents, b""))


def key(id: int) -> tuple[bytes, bytes]:
    return (b"/schemas/ids/%d" % id, b"")


def put_up(shelf: Shelf, id: int, *, tells_last_id: bool = False) -> None:
    ready = Ready(b"{}", ".", id, tells_last_id)
    shelf.keep(key(id), ready)
    shelf.remember(
        b"GET %d" % id, ready, Known(Repeated(b"", b"{}"), Use(".", id, "c", "consumer"))
    )


def left(shelf: Shelf) -> set[int]:
    found = {id for id in range(10) if shelf.find(key(id)) is not None}
    assert found == {id for id in range(10) if shelf.repeat(b"GET %d" % id) is not None}
    return found


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (stored(1), {2}),
        (stored(7), {1, 2}),
        (VersionRemoved(ORDERS, 1), set()),
        (SubjectDeleted(ORDERS, 1), set()),
        (ConfigSet(None, Config()), {1, 2, 3}),
        (Marked({}), {1, 2, 3}),
    ],
)
def test_an_event_takes_down_what_it_could_change(event: Event, expected: set[int]) -> None:
    shelf = Shelf()
    put_up(shelf, 1)
    put_up(shelf, 2)
    put_up(shelf, 3, tells_last_id=True)
    shelf.on_event(event)
    assert left(shelf) == expected
    for id in (1, 2, 3):
        put_up(shelf, id, tells_last_id=id == 3)
    shelf.on_event(stored(2))
    assert left(shelf) == {1}


def test_a_full_shelf_is_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "ANSWERS_MAX", 2)
    shelf = Shelf()
    for id in (1, 2, 3):
        shelf.keep(key(id), Ready(b"{}", ".", id, tells_last_id=False))
    assert [shelf.find(key(id)) is not None for id in (1, 2, 3)] == [False, False, True]


def test_a_shelf_of_large_answers_is_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "BODIES_BYTES_MAX", 10)
    shelf = Shelf()
    large = Ready(b"x" * 10, ".", 1, tells_last_id=False)
    shelf.keep(key(1), large)
    shelf.on_event(stored(1))
    shelf.keep(key(2), large)
    shelf.keep(key(3), large)
    assert [shelf.find(key(id)) is not None for id in (1, 2, 3)] == [False, False, True]
