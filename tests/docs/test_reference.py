"""docs/cli.md is generated from the commands."""

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.commands_page import commands_page
from penstock.cli.main import COMMANDS

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def test_the_page_of_commands_is_current(request: pytest.FixtureRequest) -> None:
    page = commands_page()
    if request.config.getoption("--rewrite"):
        PAGE.write_text(page)
    assert PAGE.read_text() == page, "run: pytest tests/docs --rewrite"


def test_the_page_has_every_command_and_its_options() -> None:
    page = commands_page()
    for name in COMMANDS:
        assert f"\n## `penstock {name}`\n" in page
    for words in ("`--ephemeral`", "`--log TEXT`", "`--kafka-port N`", "`./penstock-data`"):
        assert words in page
    assert "\n### `penstock topic create`\n" in page


def test_the_page_does_not_depend_on_the_terminal() -> None:
    code = "from penstock.cli.commands_page import commands_page; print(commands_page(), end='')"
    narrow = subprocess.run(
        [sys.executable, "-c", code], env={"COLUMNS": "40"}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert narrow.stdout == commands_page()
