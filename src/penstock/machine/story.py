"""What happened lately, in words, by group, transactional id, subject or topic.

For an operator who asks why a member was removed or a transaction aborted. Soft: it starts empty
and is lost with the process. Bounded in steps per key and in keys. Steps are stored unformatted, so
that keeping one costs next to nothing.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from penstock.model import Millis

STEPS_MAX: Final = 50  # per key; the oldest go first
KEYS_MAX: Final = 1000  # the key without a step for longest goes first


class Step(NamedTuple):
    """One thing that happened to `key`: `text` is a template, filled in when it is read."""

    key: str
    text: str
    values: tuple[object, ...] = ()


class Story:
    """The last steps of each key."""

    __slots__ = ("_steps",)

    def __init__(self) -> None:
        self._steps: OrderedDict[str, deque[tuple[Millis, str, tuple[object, ...]]]] = OrderedDict()

    def add(self, steps: Iterable[Step], at: Millis) -> None:
        """Keep what happened at that time of day."""
        for key, text, values in steps:
            known = self._steps.get(key)
            if known is None:
                known = self._steps[key] = deque(maxlen=STEPS_MAX)
                if len(self._steps) > KEYS_MAX:
                    self._steps.popitem(last=False)
            else:
                self._steps.move_to_end(key)
            known.append((at, text, values))

    def of(self, key: str) -> list[tuple[Millis, str]]:
        """When and what, the oldest first."""
        return [(at, text.format(*values)) for at, text, values in self._steps.get(key, ())]
