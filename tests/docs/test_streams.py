"""The commands of the page on streams run against a real platform."""

from collections.abc import Callable
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "streams.md"


@pytest.mark.timeout(300)
def test_every_command_of_the_page_on_streams_has_the_output_on_the_page(
    follow: Callable[[str], int],
) -> None:
    assert follow(PAGE.read_text()) >= 4
