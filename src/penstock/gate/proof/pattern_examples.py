"""Candidates for texts that a regular expression of a JSON Schema matches.

Reads the usual syntax (literals, classes, groups, alternatives, quantifiers), and varies one choice
at a time. Unknown syntax is ignored: the caller validates candidates and drops those that do not
match.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Final

TEXTS_MAX: Final = 12  # of one pattern, and of each part of it
_REPEATS_MAX: Final = 50
_DEPTH_MAX: Final = 20
_CLASSES: Final = {"d": "70", "w": "aZ", "s": " ", "D": "x-", "W": "-", "S": "x7", "p": "a"}
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r"}
_OUTSIDE: Final = "xX7-_ .@"  # one of these is not in a negated class


def texts_of(pattern: str) -> list[str]:
    """Candidates for texts that match; empty for a pattern that is too long."""
    if len(pattern) > 1000:
        return []
    return _Reader(pattern).alternatives(0)


class _Reader:
    """Reads a pattern once, from left to right."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._position = 0

    def alternatives(self, depth: int) -> list[str]:
        """The texts of `a|b|c`, up to a closing bracket or the end."""
        texts = self._sequence(depth)
        while self._peek() == "|":
            self._position += 1
            texts += self._sequence(depth)
        return _first(texts)

    def _sequence(self, depth: int) -> list[str]:
        parts: list[list[str]] = []
        while self._peek() not in ("", "|", ")"):
            parts.append(self._repeated(self._atom(depth)))
        first = [part[0] if part else "" for part in parts]
        varied = (
            "".join((*first[:index], other, *first[index + 1 :]))
            for index, part in enumerate(parts)
            for other in part[1:]
        )
        return _first(("".join(first), *islice(varied, TEXTS_MAX)))

    def _atom(self, depth: int) -> list[str]:
        character = self._next()
        match character:
            case "^" | "$":
                return [""]
            case ".":
                return ["a"]
            case "[":
                return self._class()
            case "(":
                return self._group(depth)
            case "\\":
                return self._escaped()
            case _:
                return [character]

    def _escaped(self) -> list[str]:
        character = self._next()
        if character in ("b", "B"):
            return [""]
        if character == "p" and self._peek() == "{":
            self._skip_to("}")
        return list(_CLASSES.get(character, _CONTROLS.get(character, character)))

    def _class(self) -> list[str]:
        is_negated = self._peek() == "^"
        self._position += is_negated
        inside: list[str] = []
        while self._peek() != "]" or not inside:
            if self._peek() == "":
                return []
            character = self._next()
            if character == "-" and inside and self._peek() not in ("]", ""):
                inside.append(self._next())  # the end of a range
            else:
                inside += self._escaped() if character == "\\" else [character]
        self._position += 1
        if is_negated:
            return [character for character in _OUTSIDE if character not in inside][:2]
        return _first((inside[0], inside[-1]))

    def _group(self, depth: int) -> list[str]:
        looks_around = False
        if self._peek() == "?":
            self._position += 1
            kind = self._next()
            if kind == "<" and self._peek() not in ("=", "!"):
                self._skip_to(">")
            else:
                looks_around = kind != ":"
        texts = self.alternatives(depth + 1) if depth < _DEPTH_MAX else []
        self._position += 1  # the closing bracket
        return [""] if looks_around else texts

    def _repeated(self, texts: list[str]) -> list[str]:
        match self._peek():
            case "*":
                minimum, maximum = 0, 1
            case "+":
                minimum, maximum = 1, 2
            case "?":
                minimum, maximum = 0, 1
            case "{":
                minimum, maximum = self._counts()
            case _:
                return texts
        self._position += 1
        if self._peek() in ("?", "+"):  # lazy or possessive
            self._position += 1
        return _first(
            text * count
            for count in (max(minimum, min(1, maximum)), minimum, maximum)
            for text in texts
        )

    def _counts(self) -> tuple[int, int]:
        """The counts in `{2}`, `{2,}` or `{2,5}`; stops at the closing brace."""
        end = self._pattern.find("}", self._position)
        if end < 0:
            return 1, 1
        low, comma, high = self._pattern[self._position + 1 : end].partition(",")
        if not low.isdecimal() or not (high.isdecimal() or not high):
            return 1, 1
        self._position = end
        minimum = min(int(low), _REPEATS_MAX)
        return minimum, min(int(high), _REPEATS_MAX) if high else minimum + bool(comma)

    def _skip_to(self, end: str) -> None:
        position = self._pattern.find(end, self._position)
        self._position = len(self._pattern) if position < 0 else position + 1

    def _peek(self) -> str:
        return self._pattern[self._position : self._position + 1]

    def _next(self) -> str:
        self._position += 1
        return self._pattern[self._position - 1 : self._position]


def _first(texts: Iterable[str]) -> list[str]:
    """The first few, each once."""
    return list(islice(dict.fromkeys(texts), TEXTS_MAX))
