"""The page about the console: its filters are valid, and its pictures exist."""

import re
from pathlib import Path

from penstock.console.filter.parse_filter import parse_filter

PAGE = Path("docs/how-to/console.md")


def test_the_filters_of_the_page_are_valid() -> None:
    (block,) = re.findall(r"```text\n(.*?)```", PAGE.read_text(), re.DOTALL)
    parsed = [parse_filter(each) for each in block.splitlines()]
    assert len(parsed) == 4


def test_the_pictures_of_the_page_exist() -> None:
    pictures = re.findall(r"!\[[^]]+\]\(([^)]+)\)", PAGE.read_text())
    assert pictures
    assert [name for name in pictures if not (PAGE.parent / name).is_file()] == []
