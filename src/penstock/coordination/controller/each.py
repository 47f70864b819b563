"""Commands that name several things: each is decided on its own, and all events are one batch."""

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

from penstock.coordination.controller.events import Event
from penstock.errors import Refused
from penstock.machine import CallerId, Outcome, Reply, Step

ItemT = TypeVar("ItemT")


class Accepted(NamedTuple):
    """What follows for one thing that was not refused."""

    events: tuple[Event, ...] = ()
    result: object = None
    story: tuple[Step, ...] = ()


def decide_each(
    caller: CallerId,
    items: Iterable[ItemT],
    decide: Callable[[ItemT], Accepted],
    *,
    validate_only: bool = False,
) -> Outcome[Event]:
    """Reply with the result or the Refused of each, in order."""
    events: list[Event] = []
    story: list[Step] = []
    results: list[object] = []
    for item in items:
        try:
            accepted = decide(item)
        except Refused as refusal:
            results.append(refusal.without_frames())
            continue
        events += accepted.events
        story += accepted.story
        results.append(accepted.result)
    if validate_only:
        return Outcome(replies=(Reply(caller, results),))
    return Outcome(events=tuple(events), replies=(Reply(caller, results),), story=tuple(story))
