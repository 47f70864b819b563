"""The examples have the results that plain Python computes from the same events."""

import importlib
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyspark
import pytest
from pyspark.sql import SparkSession

from penstock.testing.embedded import EmbeddedBroker, EmbeddedRegistry

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def examples() -> Iterator[Any]:
    """The package, which is not installed but is at the root of the repository."""
    sys.path.insert(0, str(ROOT))
    yield importlib.import_module("examples.orders")
    sys.path.remove(str(ROOT))


@pytest.fixture(scope="module")
def data(examples: Any, bootstrap: str, registry_url: str) -> Any:
    data = examples.generate(seed=5, orders=400)
    topics = examples.Topics("shop-orders", "shop-payments")
    examples.publish(data, bootstrap, registry_url, topics=topics, partitions=2)
    return data


@pytest.fixture
def shop(
    examples: Any,
    data: Any,  # published
    spark: SparkSession,
    bootstrap: str,
    registry_url: str,
    tmp_path: Path,
) -> Any:
    module = importlib.import_module("examples.shop")
    topics = examples.Topics("shop-orders", "shop-payments")
    return module.Shop(spark, bootstrap, registry_url, tmp_path, topics)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("windowed_revenue", "revenue"),
        ("paid_orders", "paid"),
        ("quarantined", "quarantined"),
        ("customer_table", "customers"),
    ],
)
def test_an_example_has_the_results_of_plain_python(
    name: str, result: str, shop: Any, data: Any, examples: Any
) -> None:
    example = importlib.import_module(f"examples.{name}")
    query = example.start(shop)
    assert query.awaitTermination(600)
    expected = getattr(examples.expected(data), result)
    assert expected
    assert example.read_results(shop) == expected


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_declared_pipelines_have_the_results_of_plain_python(
    examples: Any, tmp_path: Path
) -> None:
    data = examples.generate(seed=6, orders=300)
    project = tmp_path / "project"
    shutil.copytree(ROOT / "examples" / "pipelines", project)
    definition = project / "spark-pipeline.yml"
    text = definition.read_text()
    storage = f"file://{tmp_path}/storage"
    definition.write_text(text.replace("file:///tmp/penstock-pipelines", storage))
    with EmbeddedBroker() as broker, EmbeddedRegistry(broker.bootstrap) as service:
        examples.publish(data, broker.bootstrap, service.url, partitions=2)
        run_pipelines(project, broker.bootstrap, service.url)
    tables = {
        folder.name: ds.dataset(folder, format="parquet").to_table().to_pylist()
        for folder in (project / "spark-warehouse").iterdir()
    }
    expected = examples.expected(data)
    assert {
        (round(row["window_start"].timestamp() * 1000), row["country"]): (
            row["orders"],
            row["cents"],
        )
        for row in tables["windowed_revenue"]
    } == expected.revenue
    assert {
        row["order_id"]: (row["payment_id"], row["wait_ms"]) for row in tables["paid_orders"]
    } == expected.paid
    assert Counter(row["reason"] for row in tables["quarantine"]) == expected.quarantined
    assert {
        row["customer"]: (row["orders"], row["cents"]) for row in tables["customers"]
    } == expected.customers


def run_pipelines(project: Path, bootstrap: str, registry_url: str) -> None:
    done = subprocess.run(
        [str(Path(sys.executable).with_name("spark-pipelines")), "run", "--remote", "local[2]"],
        cwd=project,
        env={
            **os.environ,
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "PYSPARK_SUBMIT_ARGS": "--driver-memory 1g pyspark-shell",
            "PENSTOCK_BOOTSTRAP": bootstrap,
            "PENSTOCK_REGISTRY": registry_url,
            "TZ": "UTC",
        },
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
