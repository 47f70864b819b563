"""One order in six versions and three languages."""

import pytest

from penstock.client.registry import Registry
from penstock.lab.order_events import order_event, order_events
from penstock.lab.order_schemas import (
    CHANGES,
    SHAPES,
    V1,
    VERSION_CHANGES,
    VERSIONS,
    contract_of,
    schema_text,
)
from penstock.schemas.model import SchemaType
from penstock.serde.serializers import Deserializer, Serializer


@pytest.mark.parametrize("language", SchemaType)
def test_every_shape_is_a_schema_of_its_own(registry: Registry, language: SchemaType) -> None:
    texts = {schema_text(shape, language).text for shape in SHAPES.values()}
    assert len(texts) > len(VERSIONS)
    for shape in SHAPES.values():
        registry.parse(schema_text(shape, language))


@pytest.mark.parametrize("language", SchemaType)
@pytest.mark.parametrize("version", VERSIONS)
def test_an_order_is_read_as_it_was_written(
    registry: Registry, make_name: str, language: SchemaType, version: str
) -> None:
    shape = VERSIONS[version]
    contract = contract_of(shape, language)
    event = order_event(shape, seed=3, number=17)
    topic = f"{make_name}-{language}-{version}"
    content = Serializer(registry, topic, contract).serialize(event).content
    assert content is not None
    assert 350 < len(content) < 1_200
    read = Deserializer(registry, topic, reader=contract, as_dicts=True).deserialize(content)
    assert {name: read[name] for name in event if name != "items"} == {
        name: value for name, value in event.items() if name != "items"
    }
    assert [item["sku"] for item in read["items"]] == [item["sku"] for item in event["items"]]


@pytest.fixture
def make_name(request: pytest.FixtureRequest) -> str:
    return f"lab-{abs(hash(request.node.name))}"


def test_orders_depend_on_seed_and_number_alone() -> None:
    first = list(order_events(V1, seed=1, count=20))
    assert first == list(order_events(V1, seed=1, count=20))
    assert first[7] == order_event(V1, 1, 7)
    assert first != list(order_events(V1, seed=2, count=20))


def test_versions_and_changes_are_described() -> None:
    assert list(VERSION_CHANGES) == list(VERSIONS)
    assert all(len(shapes) >= 2 and shapes[0] == V1 for shapes in CHANGES.values())
