"""How commands write results: JSON on one line, or columns of text. Loads no Kafka client."""

import json
import sys

import typer


def show_json(document: object) -> None:
    """Print one JSON document on one line."""
    sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")


def show_table(titles: list[str], rows: list[list[str]]) -> None:
    """Print columns as narrow as they can be, for eyes and for `awk`."""
    widths = [max(len(row[index]) for row in [titles, *rows]) for index in range(len(titles))]
    for row in [titles, *rows]:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        typer.echo("  ".join(cells).rstrip())


def cell(value: object) -> str:
    """A value in a table; a list has commas."""
    if value is None:
        return "-"
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def counted(number: int, noun: str) -> str:
    """A number with its noun, such as `1 message` and `2 messages`."""
    return f"{number} {noun if number == 1 else noun + 's'}"
