"""Who uses which schema id, and when last: seen as clients register schemas and ask for them.

A client says who it is in the header `Penstock-Client: name`, and may add `; role=producer` or
`; role=consumer`. One that says nothing is known by its user agent, and taken for a producer when
it registers and for a consumer when it reads. What was not seen for longest is forgotten when there
are too many; forgetting is noted, because then "nobody uses it" is no longer the truth.
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
    """Bounded; the oldest go first."""

    def __init__(self, since: Millis, uses_max: int = USES_MAX) -> None:
        self.since = since  # nothing is known of before
        self._uses: OrderedDict[Use, Seen] = OrderedDict()
        self._uses_max = uses_max
        self.forgotten = 0

    def note(self, use: Use, now: Millis) -> None:
        """A client asked for an id, or said that it uses it."""
        seen = self._uses.pop(use, None)
        self._uses[use] = Seen(now, 1 if seen is None else seen.times + 1)
        if len(self._uses) > self._uses_max:
            self._uses.popitem(last=False)
            self.forgotten += 1

    def of(self, context: str, ids: frozenset[int]) -> list[tuple[Use, Seen]]:
        """All known uses of some ids, the latest first."""
        found = [
            (use, seen)
            for use, seen in self._uses.items()
            if use.context == context and use.id in ids
        ]
        return found[::-1]
