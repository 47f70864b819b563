"""The last steps, in words, by group, transactional id, subject or topic.

For an operator who asks why a member was removed or a transaction aborted: a step that is logged
comes with the steps before it. Soft: it starts empty and is lost with the process. Bounded in steps
per key and in keys. Steps are stored unformatted, so that keeping one costs next to nothing.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeAlias

from penstock.model import Millis

STEPS_MAX: Final = 50  # per key; the oldest go first
LOGGED_MAX: Final = 4  # steps in a line of the log
KEYS_MAX: Final = 1000  # the key without a step for longest goes first


class Step(NamedTuple):
    """One thing that happened to `key`: `text` is a template, filled in when it is read."""

    key: str
    text: str
    values: tuple[object, ...] = ()
    is_logged: bool = False  # an operator reads it in the log


_Stored: TypeAlias = tuple[Millis, str, tuple[object, ...]]


class Story:
    """The last steps of each key."""

    __slots__ = ("_log", "_steps")

    def __init__(self, log: Callable[[str], None] = lambda _line: None) -> None:
        self._log = log  # once for all steps of a key that happened together
        self._steps: OrderedDict[str, deque[_Stored]] = OrderedDict()

    def add(self, steps: Iterable[Step], at: Millis) -> None:
        """Keep what happened at that time of day."""
        logged: dict[str, list[_Stored]] = {}
        for key, text, values, is_logged in steps:
            known = self._steps.get(key)
            if known is None:
                known = self._steps[key] = deque(maxlen=STEPS_MAX)
                if len(self._steps) > KEYS_MAX:
                    self._steps.popitem(last=False)
            else:
                self._steps.move_to_end(key)
            known.append((at, text, values))
            if is_logged:
                logged[key] = list(known)[-LOGGED_MAX:]
        for key, last_steps in logged.items():
            self._log(_line(key, last_steps))

    def of(self, key: str) -> list[tuple[Millis, str]]:
        """When and what, the oldest first."""
        return [(at, text.format(*values)) for at, text, values in self._steps.get(key, ())]


def _line(key: str, steps: list[_Stored]) -> str:
    """The last step, then those before it and how long before, the latest first."""
    last_at = steps[-1][0]
    parts = [text.format(*values) for _, text, values in steps[-1:]]
    for at, text, values in reversed(steps[:-1]):
        parts.append(f"{max(0, last_at - at) / 1000:.1f} s before: {text.format(*values)}")
    line = f"{key}: {'; '.join(parts)}"
    # Keys and names of members are chosen by clients: they must not begin a line of their own.
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in line)
