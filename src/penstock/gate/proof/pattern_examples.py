"""Some texts that a regular expression of a JSON Schema may match: candidates, to be validated.

Reads the usual syntax (literals, classes, groups, alternatives, quantifiers) and takes the shortest
choices first, then each other choice by itself. What it does not know it leaves out: a candidate
that does not match is dropped when it is validated.
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
    """Candidates for texts that match; empty where the pattern is too odd."""
    if len(pattern) > 1000:
        return []
    return _Reader(pattern).alternatives(0)


class _Reader:
    """Walks through a pattern once."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0

    def alternatives(self, depth: int) -> list[str]:
        """The texts of `a|b|c`, up to a closing bracket or the end."""
        found = self._sequence(depth)
        while self._peek() == "|":
            self._at += 1
            found += self._sequence(depth)
        return _some(found)

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
        return _some(("".join(first), *islice(varied, TEXTS_MAX)))

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
        self._at += is_negated
        inside: list[str] = []
        while self._peek() != "]" or not inside:
            if self._peek() == "":
                return []
            character = self._next()
            if character == "-" and inside and self._peek() not in ("]", ""):
                inside.append(self._next())  # the end of a range
            else:
                inside += self._escaped() if character == "\\" else [character]
        self._at += 1
        if is_negated:
            return [one for one in _OUTSIDE if one not in inside][:2]
        return _some((inside[0], inside[-1]))

    def _group(self, depth: int) -> list[str]:
        looks_around = False
        if self._peek() == "?":
            self._at += 1
            kind = self._next()
            if kind == "<" and self._peek() not in ("=", "!"):
                self._skip_to(">")
            else:
                looks_around = kind != ":"
        found = self.alternatives(depth + 1) if depth < _DEPTH_MAX else []
        self._at += 1  # the closing bracket
        return [""] if looks_around else found

    def _repeated(self, texts: list[str]) -> list[str]:
        match self._peek():
            case "*":
                least, most = 0, 1
            case "+":
                least, most = 1, 2
            case "?":
                least, most = 0, 1
            case "{":
                least, most = self._counts()
            case _:
                return texts
        self._at += 1
        if self._peek() in ("?", "+"):  # lazy or possessive
            self._at += 1
        return _some(
            text * count for count in (max(least, min(1, most)), least, most) for text in texts
        )

    def _counts(self) -> tuple[int, int]:
        """The bounds in `{2}`, `{2,}` or `{2,5}`; stops at the closing brace."""
        end = self._pattern.find("}", self._at)
        if end < 0:
            return 1, 1
        low, comma, high = self._pattern[self._at + 1 : end].partition(",")
        if not low.isdecimal() or not (high.isdecimal() or not high):
            return 1, 1
        self._at = end
        least = min(int(low), _REPEATS_MAX)
        return least, min(int(high), _REPEATS_MAX) if high else least + bool(comma)

    def _skip_to(self, end: str) -> None:
        found = self._pattern.find(end, self._at)
        self._at = len(self._pattern) if found < 0 else found + 1

    def _peek(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _next(self) -> str:
        self._at += 1
        return self._pattern[self._at - 1 : self._at]


def _some(texts: Iterable[str]) -> list[str]:
    """The first few, each once."""
    return list(islice(dict.fromkeys(texts), TEXTS_MAX))
