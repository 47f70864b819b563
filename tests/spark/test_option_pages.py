"""The pages show every option and column as the code has it."""

from pathlib import Path

from penstock.spark.option_rows import SINK_OPTIONS, SOURCE_OPTIONS
from penstock.spark.source_columns import RECORD_COLUMNS

PAGES = Path(__file__).parents[2] / "docs" / "how-to"


def rows_under(page: str, heading: str) -> list[str]:
    """The rows of the table that follows a heading."""
    _, _, rest = (PAGES / page).read_text().partition(f"{heading}\n")
    section, _, _ = rest.partition("\n## ")
    return [line for line in section.splitlines() if line.startswith("| `")]


def test_the_page_of_the_source_has_every_option() -> None:
    rows = [f"| `{option.name}` | {option.default} | {option.doc} |" for option in SOURCE_OPTIONS]
    assert rows_under("spark-source.md", "## Every option") == rows


def test_the_page_of_the_sink_has_every_option() -> None:
    rows = [
        f"| `{option.name}` | {f'`{option.argument}`' if option.argument else ''} |"
        f" {option.default} | {option.doc} |"
        for option in SINK_OPTIONS
    ]
    assert rows_under("spark-sink.md", "## What goes where") == rows


def test_the_page_of_the_source_has_every_column() -> None:
    page = (PAGES / "spark-source.md").read_text()
    assert [name for name in RECORD_COLUMNS if f"`{name}`" not in page] == []
