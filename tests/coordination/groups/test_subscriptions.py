"""Errors in subscription patterns."""

import pytest

from penstock.coordination.groups.subscriptions import check_regex
from penstock.errors import ErrorCode, Refused


def test_a_refused_pattern_has_a_readable_reason() -> None:
    with pytest.raises(Refused) as refused:
        check_regex("größe-(")
    assert refused.value.code == ErrorCode.invalid_regular_expression
    assert refused.value.message.endswith("RE2's syntax: missing ): größe-(")
