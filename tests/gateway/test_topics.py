"""Administration of topics over HTTP."""

import httpx
import pytest

from penstock.testing.platform import Platform


def test_a_topic_is_created_described_changed_and_deleted(
    http: httpx.Client, penstock: Platform
) -> None:
    name = penstock.name("admin")
    body = {"name": name, "partitions": 2, "configs": {"retention.ms": "60000"}}
    created = http.post("/topics", json=body)
    assert created.status_code == 201
    assert created.headers["location"] == f"/topics/{name}"
    topic = created.json()
    assert [row["partition"] for row in topic["partitions"]] == [0, 1]
    assert topic["configs"]["retention.ms"] == "60000"
    assert topic["replication_factor"] == 1
    assert http.get(f"/topics/{name}").json() == topic
    listed = {row["name"]: row for row in http.get("/topics").json()["topics"]}
    assert listed[name] == {
        "name": name, "internal": False, "partitions": 2, "replication_factor": 1,
    }  # fmt: skip
    change = {"configs": {"retention.ms": None, "cleanup.policy": "compact"}, "partitions": 3}
    changed = http.patch(f"/topics/{name}", json=change).json()
    assert len(changed["partitions"]) == 3
    assert changed["configs"]["cleanup.policy"] == "compact"
    assert changed["configs"]["retention.ms"] != "60000"
    assert http.delete(f"/topics/{name}").status_code == 204
    assert http.get(f"/topics/{name}").status_code == 404


def test_fewer_partitions_are_refused(http: httpx.Client, penstock: Platform) -> None:
    topic = penstock.make_topic(partitions=3)
    refused = http.patch(f"/topics/{topic}", json={"partitions": 2})
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "invalid_partitions"
    assert len(http.get(f"/topics/{topic}").json()["partitions"]) == 3


def test_a_topic_that_exists_is_a_conflict(http: httpx.Client, penstock: Platform) -> None:
    topic = penstock.make_topic()
    refused = http.post("/topics", json={"name": topic})
    assert refused.status_code == 409
    assert refused.json()["error"]["code"] == "topic_exists"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"name": "bad name!"}, "invalid_topic"),
        ({"name": "t", "partitions": 0}, "invalid_body"),
        ({"name": "t", "unknown": 1}, "invalid_body"),
        ({"partitions": 1}, "invalid_body"),
        ({"name": "t-configs", "configs": {"no.such.config": "1"}}, "invalid_config"),
    ],
)
def test_an_invalid_topic_is_refused_with_a_code(
    http: httpx.Client, body: dict[str, object], code: str
) -> None:
    refused = http.post("/topics", json=body)
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == code


def test_no_read_creates_a_topic(http: httpx.Client, penstock: Platform) -> None:
    name = penstock.name("unborn")
    for path in (f"/topics/{name}", f"/topics/{name}/partitions/0/events"):
        missing = http.get(path)
        assert missing.status_code == 404, path
        assert missing.json()["error"]["code"] == "unknown_topic_or_partition"
    assert http.patch(f"/topics/{name}", json={"partitions": 3}).status_code == 404
    assert http.delete(f"/topics/{name}").status_code == 404
    assert name not in {row["name"] for row in http.get("/topics").json()["topics"]}


def test_the_cluster_has_an_id_and_brokers(http: httpx.Client, penstock: Platform) -> None:
    cluster = http.get("/cluster").json()
    assert cluster["cluster_id"]
    (broker,) = cluster["brokers"]
    assert penstock.bootstrap.endswith(f":{broker['port']}")
