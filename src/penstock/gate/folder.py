"""Contracts in a folder, for git: one folder per subject, one file per version.

    contracts/
      orders-value/
        v1.avsc v2.avsc …       .avsc is Avro, .proto Protobuf, .json JSON Schema
        contract.toml           optional: compatibility, policy, [[references]]
        readers/
          fraud-scorer.toml     optional: version, owner, expires, fields, reads
          fraud-scorer.avsc     optional: the schema it reads with

A subject that is no good name for a folder is written as in an address: `a%2Fb` is a/b. Reads
files and never writes any.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from penstock.gate.contracts import (
    CannotCheckError,
    CompatibilitySettings,
    ContractVersion,
    parse_schema,
)
from penstock.schemas.compatibility import Level
from penstock.schemas.model import ParsedSchema, Policy, Reference, SchemaText
from penstock.schemas.readers import Reader
from penstock.serde.contract import SUFFIXES

TERMS_FILE: Final = "contract.toml"
READERS_FOLDER: Final = "readers"
_VERSION: Final = re.compile(r"v([1-9]\d*)")
_TERMS_KEYS: Final = frozenset(("compatibility", "policy", "references"))
_REFERENCE_KEYS: Final = frozenset(("name", "subject", "version", "since"))
_READER_KEYS: Final = frozenset(("version", "owner", "expires", "fields", "reads"))


class ContractFolder:
    """A folder of contracts, read once."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise CannotCheckError(
                f"{folder} is not a folder: name the one with a folder per subject"
            )
        self.folder = folder
        self._folders = {
            unquote(one.name): one
            for one in sorted(folder.iterdir())
            if one.is_dir() and not one.name.startswith(".")
        }
        self._versions: dict[str, list[ContractVersion]] = {}

    @property
    def title(self) -> str:
        """For people."""
        return str(self.folder)

    def subjects(self) -> list[str]:
        """Those with a version or settings at least."""
        return sorted(
            subject
            for subject, folder in self._folders.items()
            if (folder / TERMS_FILE).exists() or _version_files(folder)
        )

    def versions(self, subject: str) -> list[ContractVersion]:
        """Oldest first."""
        known = self._versions.get(subject)
        if known is None:
            known = self._versions[subject] = [
                self._version(subject, number, path)
                for number, path in self._files(subject).items()
            ]
        return known

    def _version(self, subject: str, number: int, path: Path) -> ContractVersion:
        source = self.document(subject, number)
        assert source is not None, "its file was just listed"
        schema = parse_schema(source, self.document, str(path))
        return ContractVersion(number, source, schema, path=str(path))

    def placed(self, path: Path) -> tuple[str, int] | None:
        """The subject and number that a file is, by its place."""
        for subject, folder in self._folders.items():
            if folder.resolve() == path.resolve().parent:
                for number, found in _version_files(folder).items():
                    if found.name == path.name:
                        return subject, number
        return None

    def document(self, subject: str, number: int) -> SchemaText | None:
        """The text of one version, with the references that `contract.toml` gives it."""
        path = self._files(subject).get(number)
        if path is None:
            return None
        entries = self._settings(subject).get("references", ())
        return SchemaText(SUFFIXES[path.suffix], read_text(path), _references_of(number, entries))

    def _files(self, subject: str) -> dict[int, Path]:
        folder = self._folders.get(subject)
        return {} if folder is None else _version_files(folder)

    def terms(self, subject: str) -> CompatibilitySettings:
        """What `contract.toml` says; BACKWARD where it is silent."""
        return self.own_terms(subject) or CompatibilitySettings()

    def own_terms(self, subject: str) -> CompatibilitySettings | None:
        """What `contract.toml` says; None where it says nothing about compatibility."""
        settings = self._settings(subject)
        if "compatibility" not in settings and "policy" not in settings:
            return None
        path = self._folders[subject] / TERMS_FILE
        level, policy = settings.get("compatibility", "BACKWARD"), settings.get("policy", "STRICT")
        if str(level).upper() not in Level.__members__:
            raise CannotCheckError(
                f"{path}: compatibility is one of {', '.join(Level)}, not {level!r}"
            )
        if str(policy).upper() not in Policy.__members__:
            raise CannotCheckError(f"{path}: policy is one of {', '.join(Policy)}, not {policy!r}")
        return CompatibilitySettings(Level[str(level).upper()], Policy[str(policy).upper()])

    def _settings(self, subject: str) -> Mapping[str, Any]:
        folder = self._folders.get(subject)
        path = None if folder is None else folder / TERMS_FILE
        if path is None or not path.exists():
            return {}
        settings = _read_toml(path, _TERMS_KEYS)
        _check_references(path, settings.get("references", ()))
        return settings

    def readers(self, subject: str) -> list[Reader]:
        """All files under `readers`, by their names without endings."""
        folder = self._folders.get(subject)
        if folder is None or not (folder / READERS_FOLDER).is_dir():
            return []
        files = sorted((folder / READERS_FOLDER).iterdir())
        names = {one.stem: one for one in files if one.suffix in (*SUFFIXES, ".toml")}
        return [self._reader(subject, path.with_suffix("")) for path in names.values()]

    def _reader(self, subject: str, stem: Path) -> Reader:
        toml = stem.parent / f"{stem.name}.toml"
        told = _read_toml(toml, _READER_KEYS) if toml.exists() else {}
        last_day, fields = told.get("expires"), told.get("fields", [])
        if last_day is not None and type(last_day) is not date:
            raise CannotCheckError(f"{toml}: expires is a date without quotes, such as 2026-12-31")
        if not isinstance(fields, list) or not all(isinstance(one, str) for one in fields):
            raise CannotCheckError(f'{toml}: fields is a list of names, such as ["id", "total"]')
        schema = self._reader_schema(subject, stem, told.get("reads"), toml)
        return Reader(
            stem.name,
            str(told.get("version", "")),
            str(told.get("owner", "")),
            schema,
            tuple(fields),
            only_fields=schema is None and bool(fields),
            last_day=last_day,
        )

    def _reader_schema(
        self, subject: str, stem: Path, number: int | None, toml: Path
    ) -> ParsedSchema | None:
        """Its own file, or the version that it says it `reads` with."""
        paths = [stem.parent / f"{stem.name}{suffix}" for suffix in SUFFIXES]
        found = [path for path in paths if path.exists()]
        if len(found) > 1:
            raise CannotCheckError(f"{found[0]} and {found[1]}: a reader has one schema")
        if found:
            versions = self._files(subject)
            latest = self.document(subject, max(versions)) if versions else None
            references = () if latest is None else latest.references
            source = SchemaText(SUFFIXES[found[0].suffix], read_text(found[0]), references)
            return parse_schema(source, self.document, str(found[0]))
        if number is None:
            return None
        version = next((one for one in self.versions(subject) if one.number == number), None)
        if version is None:
            raise CannotCheckError(f"{toml}: reads = {number}, and {subject} has no such version")
        return version.schema


def _check_references(path: Path, entries: Sequence[Any]) -> None:
    """Refuse entries that are incomplete, or of which none is the right one."""
    seen: set[tuple[str, int]] = set()
    for one in entries:
        if not isinstance(one, dict) or not {"name", "subject", "version"} <= one.keys():
            raise CannotCheckError(f"{path}: a reference has a name, a subject and a version")
        _check_keys(path, one, _REFERENCE_KEYS)
        if not all(type(one.get(key, 1)) is int for key in ("version", "since")):
            raise CannotCheckError(f"{path}: version and since of a reference are whole numbers")
        key = (str(one["name"]), int(one.get("since", 1)))
        if key in seen:
            raise CannotCheckError(
                f"{path}: two references named {key[0]!r} with since = {key[1]}; give the newer "
                "one the number of the first version that uses it as since"
            )
        seen.add(key)


def _references_of(number: int, entries: Sequence[Mapping[str, Any]]) -> tuple[Reference, ...]:
    """The references of one version: of entries with one name, the latest `since` up to it."""
    chosen: dict[str, Reference] = {}
    for one in sorted(entries, key=lambda one: int(one.get("since", 1))):
        if int(one.get("since", 1)) <= number:
            name = str(one["name"])
            chosen[name] = Reference(name, str(one["subject"]), int(one["version"]))
    return tuple(chosen.values())


def _version_files(folder: Path) -> dict[int, Path]:
    """By number, in order."""
    found: dict[int, Path] = {}
    for path in folder.iterdir():
        match = _VERSION.fullmatch(path.stem)
        if match is None or path.suffix not in SUFFIXES:
            continue
        number = int(match[1])
        if number in found:
            raise CannotCheckError(f"{found[number]} and {path}: a version has one file")
        found[number] = path
    return dict(sorted(found.items()))


def read_text(path: Path) -> str:
    """A file of text, or CannotCheckError."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as wrong:
        raise CannotCheckError(f"{path} cannot be read: {wrong}") from None


def _read_toml(path: Path, keys: frozenset[str]) -> dict[str, Any]:
    try:
        settings = tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as wrong:
        raise CannotCheckError(f"{path} is not TOML: {wrong}") from None
    _check_keys(path, settings, keys)
    return settings


def _check_keys(path: Path, settings: Mapping[str, Any], keys: frozenset[str]) -> None:
    unknown = sorted(settings.keys() - keys)
    if unknown:
        raise CannotCheckError(
            f"{path}: nobody knows {unknown[0]!r}; it may say {', '.join(sorted(keys))}"
        )
