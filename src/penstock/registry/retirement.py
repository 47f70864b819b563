"""May a version be deleted? Yes, or the reasons why not, from what is stored and who was seen.

What is softly deleted stays readable by its id, so events that carry it can still be read; after a
permanent delete they cannot. Which events a topic still holds is not known here.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from penstock.model import Millis
from penstock.registry.store.events import Version
from penstock.registry.store.state import Store
from penstock.registry.subject_names import Subject, context_of
from penstock.registry.usage import Seen, Usage, Use

DAY_MS: Final = 86_400_000
_SPANS: Final = ((DAY_MS, "days"), (3_600_000, "hours"), (60_000, "minutes"), (1000, "seconds"))


class Judged(NamedTuple):
    """A version, and what speaks against deleting it."""

    version: Version
    reasons: tuple[str, ...]

    @property
    def is_safe(self) -> bool:
        """Whether nothing does."""
        return not self.reasons


def judge(
    store: Store, subject: Subject, usage: Usage, now: Millis, *, quiet_ms: int
) -> list[Judged]:
    """All stored versions of a subject. A use counts for `quiet_ms` after it was last seen."""
    versions = store.stored(subject)
    ids = frozenset(one.id for one in versions)
    recent = [
        (use, seen)
        for use, seen in usage.of(context_of(subject), ids)
        if seen.last_at > now - quiet_ms
    ]
    unknown = tuple(_unknown(usage, now, quiet_ms))
    return [
        Judged(one, (*_standing(store, one), *_used(one, recent, now), *unknown))
        for one in versions
    ]


def _standing(store: Store, version: Version) -> Iterator[str]:
    if store.latest(version.subject) == version:
        yield "it is the latest version: producers and checks go by it"
    for other in store.referrers_of(version.key, deleted=version.deleted):
        yield f"{other.subject} version {other.number} builds on it"


def _used(version: Version, recent: Sequence[tuple[Use, Seen]], now: Millis) -> Iterator[str]:
    for use, seen in recent:
        if use.id == version.id:
            yield f"{use.client} ({use.role}) used it {_span(now - seen.last_at)} ago"


def _unknown(usage: Usage, now: Millis, quiet_ms: int) -> Iterator[str]:
    known_ms = now - usage.since
    if known_ms < quiet_ms:
        wait_ms = quiet_ms - known_ms
        yield f"uses are known for {_span(known_ms)} only: ask again in {_span(wait_ms)}"
    if usage.forgotten:
        yield f"{usage.forgotten} uses were forgotten: there were too many to keep"


def _span(ms: int) -> str:
    for unit_ms, unit in _SPANS:
        if ms >= 2 * unit_ms or unit == "seconds":
            return f"{max(ms, 0) // unit_ms} {unit}"
    raise AssertionError("seconds take all that is left")
