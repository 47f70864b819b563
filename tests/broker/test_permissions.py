"""The permissions of the API table: every row has one, and it names the request's resources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.broker.handler import Handler
from penstock.broker.handlers import API_TABLE
from penstock.broker.permissions import (
    ANYONE,
    PER_ITEM,
    AllOf,
    AnyOf,
    Operation,
    Permission,
    ResourceType,
    all_operations,
    on_cluster,
    on_each_topic,
)
from penstock.protocol.api import Api, request_schema
from penstock.protocol.kio_schema import shapes_of
from tests.support.kio_messages import encode, fill_request

if TYPE_CHECKING:
    from collections.abc import Iterator

every_row = pytest.mark.parametrize("row", API_TABLE.rows, ids=lambda row: row.api.name.lower())
NEEDS_NOTHING = {
    Api.API_VERSIONS,
    Api.DESCRIBE_CLUSTER,
    Api.RENEW_DELEGATION_TOKEN,
    Api.EXPIRE_DELEGATION_TOKEN,
}


def permissions_in(rule: Any) -> Iterator[Permission[Any]]:
    if isinstance(rule, Permission):
        yield rule
    else:
        for part in rule.rules:
            yield from permissions_in(part)


@every_row
def test_only_few_requests_need_no_permission(row: Handler[Any, Any]) -> None:
    assert (not list(permissions_in(row.allow))) == (row.api in NEEDS_NOTHING)


@every_row
def test_a_permission_names_resources_of_the_request(row: Handler[Any, Any]) -> None:
    for version in range(row.versions[0], row.versions[1] + 1):
        texts = {
            shape.name: ["named"] if shape.is_array else "named"
            for shape in shapes_of(request_schema(row.api, version))
            if shape.primitive == "string"
        }
        body = encode(fill_request(row.api, version, **texts))
        request = row.message.read_request(memoryview(body), 0, version)
        for permission in permissions_in(row.allow):
            if permission.names is not PER_ITEM:
                names = set(permission.names(request))
                is_cluster = permission.resource is ResourceType.CLUSTER
                assert names <= {"kafka-cluster" if is_cluster else "named"}


def test_a_row_without_a_permission_fails() -> None:
    row = API_TABLE.rows[0]
    with pytest.raises(TypeError, match="allow"):
        Handler(row.message, versions=row.versions, handle=row.handle)  # type: ignore[call-arg]  # that is the point


def test_rules_read_as_in_the_documentation() -> None:
    create = AnyOf(on_cluster(Operation.CREATE), on_each_topic(Operation.CREATE))
    assert str(create) == "CREATE on CLUSTER or CREATE on each TOPIC"
    both = AllOf(on_cluster(Operation.ALTER), on_each_topic(Operation.READ))
    assert str(both) == "ALTER on CLUSTER, READ on each TOPIC"
    assert str(ANYONE) == "none"


def test_all_operations_are_bits_by_kafkas_codes() -> None:
    assert all_operations(ResourceType.GROUP) == 0b1101_0100_1000
    assert all_operations(ResourceType.TOPIC) == sum(
        1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11)
    )
    assert all_operations(ResourceType.CLUSTER) == sum(
        1 << code for code in (5, 7, 8, 9, 10, 11, 12)
    )
