"""The store as a machine: `decide` holds the rules, `apply` changes the state."""

from typing import assert_never

from penstock.machine import Outcome
from penstock.model import Millis
from penstock.registry.store.commands import (
    Command,
    DeleteSubject,
    DeleteVersion,
    Mark,
    Register,
    RemoveConfig,
    RemoveMode,
    SetConfig,
    SetMode,
)
from penstock.registry.store.decide_delete import (
    decide_delete_subject,
    decide_delete_version,
    unwitnessed_ids,
)
from penstock.registry.store.decide_register import decide_register
from penstock.registry.store.decide_settings import (
    decide_config,
    decide_mode,
    decide_remove_config,
    decide_remove_mode,
)
from penstock.registry.store.events import Event, Marked
from penstock.registry.store.outcome import reply
from penstock.registry.store.state import Store


def decide(store: Store, command: Command, now: Millis) -> Outcome[Event]:
    """What must be written, and the answer once it is. May raise Declined; changes nothing."""
    match command:
        case Register():
            return decide_register(store, command, now)
        case DeleteSubject():
            return decide_delete_subject(store, command)
        case DeleteVersion():
            return decide_delete_version(store, command)
        case SetConfig():
            return decide_config(store, command)
        case RemoveConfig():
            return decide_remove_config(store, command)
        case SetMode():
            return decide_mode(store, command)
        case RemoveMode():
            return decide_remove_mode(store, command)
        case Mark():
            return Outcome(events=(Marked(unwitnessed_ids(store)),), replies=(reply(None),))
        case _:
            assert_never(command)
