"""docs/states.md: the states of groups and transactions, made from the tables that are asserted."""

from typing import Any, Final

from penstock.coordination.groups.group_moves import (
    CLASSIC_MOVES,
    CONSUMER_MOVES,
    MEMBER_MOVES,
)
from penstock.coordination.transactions.transaction_moves import TRANSACTION_MOVES
from penstock.machine import Transitions

_TABLES: Final[tuple[tuple[str, Transitions[Any]], ...]] = (
    ("Classic groups", CLASSIC_MOVES),
    ("Groups of the consumer protocol", CONSUMER_MOVES),
    ("Members of the consumer protocol", MEMBER_MOVES),
    ("Transactions", TRANSACTION_MOVES),
)


def states_page() -> str:
    """The page as Markdown: a diagram per kind of thing."""
    lines = [
        "# States",
        "",
        "The states of groups, their members and transactions, and every legal move between them.",
        "Made from the tables that the coordinators assert on each move; `pytest --rewrite` writes",
        "this page. A state that no move leaves is final: the thing is deleted.",
    ]
    for title, transitions in _TABLES:
        lines += ["", f"## {title}", "", "```text", transitions.diagram(), "```"]
    return "\n".join(lines) + "\n"
