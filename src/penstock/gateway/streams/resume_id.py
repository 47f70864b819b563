"""The id of a stream's position: the next offset of every partition, as short text.

    1 fffff- 4K.1A.~7:2.0.
    | |      |     partitions of the second topic; `7:` because 0 to 6 are not part of the stream
    | |      partitions of the first topic, from 0 on, each ended by a dot
    | CRC of the topics' names, so that an id is not read for another stream
    version

Numbers have the digits 0-9 A-Z a-z _ -, so an id fits into a header and a URL unescaped. "Next
offset" stays valid when compaction removes the event before it. Pure.
"""

from collections.abc import Iterable, Sequence
from typing import Final
from zlib import crc32

from penstock.errors import Malformed
from penstock.model import Offset, TopicPartition

ID_CHARACTERS_MAX: Final = 4096
_VERSION: Final = "1"
_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_-"
_VALUES: Final = {digit: value for value, digit in enumerate(_DIGITS)}
_CHECK_CHARACTERS: Final = 6
_OFFSET_MAX: Final = 2**63 - 1


class ResumeIdWriter:
    """Writes the ids of one stream; an id changes in one part when one partition advances."""

    def __init__(self, partitions: Sequence[TopicPartition], offsets: Iterable[Offset]) -> None:
        """`partitions` are sorted."""
        self._head = _head(dict.fromkeys(topic for topic, _ in partitions))
        self._labels = [
            _label(previous, partition)
            for previous, partition in zip((None, *partitions), partitions, strict=False)
        ]
        self._parts = [
            f"{label}{write_number(offset)}."
            for label, offset in zip(self._labels, offsets, strict=True)
        ]

    def advance(self, index: int, offset: Offset) -> None:
        """The partition at `index` continues at `offset`."""
        self._parts[index] = f"{self._labels[index]}{write_number(offset)}."

    def text(self) -> str:
        """The id of the current position."""
        return self._head + "".join(self._parts)

    @property
    def characters_with_growth(self) -> int:
        """The length of an id when every offset has one digit more: 64 times as many events."""
        return len(self.text()) + len(self._parts)


def read_resume_id(text: str, topics: Iterable[str]) -> dict[TopicPartition, Offset]:
    """The positions that an id of a stream of these topics contains; raises Malformed."""
    names = sorted(set(topics))
    if len(text) > ID_CHARACTERS_MAX:
        raise Malformed(f"an id has at most {ID_CHARACTERS_MAX} characters", ID_CHARACTERS_MAX)
    head = _head(names)
    if not text.startswith(_VERSION):
        raise Malformed("this is not the id of an event of a stream", 0)
    if not text.startswith(head):
        raise Malformed("this id belongs to a stream of other topics", 1)
    sections = text[len(head) :].split("~")
    if len(sections) != len(names):
        raise Malformed(f"this id has {len(sections)} topics instead of {len(names)}", len(head))
    positions: dict[TopicPartition, Offset] = {}
    at = len(head)
    for name, section in zip(names, sections, strict=True):
        _read_section(name, section, at, positions)
        at += len(section) + 1
    return positions


def _read_section(
    topic: str, section: str, at: int, positions: dict[TopicPartition, Offset]
) -> None:
    index = 0
    if section and not section.endswith("."):
        raise Malformed("this id is cut off", at + len(section))
    for part in section.split(".")[:-1]:
        label, has_label, digits = part.rpartition(":")
        if has_label:
            labelled = _read_number(label, at)
            if labelled < index:
                raise Malformed(f"partition {labelled} is out of order in this id", at)
            index = labelled
        positions[TopicPartition(topic, index)] = Offset(_read_number(digits, at))
        index += 1
        at += len(part) + 1


def _head(topics: Iterable[str]) -> str:
    check = write_number(crc32(",".join(topics).encode()))
    return _VERSION + check.rjust(_CHECK_CHARACTERS, "0")


def _label(previous: TopicPartition | None, partition: TopicPartition) -> str:
    """What comes before an offset: a new topic, and the index unless it is the next one."""
    topic, index = partition
    if previous is not None and previous.topic == topic:
        return "" if index == previous.partition + 1 else f"{write_number(index)}:"
    separator = "" if previous is None else "~"
    return separator if index == 0 else f"{separator}{write_number(index)}:"


def write_number(number: int) -> str:
    """A number that is not negative, in base 64."""
    digits = _DIGITS[number & 63]
    while number := number >> 6:
        digits = _DIGITS[number & 63] + digits
    return digits


def _read_number(digits: str, at: int) -> int:
    if not digits:
        raise Malformed("an offset is missing in this id", at)
    number = 0
    for digit in digits:
        value = _VALUES.get(digit)
        if value is None:
            raise Malformed(f"{digit!r} is not a digit of an id", at)
        number = number << 6 | value
        if number > _OFFSET_MAX:
            raise Malformed("an offset in this id is too large", at)
    return number
