"""Every administrative API in every served version has a readable response."""

from typing import Any

import pytest

from penstock.broker.handlers import (
    API_TABLE,
    cluster,
    configs,
    metadata,
    quota_admin,
    security,
    topics,
)
from penstock.protocol.api import Api

ROWS = [
    row
    for module in (cluster, configs, metadata, quota_admin, security, topics)
    for row in module.HANDLERS
]
FIELDS: dict[int, dict[str, Any]] = {
    3: {"topics": [{"name": "orders"}], "allow_auto_topic_creation": True},
    19: {"topics": [{"name": "made", "num_partitions": 1, "replication_factor": 1}]},
    20: {"topics": [{"name": "orders"}], "topic_names": ["orders"]},
    29: {"resource_type_filter": 2, "operation": 1, "permission_type": 1},
    30: {"creations": [{"resource_type": 2, "resource_name": "orders"}]},
    31: {"filters": [{"resource_type_filter": 2}]},
    32: {
        "resources": [{"resource_type": 2, "resource_name": "orders", "configuration_keys": None}]
    },
    33: {"resources": [{"resource_type": 2, "resource_name": "orders"}]},
    37: {"topics": [{"name": "orders", "count": 3}]},
    43: {"topic_partitions": [{"topic": "orders", "partitions": [0]}]},
    44: {"resources": [{"resource_type": 2, "resource_name": "orders"}]},
    45: {"topics": [{"name": "orders", "partitions": [{"partition_index": 0}]}]},
    49: {"entries": [{"entity": [{"entity_type": "user", "entity_name": "alice"}]}]},
    55: {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]},
    75: {"topics": [{"name": "orders"}]},
}
# The error codes of Apache Kafka without an authorizer.
EXPECTED = {29: 54, 38: 61, 39: 61, 40: 61, 41: 64}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.api.name.lower())
def test_every_version_has_a_response(row: Any, wire: Any, broker: Any) -> None:
    broker.create_topic("orders", 2)
    for version in range(row.versions[0], row.versions[1] + 1):
        response = wire.call(row.api, version, **FIELDS.get(row.api, {}))
        if hasattr(response, "error_code"):
            assert response.error_code == EXPECTED.get(row.api, 0)
        if row.api is Api.DELETE_TOPICS:
            broker.create_topic("orders", 2)


def test_what_apache_kafka_4_3_serves_to_admins_is_served_in_the_same_versions() -> None:
    served = {int(row.api): row.advertised for row in API_TABLE.rows}
    kafka = {
        3: (0, 13), 19: (2, 7), 20: (1, 6), 29: (1, 3), 30: (1, 3), 31: (1, 3), 32: (1, 4),
        33: (0, 2), 35: (1, 5), 37: (0, 3), 38: (1, 3), 39: (1, 2), 40: (1, 2), 41: (1, 3),
        43: (0, 2), 44: (0, 1), 45: (0, 1), 46: (0, 0), 48: (0, 1), 49: (0, 1), 55: (0, 2),
        34: (1, 2), 50: (0, 0), 57: (0, 2), 60: (0, 2), 74: (0, 1), 75: (0, 0),
    }  # fmt: skip
    assert {key: served.get(key) for key in kafka} == kafka
