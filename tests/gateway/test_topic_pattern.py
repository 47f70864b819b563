"""Patterns of topic names in subscriptions."""

import pytest

from penstock.gateway.errors import GatewayError
from penstock.gateway.groups.topic_pattern import TopicPattern
from penstock.link.topic_admin import TopicDescription


def topics(*names: str) -> list[TopicDescription]:
    return [TopicDescription(name, name.startswith("__"), ()) for name in names]


def test_a_pattern_matches_whole_names_and_no_internal_topics() -> None:
    known = topics("orders-b", "orders-a", "orders", "my-orders-a", "__orders-a")
    assert TopicPattern("orders-.*").matching(known) == ("orders-a", "orders-b")
    assert TopicPattern(".*").matching(known) == ("my-orders-a", "orders", "orders-a", "orders-b")


@pytest.mark.parametrize("text", ["(", "[z-a]", r"(a)\1", "a(?=b)"])
def test_what_is_not_in_the_syntax_of_re2_is_refused(text: str) -> None:
    with pytest.raises(GatewayError, match="RE2") as refused:
        TopicPattern(text)
    assert refused.value.status == 400


def test_no_pattern_takes_long() -> None:
    """With a backtracking matcher this one would not end."""
    assert TopicPattern("(a*)*(a*)*(a*)*b").matching(topics("a" * 240)) == ()
