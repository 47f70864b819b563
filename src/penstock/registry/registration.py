"""Proposed schemas: registered, looked up, checked for compatibility.

Between the machine, which decides on the state, and the examiner, which reads schemas.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from penstock.registry.errors import DeclinedError, invalid_schema, timed_out
from penstock.registry.examine import invalid
from penstock.registry.registry_node import RegistryNode
from penstock.registry.store.commands import FindSchema, Register
from penstock.registry.store.events import Version
from penstock.registry.store.examination import (
    Examination,
    Outdated,
    SchemaProposal,
    Snapshot,
    day_of,
    full_schema,
    level_of,
    snapshot_to_check,
    snapshot_to_find,
    snapshot_to_register,
)
from penstock.registry.store.state import RegistryState
from penstock.schemas.compatibility import incompatibility_messages
from penstock.schemas.model import InvalidSchemaError
from penstock.schemas.reader_break import reader_break_messages

EXAMINED_MAX: Final = 20  # times in one request: the subject changed during every one of them


class CompatibilityReport(NamedTuple):
    """The result of a compatibility check."""

    is_compatible: bool
    messages: list[str]


async def register(node: RegistryNode, proposal: SchemaProposal) -> Version:
    """The version that is this schema now. Any node finds one that is registered already."""
    version = await _try_to_register(node, proposal, thorough=False)
    if version is not None:
        return version
    async with node.turns.turn(proposal.subject):
        for _ in range(EXAMINED_MAX):
            version = await _try_to_register(node, proposal, thorough=True)
            if version is not None:
                return version
    raise timed_out("the subject kept changing while the schema was checked; try again")


async def _try_to_register(
    node: RegistryNode, proposal: SchemaProposal, *, thorough: bool
) -> Version | None:
    """None: the examination was not enough, or is outdated."""
    today = day_of(node.clock())
    is_primary = node.role.is_primary

    def take(state: RegistryState) -> Snapshot:
        if is_primary or proposal.id is not None:
            return snapshot_to_register(state, proposal, today)
        return snapshot_to_find(state, proposal)  # the primary checks what is new

    examination = await _examine(node, proposal, take, thorough=thorough)
    if proposal.id is None:
        known = node.query(FindSchema(proposal, examination))
        if isinstance(known, Version) and proposal.version in (0, known.number):
            return known
        if isinstance(known, Outdated):
            return None
    reply = await node.submit(Register(proposal, examination))
    assert isinstance(reply, Version | Outdated)
    return None if isinstance(reply, Outdated) else reply


async def find(
    node: RegistryNode, proposal: SchemaProposal, *, deleted: bool = False
) -> Version | None:
    """The version of the subject that is this schema, if there is one."""
    for thorough in (False, True):
        examination = await _examine(
            node,
            proposal,
            lambda state: snapshot_to_find(state, proposal, deleted=deleted),
            thorough=thorough,
        )
        known = node.query(FindSchema(proposal, examination, deleted))
        if not isinstance(known, Outdated):
            assert known is None or isinstance(known, Version)
            return known
    raise AssertionError("a thorough examination is enough to find a schema")


async def check_all(node: RegistryNode, proposal: SchemaProposal) -> CompatibilityReport:
    """As registration would check it."""
    return await _check(node, proposal, None)


async def check_version(
    node: RegistryNode, proposal: SchemaProposal, number: int
) -> CompatibilityReport:
    """Against one version; against the latest of a subject without any, all are compatible.

    Readers are checked where the question is what may follow the latest version.
    """
    if number == -1 and not node.state.has_subject(proposal.subject):
        await _examine(
            node, proposal, lambda state: snapshot_to_find(state, proposal), thorough=False
        )
        return CompatibilityReport(True, [])
    return await _check(node, proposal, number)


async def _check(
    node: RegistryNode, proposal: SchemaProposal, number: int | None
) -> CompatibilityReport:
    today, subject = day_of(node.clock()), proposal.subject

    def take(state: RegistryState) -> Snapshot:
        compared = state.live(subject) if number is None else [state.version(subject, number)]
        with_readers = number in (None, -1)
        return snapshot_to_check(state, proposal, compared, today, with_readers=with_readers)

    if number is not None:
        node.state.version(subject, number)  # declines before the schema is read
    level = level_of(node.state.config(subject))
    examination = await _examine(node, proposal, take, thorough=True)
    compatibility, breaks = examination.compatibility, examination.reader_breaks
    assert compatibility is not None
    messages = [*incompatibility_messages(compatibility, level), *reader_break_messages(breaks)]
    return CompatibilityReport(compatibility.is_compatible and not breaks, messages)


async def _examine(
    node: RegistryNode,
    proposal: SchemaProposal,
    take: Callable[[RegistryState], Snapshot],
    *,
    thorough: bool,
) -> Examination:
    if not proposal.source.text.strip():
        raise invalid_schema("Empty schema")
    try:
        snapshot = take(node.state)
    except InvalidSchemaError as error:
        raise invalid(proposal.source, str(error)) from None
    return await node.examiner.examine(snapshot, node.state.changes, thorough=thorough)


async def in_form(node: RegistryNode, version: Version, form: str) -> str:
    """The text of a version in the requested form; unknown forms are ignored."""
    if not form:
        return version.contents.source.text
    try:
        return await node.examiner.formatted(full_schema(node.state, version), form)
    except DeclinedError:  # written by another registry and not readable here: served as it is
        return version.contents.source.text
