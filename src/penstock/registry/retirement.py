"""Whether a version may be deleted, or why not: from what is stored and which clients were seen.

A soft deleted version can be read by its id, so events with that id can still be read; after a
permanent delete they cannot. Which events a topic still holds is not known here.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from penstock.model import Millis
from penstock.registry.store.events import Version
from penstock.registry.store.state import RegistryState
from penstock.registry.subject_names import Subject, context_of
from penstock.registry.usage import SchemaUsage, SchemaUse, UseCount

DAY_MS: Final = 86_400_000
_SPANS: Final = ((DAY_MS, "days"), (3_600_000, "hours"), (60_000, "minutes"), (1000, "seconds"))


class VersionRetirement(NamedTuple):
    """A version, and the reasons not to delete it."""

    version: Version
    reasons: tuple[str, ...]

    @property
    def is_safe(self) -> bool:
        """Whether there are none."""
        return not self.reasons


def assess(
    state: RegistryState, subject: Subject, usage: SchemaUsage, now: Millis, *, quiet_ms: int
) -> list[VersionRetirement]:
    """All stored versions of a subject. A use counts for `quiet_ms` after it was last seen."""
    versions = state.stored(subject)
    ids = frozenset(version.id for version in versions)
    recent = [
        (use, seen)
        for use, seen in usage.of(context_of(subject), ids)
        if seen.last_at > now - quiet_ms
    ]
    unknown = tuple(_unknown(usage, now, quiet_ms))
    return [
        VersionRetirement(
            version, (*_dependents(state, version), *_users(version, recent, now), *unknown)
        )
        for version in versions
    ]


def _dependents(state: RegistryState, version: Version) -> Iterator[str]:
    if state.latest(version.subject) == version:
        yield "it is the latest version: producers and checks use it"
    for other in state.referrers_of(version.key, deleted=version.deleted):
        yield f"{other.subject} version {other.number} refers to it"


def _users(
    version: Version, recent: Sequence[tuple[SchemaUse, UseCount]], now: Millis
) -> Iterator[str]:
    for use, seen in recent:
        if use.id == version.id:
            yield f"{use.client} ({use.role}) used it {_span(now - seen.last_at)} ago"


def _unknown(usage: SchemaUsage, now: Millis, quiet_ms: int) -> Iterator[str]:
    known_ms = now - usage.since
    if known_ms < quiet_ms:
        wait_ms = quiet_ms - known_ms
        yield f"uses are known for {_span(known_ms)} only: check again in {_span(wait_ms)}"
    if usage.evicted:
        yield f"{usage.evicted} uses are not known: there were too many to keep"


def _span(ms: int) -> str:
    for unit_ms, unit in _SPANS:
        if ms >= 2 * unit_ms or unit == "seconds":
            return f"{max(ms, 0) // unit_ms} {unit}"
    raise AssertionError("seconds are the last unit")
