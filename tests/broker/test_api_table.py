"""The table of handlers has what clients need, and its page is up to date."""

from pathlib import Path

import pytest

from penstock.broker.apis_page import apis_page
from penstock.broker.handlers import API_TABLE
from penstock.protocol.api import known_versions

PAGE = Path(__file__).parents[2] / "docs" / "apis.md"

# What eight clients really send to Apache Kafka 4.3 (least and most seen), by API key: the tiers
# without which clients, tools and ordinary applications do not work.
SENT_BY_CLIENTS = {
    0: (7, 13),
    1: (11, 18),
    2: (2, 11),
    3: (4, 13),
    8: (3, 10),
    9: (3, 10),
    10: (1, 6),
    11: (5, 9),
    12: (1, 4),
    13: (1, 5),
    14: (3, 5),
    15: (2, 6),
    16: (1, 5),
    18: (0, 4),
    19: (3, 7),
    20: (1, 6),
    21: (2, 2),
    22: (0, 5),
    23: (4, 4),
    24: (0, 3),
    25: (0, 3),
    26: (0, 5),
    27: (2, 2),
    28: (0, 5),
    29: (1, 3),
    30: (1, 3),
    31: (1, 3),
    32: (1, 4),
    33: (1, 1),
    35: (5, 5),
    37: (1, 3),
    42: (1, 2),
    43: (2, 2),
    44: (1, 1),
    47: (0, 0),
    60: (2, 2),
    61: (0, 0),
    65: (0, 0),
    66: (2, 2),
    68: (1, 1),
    69: (0, 1),
    75: (0, 0),
}


@pytest.mark.parametrize("api_key", SENT_BY_CLIENTS)
def test_what_clients_send_is_served(api_key: int) -> None:
    least, most = SENT_BY_CLIENTS[api_key]
    assert API_TABLE.find(api_key, least), f"version {least}"
    assert API_TABLE.find(api_key, most), f"version {most}"


@pytest.mark.parametrize("row", API_TABLE.rows, ids=lambda row: row.api.name.lower())
def test_every_version_served_has_a_schema(row: object) -> None:
    handler = next(other for other in API_TABLE.rows if other is row)
    least, most = handler.versions
    known = known_versions(handler.api)
    assert least in known
    assert most in known


def test_the_page_of_apis_is_what_the_table_says(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--rewrite"):
        PAGE.write_text(apis_page(API_TABLE))
    assert PAGE.read_text() == apis_page(API_TABLE)
