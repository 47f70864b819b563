from pathlib import Path

from penstock.spark.read_option_rows import OPTIONS
from penstock.spark.spark_columns import OWN_TYPES

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "spark-source.md"


def test_the_page_has_every_option_as_the_code_has_it() -> None:
    _, _, table = PAGE.read_text().partition("## Every option\n")
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    assert rows == [f"| `{one.name}` | {one.default} | {one.doc} |" for one in OPTIONS]


def test_the_page_has_every_column() -> None:
    page = PAGE.read_text()
    assert [name for name in OWN_TYPES if f"`{name}`" not in page] == []
