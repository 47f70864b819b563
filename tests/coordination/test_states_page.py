"""The page of states is what the tables say; a move that is not in them fails."""

from enum import Enum
from pathlib import Path

import pytest

from penstock.coordination.groups.group_moves import CLASSIC_MOVES, ClassicState
from penstock.coordination.states_page import states_page
from penstock.coordination.transactions.transaction_moves import TRANSACTION_MOVES, TransactionState
from penstock.machine import Move, Transitions

PAGE = Path(__file__).parents[2] / "docs" / "states.md"


class Light(Enum):
    RED = 1
    GREEN = 2


def test_the_page_of_states_is_made_from_the_tables(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--rewrite"):
        PAGE.write_text(states_page())
    assert PAGE.read_text() == states_page()


def test_a_move_that_is_not_listed_is_an_error() -> None:
    moves = Transitions("light", Move(Light.RED, Light.GREEN, "after a while"))
    moves.check(Light.RED, Light.GREEN)
    with pytest.raises(AssertionError, match="light: illegal move from GREEN to RED"):
        moves.check(Light.GREEN, Light.RED)
    assert moves.diagram() == "RED -> GREEN  after a while"


def test_no_move_leaves_a_deleted_group() -> None:
    for state in ClassicState:
        with pytest.raises(AssertionError):
            CLASSIC_MOVES.check(ClassicState.DEAD, state)


def test_an_outcome_that_is_decided_is_never_changed() -> None:
    with pytest.raises(AssertionError):
        TRANSACTION_MOVES.check(TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
    with pytest.raises(AssertionError):
        TRANSACTION_MOVES.check(TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_ABORT)
