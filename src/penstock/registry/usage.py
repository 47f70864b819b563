"""Who uses which schema id, and when last: seen as clients register schemas and ask for them.

A client says who it is in the header `Penstock-Client: name`, and may add `; role=producer` or
`; role=consumer`. One that says nothing is known by its user agent, and taken for a producer when
it registers and for a consumer when it reads. What came first is forgotten when there are too many;
forgetting is noted, because then "nobody uses it" is no longer the truth.
"""

from collections import OrderedDict
from typing import Final, NamedTuple

from penstock.model import Millis

USES_MAX: Final = 50_000
CLIENT_CHARACTERS_MAX: Final = 200
PRODUCER: Final = "producer"
CONSUMER: Final = "consumer"
ROLES: Final = (PRODUCER, CONSUMER)


class Use(NamedTuple):
    """One client's use of one id."""

    context: str
    id: int
    client: str
    role: str


class Seen(NamedTuple):
    """When, and how often."""

    last_at: Millis
    times: int


def identify(header: str, agent: str, usual_role: str) -> tuple[str, str]:
    """The client's name and role, from what it says and what it does."""
    name, _, said = header.partition(";")
    role = said.strip().removeprefix("role=").strip()
    shown = (name.strip() or agent.strip() or "unknown")[:CLIENT_CHARACTERS_MAX]
    return shown, role if role in ROLES else usual_role


class Usage:
    """Of all nodes, as far as they have told. Bounded; the oldest go first."""

    def __init__(self, since: Millis, uses_max: int = USES_MAX) -> None:
        self.since = since  # nothing is known of before
        self._uses: OrderedDict[Use, Seen] = OrderedDict()
        self._untold: set[Use] = set()  # noted here, and not told to others yet
        self._uses_max = uses_max
        self.forgotten = 0

    def note(self, use: Use, now: Millis) -> None:
        """A client asked for an id, or said that it uses it."""
        seen = self._uses.pop(use, None)
        self._keep(use, Seen(now, 1 if seen is None else seen.times + 1))
        self._untold.add(use)

    def merge(self, use: Use, told: Seen) -> None:
        """What another node saw, or this one before it was started anew."""
        seen = self._uses.pop(use, Seen(Millis(0), 0))
        self._keep(use, Seen(max(seen.last_at, told.last_at), max(seen.times, told.times)))

    def _keep(self, use: Use, seen: Seen) -> None:
        self._uses[use] = seen
        if len(self._uses) > self._uses_max:
            gone, _ = self._uses.popitem(last=False)
            self._untold.discard(gone)
            self.forgotten += 1

    def take_untold(self) -> list[tuple[Use, Seen]]:
        """What others do not know yet; the next call gives only what came since."""
        untold, self._untold = self._untold, set()
        return [(use, self._uses[use]) for use in untold]

    def of(self, context: str, ids: frozenset[int]) -> list[tuple[Use, Seen]]:
        """All known uses of some ids, the latest first."""
        found = [
            (use, seen)
            for use, seen in self._uses.items()
            if use.context == context and use.id in ids
        ]
        return sorted(found, key=lambda one: one[1].last_at, reverse=True)
