"""Documentation and examples import only from the facades, as users should."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FACADES = {"penstock", "penstock.client", "penstock.spark", "penstock.testing"}
PYTHON_BLOCK = re.compile(r"^```python[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
IMPORT = re.compile(r"^\s*(?:from (penstock[\w.]*) import|import (penstock[\w.]*))", re.MULTILINE)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))


def imported(text: str) -> Iterator[str]:
    for match in IMPORT.finditer(text):
        yield match[1] or match[2]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_pages_import_only_from_facades(page: Path) -> None:
    assert not set(imported(page.read_text())) - FACADES


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_examples_import_only_from_facades(path: Path) -> None:
    modules = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            modules.add(node.module)
        elif isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
    ours = {module for module in modules if module.partition(".")[0] == "penstock"}
    assert not ours - FACADES


def test_python_blocks_of_pages_can_be_parsed() -> None:
    """So that no import hides behind a mistake."""
    for page in PAGES:
        for block in PYTHON_BLOCK.findall(page.read_text()):
            ast.parse(block)
