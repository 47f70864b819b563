"""What can be asked of the store. A command carries what was found out about schemas beforehand."""

from typing import NamedTuple, TypeAlias

from penstock.gate.reader_breaks import ReaderBreak
from penstock.registry.store.events import Config, Contents, Mode
from penstock.registry.subject_names import Subject
from penstock.schemas.compatibility import CompatibilityResult


class Register(NamedTuple):
    """Make a schema the next version of a subject, unless it is there already."""

    subject: Subject
    contents: Contents  # text canonical, references with numbers; metadata and rules as given
    id: int | None = None  # given only by an import
    version: int = 0  # 0: whichever is next; -1: only if it is the latest already
    is_numbered: bool = False  # its number goes into its metadata, as if it had been given
    equivalents: frozenset[int] = frozenset()  # live versions that say the same in other words
    verdict: CompatibilityResult = CompatibilityResult()
    harms: tuple[ReaderBreak, ...] = ()  # to registered readers


class DeleteSubject(NamedTuple):
    """Hide all versions, or remove those that are hidden."""

    subject: Subject
    permanent: bool = False


class DeleteVersion(NamedTuple):
    """Hide one version, or remove it if it is hidden; -1 is the latest."""

    subject: Subject
    number: int
    permanent: bool = False


class SetConfig(NamedTuple):
    """Change the members that are named; a value of None clears."""

    scope: str | None
    config: Config
    members: frozenset[str]


class RemoveConfig(NamedTuple):
    """Leave all settings of a scope to the one above."""

    scope: str | None


class SetMode(NamedTuple):
    """None clears."""

    scope: str | None
    mode: Mode | None
    force: bool = False


class RemoveMode(NamedTuple):
    """Leave the mode to the scope above; with `recursive`, in all scopes inside as well."""

    scope: str | None
    recursive: bool = False


class Mark(NamedTuple):
    """A new primary makes itself known in the log."""


Command: TypeAlias = (
    Register
    | DeleteSubject
    | DeleteVersion
    | SetConfig
    | RemoveConfig
    | SetMode
    | RemoveMode
    | Mark
)
