"""Orders in the log: complete, unique, the same for the same seed."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import psutil
import pytest

from penstock.client.consumer import Consumer
from penstock.client.registry import Registry
from penstock.lab.lab_platform import LabError
from penstock.lab.order_fleet import write_orders
from penstock.lab.order_writer import OrderPlan, OrderWriter
from penstock.link.blocking import BlockingCluster
from penstock.link.send_batches import send_batches
from penstock.model import TopicPartition
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


def test_instances_do_not_change_what_is_in_a_partition(
    bootstrap: str, registry: Registry, make_topic: MakeTopic
) -> None:
    plans = [
        OrderPlan(make_topic(partitions=3), count=700, pool=100, instances=instances)
        for instances in (1, 3)
    ]
    ids = []
    for plan in plans:
        write_orders(plan, bootstrap, registry.url, lambda _count: None)
        ids.append(ids_by_partition(bootstrap, registry, plan))
    assert ids[0] == ids[1]
    assert len(ids[0]) == 3
    with pytest.raises(LabError, match="3 partitions"):
        write_orders(replace(plans[0], instances=4), bootstrap, registry.url, lambda _count: None)


def ids_by_partition(bootstrap: str, registry: Registry, plan: OrderPlan) -> dict[int, list[str]]:
    ids: dict[int, list[str]] = {}
    with Consumer(bootstrap, plan.topic, plan.topic, registry=registry) as consumer:
        while sum(map(len, ids.values())) < plan.count:
            batch = consumer.take_arrow(["order_id"], wait_s=20)
            assert batch is not None
            for partition, order_id in zip(batch.partitions, batch.values["order_id"], strict=True):
                ids.setdefault(int(partition.as_py()), []).append(str(order_id.as_py()))
    return ids


def test_a_plan_continues_in_the_middle_of_a_round(
    bootstrap: str, registry: Registry, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = OrderPlan(make_topic(partitions=2), count=9_000, pool=6_000, is_resumed=True)

    def send_the_first(batches: Mapping[TopicPartition, Sequence[Any]]) -> Any:
        partition, queue = next(iter(batches.items()))
        assert len(queue) > 1, "the round is interrupted between two batches of a partition"
        return send_batches({partition: queue[:1]})

    def stop(_count: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, BlockingCluster(bootstrap) as cluster:
        patched.setattr("penstock.lab.order_writer.send_batches", send_the_first)
        with pytest.raises(KeyboardInterrupt):
            OrderWriter(plan, cluster, registry).write(stop)
    whole = replace(plan, topic=make_topic(partitions=2))
    for one in (plan, whole):
        with BlockingCluster(bootstrap) as cluster:
            assert OrderWriter(one, cluster, registry).write() == 9_000
    assert ids_by_partition(bootstrap, registry, plan) == ids_by_partition(
        bootstrap, registry, whole
    )


def test_after_a_kill_the_writers_end_and_a_plan_is_completed(
    bootstrap: str, registry: Registry, make_topic: MakeTopic
) -> None:
    plan = OrderPlan(
        make_topic(partitions=2), count=6_000, pool=100, rate=1_000, instances=2, is_resumed=True
    )
    code = (
        "import sys; from penstock.lab.order_fleet import write_orders;"
        "from penstock.lab.order_writer import OrderPlan;"
        "plan = OrderPlan(sys.argv[1], count=6_000, pool=100, rate=1_000, instances=2,"
        " is_resumed=True);"
        "write_orders(plan, sys.argv[2], sys.argv[3], lambda n: n and print(n, flush=True))"
    )
    command = [sys.executable, "-c", code, plan.topic, bootstrap, registry.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline(), "it writes"
        writers = psutil.Process(process.pid).children(recursive=True)
        process.kill()
    _, alive = psutil.wait_procs(writers, timeout=30)
    assert not alive
    written = write_orders(replace(plan, rate=None), bootstrap, registry.url, lambda _count: None)
    assert 0 < written.orders < 6_000
    ids = sorted(row["order_id"] for row in read(bootstrap, registry, plan))
    assert ids == [f"order-{number:012d}" for number in range(6_000)]


def test_a_refused_schema_is_one_sentence(
    bootstrap: str, registry: Registry, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    written(bootstrap, registry, OrderPlan(topic, count=10, pool=10))
    plan = OrderPlan(topic, language=SchemaType.JSON, count=10, pool=10, instances=1)
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
    changed = [*command, "--version", "rename-with-an-alias,int-to-string"]
    refused = subprocess.run(changed, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "incompatible" in refused.stdout
    command[5] = make_topic()
    changed = [*command, "--version", "rename-with-an-alias"]
    subprocess.run(changed, capture_output=True, check=True)
    wrong = subprocess.run([*command, "--version", "v9"], capture_output=True, check=False)
    assert wrong.returncode == 2
