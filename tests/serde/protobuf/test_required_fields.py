"""Missing required fields are named, also where upb's own search ends the process."""

from typing import Any

import pytest
from google.protobuf import descriptor_pool, message_factory

from penstock.schemas.protobuf import parse
from penstock.serde.protobuf.required_fields import missing_fields

SHOP = """syntax = "proto2"; package shop;
message Order {
  required int32 id = 1;
  optional Item one = 2;
  repeated Item many = 3;
  map<int32, Item> by_number = 4;
  map<string, int32> counts = 5;
}
message Item { required string sku = 1; optional Item inner = 2; }
"""


@pytest.fixture(scope="module")
def order() -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in parse(SHOP).descriptors:
        pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"id": 1},
        {"id": 1, "one": {}},
        {"one": {"inner": {}}, "many": [{}, {"sku": "a"}, {"inner": {"sku": "b"}}]},
    ],
)
def test_missing_fields_have_the_names_that_upb_gives(row: Any, order: Any) -> None:
    message = order(**row)
    assert missing_fields(message) == message.FindInitializationErrors()


def test_missing_fields_inside_maps_are_found(order: Any) -> None:
    assert missing_fields(order(counts={"a": 1})) == ["id"]
    assert missing_fields(order(id=1, by_number={7: {}})) == ["by_number[7].sku"]
    assert missing_fields(order(id=1, by_number={7: {"sku": "a"}}, counts={"a": 1})) == []
