"""Orders in the log: complete, unique, the same for the same seed."""

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from penstock.client.consumer import Consumer
from penstock.client.registry import Registry
from penstock.lab.lab_platform import LabError
from penstock.lab.order_fleet import write_orders
from penstock.lab.order_writer import OrderPlan, OrderWriter
from penstock.link.blocking import BlockingCluster
from penstock.protocol.compression import Codec
from penstock.schemas.model import SchemaType

MakeTopic = Callable[..., str]


def written(bootstrap: str, registry: Registry, plan: OrderPlan) -> list[dict[str, Any]]:
    with BlockingCluster(bootstrap) as cluster:
        OrderWriter(plan, cluster, registry).write()
    return read(bootstrap, registry, plan)


def read(bootstrap: str, registry: Registry, plan: OrderPlan) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    with Consumer(bootstrap, plan.topic, plan.topic, registry=registry) as consumer:
        while len(rows) < plan.count:
            batch = consumer.take_arrow(wait_s=20)
            assert batch is not None, f"{len(rows)} of {plan.count} came"
            rows += batch.values.to_pylist()
        assert consumer.take_arrow(wait_s=0.5) is None, "no more than that"
        assert consumer.quarantined == 0
    return rows


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_rounds_repeat_the_pool_under_new_ids(
    bootstrap: str, registry: Registry, make_topic: MakeTopic, codec: Codec
) -> None:
    plan = OrderPlan(
        make_topic(partitions=3), ("v1", "v2", "v3"), count=1_050, pool=300, codec=codec
    )
    rows = written(bootstrap, registry, plan)
    ids = sorted(row["order_id"] for row in rows)
    assert ids == [f"order-{number:012d}" for number in range(1_050)]
    by_id = {row["order_id"]: row for row in rows}
    first, later = by_id["order-000000000007"], by_id["order-000000000307"]
    assert {**first, "order_id": ""} == {**later, "order_id": ""}
    assert "coupon" in first


def test_the_same_seed_writes_the_same_orders(
    bootstrap: str, registry: Registry, make_topic: MakeTopic
) -> None:
    plans = [OrderPlan(make_topic(), seed=seed, count=200, pool=200) for seed in (5, 5, 6)]
    first, second, other = (written(bootstrap, registry, plan) for plan in plans)
    assert first == second
    assert first != other


@pytest.mark.parametrize("language", [SchemaType.PROTOBUF, SchemaType.JSON])
def test_orders_are_written_in_every_language(
    bootstrap: str, registry: Registry, make_topic: MakeTopic, language: SchemaType
) -> None:
    plan = OrderPlan(make_topic(), ("v2",), language, count=50, pool=20)
    assert len(written(bootstrap, registry, plan)) == 50


def test_instances_share_the_orders(
    bootstrap: str, registry: Registry, make_topic: MakeTopic
) -> None:
    plan = OrderPlan(make_topic(partitions=2), count=900, pool=100, instances=2)
    seen: list[int] = []
    result = write_orders(plan, bootstrap, registry.url, seen.append)
    assert result.orders == seen[-1] == 900
    ids = {row["order_id"] for row in read(bootstrap, registry, plan)}
    assert len(ids) == 900


def test_a_refused_schema_is_one_sentence(
    bootstrap: str, registry: Registry, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    written(bootstrap, registry, OrderPlan(topic, count=10, pool=10))
    plan = OrderPlan(topic, language=SchemaType.JSON, count=10, pool=10, instances=2)
    with pytest.raises(LabError, match="incompatible"):
        write_orders(plan, bootstrap, registry.url, lambda _count: None)


def test_the_command_writes_orders(
    bootstrap: str, registry: Registry, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    command = [
        sys.executable, "-m", "penstock", "gen", "orders", topic, "-n", "500", "--version",
        "v1,v6", "--json", "-b", bootstrap, "-r", registry.url,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["orders"] == 500
    wrong = subprocess.run([*command, "--version", "v9"], capture_output=True, check=False)
    assert wrong.returncode == 2
