"""docs/configuration.md says what the rows say."""

from pathlib import Path

import pytest

from penstock.config.broker_keys import BROKER_KEYS
from penstock.config.page import configuration_page
from penstock.config.topic_keys import TOPIC_KEYS

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_the_page_of_settings_is_current(request: pytest.FixtureRequest) -> None:
    page = configuration_page()
    if request.config.getoption("--rewrite"):
        PAGE.write_text(page)
    assert PAGE.read_text() == page, "run: pytest tests/config --rewrite"


def test_the_page_has_a_row_for_every_key() -> None:
    page = configuration_page()
    for name in (*TOPIC_KEYS, *BROKER_KEYS):
        assert f"\n| `{name}` |" in page
