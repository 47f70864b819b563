"""JSON Schema's `format`: an annotation by default, checked where a contract says so."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from penstock.client.consumer import Consumer
from penstock.client.decode_filter import OnDecodeError
from penstock.client.producer import Producer
from penstock.client.registry import Registry
from penstock.schemas.model import SchemaType
from penstock.serde.batch_serializers import BatchDeserializer, BatchSerializer
from penstock.serde.contract import Contract
from penstock.serde.errors import DecodeError, EncodeError, Reason
from penstock.serde.frame import write_prefix
from penstock.serde.serializers import Deserializer, Serializer

MakeTopic = Callable[..., str]
DRAFTS = [
    "http://json-schema.org/draft-04/schema#",
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2020-12/schema",
]
NAIVE = {"at": "2026-01-01T12:00:00"}  # what datetime.isoformat() writes without a zone
AWARE = {"at": "2026-01-01T12:00:00Z"}


def contract(draft: str = DRAFTS[1], **more: Any) -> Contract:
    text = {
        "$schema": draft,
        "type": "object",
        "properties": {"at": {"type": "string", "format": "date-time"}},
    }
    return Contract(json.dumps(text), SchemaType.JSON, **more)


@pytest.mark.parametrize("draft", DRAFTS)
def test_a_format_is_an_annotation_by_default(registry: Registry, topic: str, draft: str) -> None:
    content = Serializer(registry, topic, contract(draft)).serialize(NAIVE).content
    many = BatchSerializer(registry, topic, contract(draft)).serialize_many([NAIVE] * 20)
    assert content is not None
    assert many.contents() == [content] * 20
    for reader in (None, Contract(), contract(draft)):
        assert Deserializer(registry, topic, reader=reader).deserialize(content) == NAIVE
        batch, wrongs = BatchDeserializer(registry, topic, reader=reader).deserialize_many(
            [content]
        )
        assert (batch.to_pylist(), wrongs) == ([NAIVE], [])


@pytest.mark.parametrize("draft", DRAFTS)
def test_a_contract_may_assert_formats(registry: Registry, topic: str, draft: str) -> None:
    strict = contract(draft, assert_formats=True)
    content = Serializer(registry, topic, contract(draft)).serialize(NAIVE).content
    assert content is not None
    with pytest.raises(EncodeError, match="date-time"):
        Serializer(registry, topic, strict).serialize(NAIVE)
    with pytest.raises(EncodeError, match=r"row 1: .*date-time"):
        BatchSerializer(registry, topic, strict).serialize_many([AWARE, NAIVE])
    for reader in (strict, Contract(assert_formats=True)):
        with pytest.raises(DecodeError, match="date-time") as found:
            Deserializer(registry, topic, reader=reader).deserialize(content)
        assert found.value.reason is Reason.RULE_VIOLATED
        (wrong,) = BatchDeserializer(registry, topic, reader=reader).deserialize_many([content])[1]
        assert wrong.reason is Reason.RULE_VIOLATED
    fine = Serializer(registry, topic, strict).serialize(AWARE).content
    assert fine is not None
    assert Deserializer(registry, topic, reader=strict).deserialize(fine) == AWARE


def test_a_consumer_need_not_validate(
    bootstrap: str, registry: Registry, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    schema_id = Serializer(registry, topic, contract()).prepare()[0].id
    with Producer(bootstrap, topic) as producer:
        for text in (b'{"at": 7, "more": 1}', b'{"more": 1}'):
            producer.send(write_prefix(schema_id) + text).result(30)
    kept = OnDecodeError.RAISE
    with (
        Consumer(bootstrap, topic, f"{topic}-a", registry=registry, on_decode_error=kept) as strict,
        pytest.raises(DecodeError, match="rule_violated"),
    ):
        strict.take(1, wait_s=20)
    with Consumer(
        bootstrap, topic, f"{topic}-b", registry=registry, validate=False, on_decode_error=kept
    ) as consumer:
        assert next(consumer.events(idle_s=20)).value == {"at": 7, "more": 1}
    with Consumer(
        bootstrap, topic, f"{topic}-c", registry=registry, validate=False,
        on_decode_error=OnDecodeError.SKIP,
    ) as consumer:  # fmt: skip
        batch = next(consumer.arrow_batches(idle_s=20))
        assert batch.values.to_pylist() == [{"at": None}], "a number is no text in a column"
