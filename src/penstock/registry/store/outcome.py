"""How the store answers: one caller at a time, so a reply needs no address."""

from penstock.machine import CallerId, Outcome, Reply
from penstock.registry.store.events import Event

_ASKER = CallerId(0)  # commands are decided one by one: there is one caller only


def reply(body: object) -> Reply:
    """The reply to who asked."""
    return Reply(_ASKER, body)


def answer(body: object) -> Outcome[Event]:
    """Nothing changes; this is the answer."""
    return Outcome(replies=(reply(body),))
