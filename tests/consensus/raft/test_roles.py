"""The table of roles is what the documentation shows."""

from pathlib import Path

from penstock.consensus.raft.roles import ROLE_MOVES

PAGE = Path(__file__).parents[3] / "docs/decisions/0010-raft-in-kafkas-form.md"


def test_the_decision_page_shows_every_move_between_roles() -> None:
    assert f"```text\n{ROLE_MOVES.diagram()}\n```" in PAGE.read_text()
