"""Contracts in a folder, for git: one folder per subject, one file per version.

    contracts/
      orders-value/
        v1.avsc v2.avsc …       .avsc is Avro, .proto Protobuf, .json JSON Schema
        contract.toml           optional: compatibility, policy, [[references]]
        readers/
          fraud-scorer.toml     optional: version, owner, expires, fields, reads
          fraud-scorer.avsc     optional: its reader schema

Characters of a subject that a folder name cannot have are percent-encoded: `a%2Fb` is a/b. Reads
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
from penstock.serde.language import SUFFIXES

SETTINGS_FILE: Final = "contract.toml"
READERS_FOLDER: Final = "readers"
_VERSION: Final = re.compile(r"v([1-9]\d*)")
_SETTINGS_KEYS: Final = frozenset(("compatibility", "policy", "references"))
_REFERENCE_KEYS: Final = frozenset(("name", "subject", "version", "since"))
_READER_KEYS: Final = frozenset(("version", "owner", "expires", "fields", "reads"))


class ContractFolder:
    """A folder of contracts, read once."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise CannotCheckError(
                f"{folder} is not a folder: pass the folder that contains a folder per subject"
            )
        self.folder = folder
        self._folders = {
            unquote(path.name): path
            for path in sorted(folder.iterdir())
            if path.is_dir() and not path.name.startswith(".")
        }
        self._versions: dict[str, list[ContractVersion]] = {}

    @property
    def title(self) -> str:
        """The path of the folder."""
        return str(self.folder)

    def subjects(self) -> list[str]:
        """All subjects with a version or with settings."""
        return sorted(
            subject
            for subject, folder in self._folders.items()
            if (folder / SETTINGS_FILE).exists() or _version_files(folder)
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
        source = self.text(subject, number)
        assert source is not None, "its file was just listed"
        schema = parse_schema(source, self.text, str(path))
        return ContractVersion(number, source, schema, path=str(path))

    def identify(self, path: Path) -> tuple[str, int] | None:
        """The subject and version of a file in this folder; None for any other file."""
        for subject, folder in self._folders.items():
            if folder.resolve() == path.resolve().parent:
                for number, file in _version_files(folder).items():
                    if file.name == path.name:
                        return subject, number
        return None

    def text(self, subject: str, number: int) -> SchemaText | None:
        """The text of one version, with its references from `contract.toml`."""
        path = self._files(subject).get(number)
        if path is None:
            return None
        entries = self._contract_toml(subject).get("references", ())
        return SchemaText(SUFFIXES[path.suffix], read_text(path), _references_of(number, entries))

    def _files(self, subject: str) -> dict[int, Path]:
        folder = self._folders.get(subject)
        return {} if folder is None else _version_files(folder)

    def settings(self, subject: str) -> CompatibilitySettings:
        """The settings in `contract.toml`, or the default."""
        return self.own_settings(subject) or CompatibilitySettings()

    def own_settings(self, subject: str) -> CompatibilitySettings | None:
        """The settings in `contract.toml`; None if it sets neither level nor policy."""
        contract = self._contract_toml(subject)
        if "compatibility" not in contract and "policy" not in contract:
            return None
        path = self._folders[subject] / SETTINGS_FILE
        level = str(contract.get("compatibility", "BACKWARD"))
        policy = str(contract.get("policy", "STRICT"))
        if level.upper() not in Level.__members__:
            raise CannotCheckError(
                f"{path}: compatibility must be one of {', '.join(Level)}, not {level!r}"
            )
        if policy.upper() not in Policy.__members__:
            raise CannotCheckError(
                f"{path}: policy must be one of {', '.join(Policy)}, not {policy!r}"
            )
        return CompatibilitySettings(Level[level.upper()], Policy[policy.upper()])

    def _contract_toml(self, subject: str) -> Mapping[str, Any]:
        folder = self._folders.get(subject)
        path = None if folder is None else folder / SETTINGS_FILE
        if path is None or not path.exists():
            return {}
        contract = _read_toml(path, _SETTINGS_KEYS)
        _check_references(path, contract.get("references", ()))
        return contract

    def readers(self, subject: str) -> list[Reader]:
        """The readers in the folder `readers`, named like their files."""
        folder = self._folders.get(subject)
        if folder is None or not (folder / READERS_FOLDER).is_dir():
            return []
        files = sorted((folder / READERS_FOLDER).iterdir())
        by_name = {path.stem: path for path in files if path.suffix in (*SUFFIXES, ".toml")}
        return [self._reader(subject, path.with_suffix("")) for path in by_name.values()]

    def _reader(self, subject: str, stem: Path) -> Reader:
        toml = stem.parent / f"{stem.name}.toml"
        declared = _read_toml(toml, _READER_KEYS) if toml.exists() else {}
        last_day, fields = declared.get("expires"), declared.get("fields", [])
        if last_day is not None and type(last_day) is not date:
            raise CannotCheckError(f"{toml}: expires is a date without quotes, such as 2026-12-31")
        if not isinstance(fields, list) or not all(isinstance(field, str) for field in fields):
            raise CannotCheckError(f'{toml}: fields is a list of names, such as ["id", "total"]')
        schema = self._reader_schema(subject, stem, declared.get("reads"), toml)
        return Reader(
            stem.name,
            str(declared.get("version", "")),
            str(declared.get("owner", "")),
            schema,
            tuple(fields),
            only_fields=schema is None and bool(fields),
            last_day=last_day,
        )

    def _reader_schema(
        self, subject: str, stem: Path, number: int | None, toml: Path
    ) -> ParsedSchema | None:
        """The schema in its own file, or the version that `reads` names."""
        candidates = [stem.parent / f"{stem.name}{suffix}" for suffix in SUFFIXES]
        paths = [path for path in candidates if path.exists()]
        if len(paths) > 1:
            raise CannotCheckError(f"{paths[0]} and {paths[1]}: a reader has one schema")
        if paths:
            versions = self._files(subject)
            latest = self.text(subject, max(versions)) if versions else None
            references = () if latest is None else latest.references
            source = SchemaText(SUFFIXES[paths[0].suffix], read_text(paths[0]), references)
            return parse_schema(source, self.text, str(paths[0]))
        if number is None:
            return None
        for version in self.versions(subject):
            if version.number == number:
                return version.schema
        raise CannotCheckError(f"{toml}: reads = {number}, but {subject} has no such version")


def _check_references(path: Path, entries: Sequence[Any]) -> None:
    """Refuse entries that are incomplete or ambiguous."""
    seen: set[tuple[str, int]] = set()
    for entry in entries:
        if not isinstance(entry, dict) or not {"name", "subject", "version"} <= entry.keys():
            raise CannotCheckError(f"{path}: a reference needs a name, a subject and a version")
        _check_keys(path, entry, _REFERENCE_KEYS)
        if not all(type(entry.get(key, 1)) is int for key in ("version", "since")):
            raise CannotCheckError(f"{path}: version and since of a reference are whole numbers")
        key = (str(entry["name"]), int(entry.get("since", 1)))
        if key in seen:
            raise CannotCheckError(
                f"{path}: two references named {key[0]!r} with since = {key[1]}; set since of the "
                "newer one to the first version that uses it"
            )
        seen.add(key)


def _references_of(number: int, entries: Sequence[Mapping[str, Any]]) -> tuple[Reference, ...]:
    """The references of one version: of entries with one name, the latest `since` up to it."""
    chosen: dict[str, Reference] = {}
    for entry in sorted(entries, key=lambda entry: int(entry.get("since", 1))):
        if int(entry.get("since", 1)) <= number:
            name = str(entry["name"])
            chosen[name] = Reference(name, str(entry["subject"]), int(entry["version"]))
    return tuple(chosen.values())


def _version_files(folder: Path) -> dict[int, Path]:
    """The files of versions by number, in order."""
    files: dict[int, Path] = {}
    for path in folder.iterdir():
        match = _VERSION.fullmatch(path.stem)
        if match is None or path.suffix not in SUFFIXES:
            continue
        number = int(match[1])
        if number in files:
            raise CannotCheckError(f"{files[number]} and {path}: a version has one file")
        files[number] = path
    return dict(sorted(files.items()))


def read_text(path: Path) -> str:
    """The text of a file; CannotCheckError if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CannotCheckError(f"cannot read {path}: {error}") from None


def _read_toml(path: Path, keys: frozenset[str]) -> dict[str, Any]:
    try:
        document = tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise CannotCheckError(f"{path} is not valid TOML: {error}") from None
    _check_keys(path, document, keys)
    return document


def _check_keys(path: Path, document: Mapping[str, Any], keys: frozenset[str]) -> None:
    unknown = sorted(document.keys() - keys)
    if unknown:
        raise CannotCheckError(
            f"{path}: unknown key {unknown[0]!r}; allowed: {', '.join(sorted(keys))}"
        )
