"""Small batches of very many records: what they cost a gateway that opens them."""

import asyncio
import threading

import pytest

from penstock.gateway import gateway_node
from penstock.gateway.gateway_node import GatewayNode
from penstock.gateway.settings import gateway_settings
from penstock.gateway.visible_records import (
    RECORDS_MAX,
    VisibleRecords,
    opened_bytes_max,
    visible_records,
)
from penstock.model import Offset
from penstock.protocol.compression import Codec
from penstock.protocol.records import build_batch

COUNT = 2 * RECORDS_MAX + 5


def many_empty_records(codec: Codec = Codec.ZSTD) -> memoryview:
    return memoryview(build_batch([(None, b"")] * COUNT, codec=codec))


def test_records_without_bytes_are_read_in_parts() -> None:
    batch, offset, counts = many_empty_records(), Offset(0), []
    while offset < COUNT:
        records, offset = visible_records(batch, (), offset, bytes_max=1)
        counts.append(len(records))
    assert counts == [RECORDS_MAX, RECORDS_MAX, 5]
    assert len(visible_records(batch, (), Offset(0)).records) == COUNT, "without a limit: all"


@pytest.mark.parametrize("codec", list(Codec))
def test_the_size_of_opened_records_is_known_before_they_are_opened(codec: Codec) -> None:
    raw_bytes = len(many_empty_records(Codec.NONE))
    small = memoryview(build_batch([(b"k", b"v")], codec=codec))
    assert opened_bytes_max(many_empty_records(codec)) >= raw_bytes - 100
    assert opened_bytes_max(small) <= 256 << 10


def test_large_batches_are_opened_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[str] = []

    def noted(*arguments: object, **options: object) -> VisibleRecords:
        threads.append(threading.current_thread().name)
        return VisibleRecords([], Offset(0))

    monkeypatch.setattr(gateway_node, "visible_records", noted)

    async def scene() -> None:
        kafka = {"bootstrap.servers": "127.0.0.1:9"}
        settings = gateway_settings(kafka, "http://127.0.0.1:9", {})
        node = GatewayNode(settings)
        small = memoryview(build_batch([(b"k", b"v")], codec=Codec.ZSTD))
        for batch in (small, many_empty_records(Codec.GZIP)):
            await node.open(batch, (), Offset(0), 1 << 20)
        await node.stop()

    asyncio.run(scene())
    own = threading.current_thread().name
    assert [name == own for name in threads] == [True, False]
