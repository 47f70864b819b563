"""The step of a group's story that says why a member was removed."""

from typing import Final

from penstock.machine import Step

LEFT: Final = "it left"


def removal_step(group_id: str, member_id: str, reason: str) -> Step:
    """A member is removed. It is logged unless the member left at its own request."""
    values = (member_id, reason)
    return Step(group_id, "member {} is removed: {}", values, is_logged=reason != LEFT)
