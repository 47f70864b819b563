"""Replacing closed segments by their compacted form, so that a crash leaves the old or the new.

The cleaner writes `<base>.log.cleaned` and its indexes beside the segments and touches nothing
else. The swap then renames every `.cleaned` to `.swap`, from the last segment to the first; only
then the old files become `.deleted`, and finally the `.swap` files get their names. So when a
start finds

  any .cleaned   the swap was not accepted: it and the `.swap` files at or above it are removed
  only .swap     the swap was accepted and is completed; so is any `.swap` whose old segment does
                 not exist: that is renamed later, so the `.cleaned` is of another round
  .deleted       is removed

In each set of files the indexes are renamed first and the log last; without its log a set counts as
absent.
"""

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from penstock.log.files import LogFile, OpenFiles, remove_files
from penstock.log.scan import DamagedLogError, scan_headers
from penstock.log.segment import SUFFIXES, base_offset_of
from penstock.log.segment_end import SUFFIX as END_SUFFIX
from penstock.log.segment_end import write_end
from penstock.model import Offset

CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
DELETED: Final = ".deleted"
_UNFINISHED: Final = (".cut", ".tmp")  # not renamed to its final name yet


class Replacement(NamedTuple):
    """Neighbouring segments, and the `.cleaned` ones with the records that remain of them."""

    replaced: tuple[Offset, ...]
    cleaned: tuple[Offset, ...]  # base offsets; the first is the first replaced one's


def segment_paths(folder: str, base_offset: Offset) -> list[str]:
    """The files of a segment; the log last."""
    return [f"{folder}/{base_offset:020d}{suffix}" for suffix in SUFFIXES]


def rename_all(paths: Iterable[str], *, from_suffix: str, to_suffix: str) -> None:
    """Missing indexes are skipped, because they can be rebuilt; the log must exist."""
    *indexes, log = paths
    for path in indexes:
        try:
            os.rename(path + from_suffix, path + to_suffix)
        except FileNotFoundError:
            continue
    os.rename(log + from_suffix, log + to_suffix)


def record_cleaned_end(folder: str, base_offset: Offset, next_base_offset: Offset) -> None:
    """Write the `.end` file of a compacted segment."""
    stem = f"{folder}/{base_offset:020d}"
    write_end(stem + END_SUFFIX + CLEANED, f"{stem}.log{CLEANED}", next_base_offset)


def accept_cleaned(folder: str, cleaned: Sequence[Offset]) -> None:
    """After this a crash leaves the new segments."""
    for base_offset in sorted(cleaned, reverse=True):
        rename_all(segment_paths(folder, base_offset), from_suffix=CLEANED, to_suffix=SWAP)


def retire(folder: str, replaced: Sequence[Offset]) -> list[str]:
    """Rename the files, because readers may still use them; returns those to unlink later."""
    retired: list[str] = []
    for base_offset in replaced:
        paths = segment_paths(folder, base_offset)
        with suppress(FileNotFoundError):  # renamed by an earlier attempt that failed
            rename_all(paths, from_suffix="", to_suffix=DELETED)
        retired += [path + DELETED for path in paths]
    return retired


def install(folder: str, cleaned: Sequence[Offset]) -> None:
    for base_offset in sorted(cleaned):
        rename_all(segment_paths(folder, base_offset), from_suffix=SWAP, to_suffix="")


def complete_swaps(folder: str, files: OpenFiles) -> dict[str, int]:
    """Complete or undo what a crash interrupted; returns the remaining files and their sizes."""
    sizes = _list_sizes(folder)
    leftover = (DELETED, CLEANED, SWAP, *_UNFINISHED)
    removed = [name for name in sizes if name.endswith(leftover)]
    if not removed:
        return sizes
    cleaned, old = _bases(sizes, CLEANED), set(_bases(sizes, ""))
    accepted = [
        base
        for base in _bases(sizes, SWAP)
        if base < min(cleaned, default=base + 1) or base not in old
    ]
    if accepted:
        _complete(folder, files, accepted, sizes)
    remove_files(f"{folder}/{name}" for name in removed)
    return _list_sizes(folder)


def _list_sizes(folder: str) -> dict[str, int]:
    """Names and sizes; the size matters for logs and indexes only.

    DamagedLogError when a folder or a dangling link has the name of a segment's file: the log would
    appear to have another start or end.
    """
    sizes: dict[str, int] = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            is_ours = entry.name[:20].isdigit()
            if entry.is_file():
                sizes[entry.name] = entry.stat().st_size if is_ours else 0
            elif is_ours and entry.name[20:] in SUFFIXES:
                reason = "is not a regular file; restore the segment's file from a copy"
                raise DamagedLogError(reason, entry.path)
    return sizes


def _bases(sizes: dict[str, int], suffix: str) -> list[Offset]:
    ending = ".log" + suffix
    stems = (name[: -len(ending)] for name in sizes if name.endswith(ending))
    return sorted(base for stem in stems if (base := base_offset_of(stem)) is not None)


def _complete(folder: str, files: OpenFiles, accepted: list[Offset], sizes: dict[str, int]) -> None:
    """All belong to one replacement, so everything between the first and the end is replaced."""
    first, last = accepted[0], accepted[-1]
    swap_name = f"{last:020d}.log{SWAP}"
    log = LogFile(f"{folder}/{swap_name}", files, sizes[swap_name])
    end_offset = Offset(last + 1)
    for scanned in scan_headers(log):
        end_offset = scanned.header.end_offset
    log.close()
    for old in _bases(sizes, ""):
        if first <= old < end_offset:
            remove_files(segment_paths(folder, old))
    install(folder, accepted)
