"""The commands of the registry. Schemas were examined before; see `examination`."""

from typing import NamedTuple, TypeAlias

from penstock.machine import NO_CALLER, CallerId
from penstock.registry.store.events import Mode, SubjectConfig
from penstock.registry.store.examination import Examination, SchemaProposal
from penstock.registry.subject_names import Subject


class FindSchema(NamedTuple):
    """Reply: the version of the subject that is this schema, None, or Outdated."""

    proposal: SchemaProposal
    examination: Examination
    deleted: bool = False  # among the soft deleted versions too
    caller: CallerId = NO_CALLER


class Register(NamedTuple):
    """Make a schema the next version of a subject, unless it is one already.

    Reply: the version, or Outdated.
    """

    proposal: SchemaProposal
    examination: Examination
    caller: CallerId = NO_CALLER


class DeleteSubject(NamedTuple):
    """Soft delete all versions, or remove those that are. Reply: their numbers."""

    subject: Subject
    permanent: bool = False
    caller: CallerId = NO_CALLER


class DeleteVersion(NamedTuple):
    """Soft delete one version, or remove it if it is; -1 is the latest. Reply: its number."""

    subject: Subject
    number: int
    permanent: bool = False
    caller: CallerId = NO_CALLER


class SetConfig(NamedTuple):
    """Change the members that are named; a value of None clears. Reply: the settings after it."""

    scope: str | None
    config: SubjectConfig
    members: frozenset[str]
    caller: CallerId = NO_CALLER


class RemoveConfig(NamedTuple):
    """Remove all settings of a scope. Reply: the settings before it."""

    scope: str | None
    caller: CallerId = NO_CALLER


class SetMode(NamedTuple):
    """None clears. Reply: the mode."""

    scope: str | None
    mode: Mode | None
    force: bool = False
    caller: CallerId = NO_CALLER


class RemoveMode(NamedTuple):
    """Remove the mode of a scope; `recursive`: of all scopes inside it too. Reply: the mode."""

    scope: str | None
    recursive: bool = False
    caller: CallerId = NO_CALLER


class MarkLog(NamedTuple):
    """A new primary writes its first record. Reply: None."""

    caller: CallerId = NO_CALLER


Command: TypeAlias = (
    FindSchema
    | Register
    | DeleteSubject
    | DeleteVersion
    | SetConfig
    | RemoveConfig
    | SetMode
    | RemoveMode
    | MarkLog
)
