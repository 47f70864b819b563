"""The examples find what plain Python works out from the same story."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def examples() -> Iterator[Any]:
    """The package, which is not installed but lies at the root of the repository."""
    sys.path.insert(0, str(ROOT))
    yield importlib.import_module("examples.orders")
    sys.path.remove(str(ROOT))


@pytest.fixture(scope="module")
def story(examples: Any, bootstrap: str, registry_url: str) -> Any:
    story = examples.tell(seed=5, orders=400)
    topics = examples.Topics("shop-orders", "shop-payments")
    examples.publish(story, bootstrap, registry_url, topics=topics, partitions=2)
    return story


@pytest.fixture
def shop(
    examples: Any,
    story: Any,
    spark: SparkSession,
    bootstrap: str,
    registry_url: str,
    tmp_path: Path,
) -> Any:
    module = importlib.import_module("examples.shop")
    topics = examples.Topics("shop-orders", "shop-payments")
    return module.Shop(spark, bootstrap, registry_url, tmp_path, topics)


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("windowed_revenue", "revenue"),
        pytest.param("paid_orders", "paid", marks=pytest.mark.slow),
        pytest.param("quarantined", "quarantined", marks=pytest.mark.slow),
        pytest.param("customer_table", "customers", marks=pytest.mark.slow),
    ],
)
def test_an_example_finds_what_plain_python_does(
    name: str, result: str, shop: Any, story: Any, examples: Any
) -> None:
    example = importlib.import_module(f"examples.{name}")
    query = example.start(shop)
    assert query.awaitTermination(100)
    wanted = getattr(examples.expected(story), result)
    assert wanted
    assert example.found(shop) == wanted
