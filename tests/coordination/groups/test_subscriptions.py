"""What a client is told of the pattern it subscribes by."""

import pytest

from penstock.coordination.groups.subscriptions import check_regex
from penstock.errors import ErrorCode, Refused


def test_a_pattern_that_is_refused_is_told_in_words() -> None:
    with pytest.raises(Refused) as refused:
        check_regex("größe-(")
    assert refused.value.code == ErrorCode.invalid_regular_expression
    assert refused.value.message.endswith("RE2's syntax: missing ): größe-(")
