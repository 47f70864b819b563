"""The programs of the pages about Spark run as they are written, with the test's addresses."""

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
        for created in admin.create_topics([NewTopic(name, 2, 1) for name in names]).values():
            created.result(20)
        with Registry(registry_url, client="shop") as registry:
            contract = Contract(json.dumps(ORDER))
            with Producer(bootstrap, "orders", registry=registry, value=contract) as producer:
                keys = [order["order_id"] for order in ORDERS]
                producer.send_many(ORDERS, keys=keys).wait()

    def run(self, page: str, folder: Path) -> dict[str, Any]:
        """Run all Python of a page as one program; its variables."""
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
    for order in ORDERS:
        totals[order["country"]] += order["cents"]
    return totals


@pytest.mark.slow
def test_topics_are_queried_with_sql(
    spark: SparkSession, shop: Shop, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    variables = shop.run("spark-sql.md", tmp_path)
    assert variables["names"]["orders"] == "orders"
    assert variables["framed"].collect() == variables["raw"].select("value").collect()
    assert spark.sql("SELECT max(cents) FROM recent_orders").collect()[0][0] == 9900
    output = capsys.readouterr().out
    assert "0" in output.splitlines(), "the lag at the end, among lines of the listener"


@pytest.mark.slow
def test_a_stream_goes_into_a_delta_table_once(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    variables = shop.run("spark-lake.md", tmp_path)
    frame = spark.createDataFrame([("again", "DE", 1, 0, 0)], variables["orders"].schema)
    variables["append"](frame, 0)  # as after a crash between the commit and Spark's own log
    rows = variables["DeltaTable"](variables["TABLE"]).to_pyarrow_table().to_pylist()
    assert sorted(row["order_id"] for row in rows) == sorted(order["order_id"] for order in ORDERS)


@pytest.mark.slow
def test_your_own_state_is_written_to_a_topic(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    shop.run("spark-state.md", tmp_path)
    totals: Counter[str] = Counter()
    for order in ORDERS:
        totals[order["customer"]] += order["cents"]
    spending = {row["customer"]: row["cents"] for row in shop.events("spending")}
    assert spending == totals


@pytest.mark.slow
def test_several_queries_run_in_one_driver(spark: SparkSession, shop: Shop, tmp_path: Path) -> None:
    try:
        variables = shop.run("spark-several-queries.md", tmp_path)
    finally:
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", "default")
    assert not variables["running"]
    orders = {order["order_id"]: order["cents"] for order in ORDERS}
    large = {row["order_id"]: row["cents"] for row in shop.events("large-orders")}
    small = {row["order_id"]: row["cents"] for row in shop.events("small-orders")}
    assert large == {name: cents for name, cents in orders.items() if cents >= 5000}
    assert large | small == orders
    archive = ds.dataset(tmp_path / "archive", format="parquet", partitioning="hive").to_table()
    assert archive.num_rows == len(ORDERS)


def test_topics_are_read_without_spark(shop: Shop, tmp_path: Path) -> None:
    variables = shop.run("without-spark.md", tmp_path)
    totals = sorted(by_country().items())
    variables["registry"].close()
    assert variables["totals"].fetchall() == totals
    assert variables["countries"].rows() == totals
    assert sorted(variables["frame"].groupby("country")["cents"].sum().items()) == totals
    files = sorted((tmp_path / "orders").glob("*.parquet"))
    assert ds.dataset(files).count_rows() == len(ORDERS)
