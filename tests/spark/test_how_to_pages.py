"""The pages of programs for Spark are run as they are written, with places of the test's own."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from penstock.client import Consumer, Contract, Producer, Registry
from penstock.testing.embedded import EmbeddedBroker, EmbeddedRegistry

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "order_id", "type": "string"},
        {"name": "customer", "type": "string"},
        {"name": "country", "type": "string"},
        {"name": "cents", "type": "long"},
    ],
}
ORDERS: list[dict[str, Any]] = [
    {
        "order_id": f"o{number}",
        "customer": f"c{number % 7}",
        "country": ("DE", "FR", "IT")[number % 3],
        "cents": number * 100,
    }
    for number in range(100)
]


class Shop:
    """A broker and a registry with the topics that the pages name."""

    def __init__(self, bootstrap: str, registry_url: str) -> None:
        self.bootstrap = bootstrap
        self.registry_url = registry_url
        admin = AdminClient({"bootstrap.servers": bootstrap})
        names = ("orders", "spending", "large-orders", "small-orders")
        for made in admin.create_topics([NewTopic(name, 2, 1) for name in names]).values():
            made.result(20)
        with Registry(registry_url, client="shop") as registry:
            contract = Contract(json.dumps(ORDER))
            with Producer(bootstrap, "orders", registry=registry, value=contract) as producer:
                keys = [one["order_id"] for one in ORDERS]
                producer.send_many(ORDERS, keys=keys).wait()

    def run(self, page: str, folder: Path) -> dict[str, Any]:
        """All Python of a page as one program; its names."""
        program = "".join(PYTHON.findall((PAGES / page).read_text()))
        assert program, "the page has a program"
        program = program.replace("127.0.0.1:9092", self.bootstrap)
        program = program.replace("http://127.0.0.1:8081", self.registry_url)
        program = program.replace('"/data/', f'"{folder}/')
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(program, page, "exec"), names)
        return names

    def events(self, topic: str) -> list[dict[str, Any]]:
        settings = {"isolation.level": "read_committed"}
        with (
            Registry(self.registry_url, client="tests") as registry,
            Consumer(
                self.bootstrap, topic, f"tests-{topic}", registry=registry, settings=settings
            ) as consumer,
        ):
            batches = consumer.arrow_batches(idle_s=3)
            return [row for batch in batches for row in batch.values.to_pylist()]


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    with EmbeddedBroker() as broker, EmbeddedRegistry(broker.bootstrap) as registry:
        yield Shop(broker.bootstrap, registry.url)


def by_country() -> Counter[str]:
    totals: Counter[str] = Counter()
    for one in ORDERS:
        totals[one["country"]] += one["cents"]
    return totals


@pytest.mark.slow
def test_topics_are_queried_with_sql(
    spark: SparkSession, shop: Shop, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = shop.run("spark-sql.md", tmp_path)
    assert names["made"]["orders"] == "orders"
    assert names["framed"].collect() == names["raw"].select("value").collect()
    assert spark.sql("SELECT max(cents) FROM recent_orders").collect()[0][0] == 9900
    said = capsys.readouterr().out
    assert "0" in said.splitlines(), "behind at the end; lines of the listener come beside it"


def test_a_stream_goes_into_a_delta_table_once(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    names = shop.run("spark-lake.md", tmp_path)
    frame = spark.createDataFrame([("again", "DE", 1, 0, 0)], names["orders"].schema)
    names["append"](frame, 0)  # as Spark does where it died between the commit and its own log
    rows = names["DeltaTable"](names["TABLE"]).to_pyarrow_table().to_pylist()
    assert sorted(row["order_id"] for row in rows) == sorted(one["order_id"] for one in ORDERS)


@pytest.mark.slow
def test_state_of_ones_own_goes_into_a_topic(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    shop.run("spark-state.md", tmp_path)
    totals: Counter[str] = Counter()
    for one in ORDERS:
        totals[one["customer"]] += one["cents"]
    found = {row["customer"]: row["cents"] for row in shop.events("spending")}
    assert found == totals


@pytest.mark.slow
def test_several_queries_run_in_one_driver(spark: SparkSession, shop: Shop, tmp_path: Path) -> None:
    try:
        names = shop.run("spark-several-queries.md", tmp_path)
    finally:
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", "default")
    assert not names["running"]
    wanted = {one["order_id"]: one["cents"] for one in ORDERS}
    large = {row["order_id"]: row["cents"] for row in shop.events("large-orders")}
    small = {row["order_id"]: row["cents"] for row in shop.events("small-orders")}
    assert large == {name: cents for name, cents in wanted.items() if cents >= 5000}
    assert large | small == wanted
    archive = ds.dataset(tmp_path / "archive", format="parquet", partitioning="hive").to_table()
    assert archive.num_rows == len(ORDERS)


def test_topics_are_read_without_spark(shop: Shop, tmp_path: Path) -> None:
    names = shop.run("without-spark.md", tmp_path)
    wanted = sorted(by_country().items())
    names["registry"].close()
    assert names["totals"].fetchall() == wanted
    assert names["countries"].rows() == wanted
    assert sorted(names["frame"].groupby("country")["cents"].sum().items()) == wanted
    files = sorted((tmp_path / "orders").glob("*.parquet"))
    assert ds.dataset(files).count_rows() == len(ORDERS)
