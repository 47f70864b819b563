"""Contracts as a registry has them."""

from typing import Any

from penstock.client.registry_api import RegistryApi
from penstock.client.registry_documents import properties_of, read_source
from penstock.gate.contracts import (
    CompatibilitySettings,
    ContractVersion,
    parse_schema,
    read_reader,
)
from penstock.schemas.compatibility import Level
from penstock.schemas.model import Policy, SchemaText
from penstock.schemas.readers import READERS, Reader, readers_prefix


class RegistryContracts:
    """A registry, read when it is asked."""

    def __init__(self, api: RegistryApi) -> None:
        self.api = api
        self._documents: dict[tuple[str, int], dict[str, Any] | None] = {}

    @property
    def title(self) -> str:
        """For people."""
        return self.api.url

    def subjects(self) -> list[str]:
        """All but readers."""
        return [subject for subject in self.api.subjects() if not subject.startswith(READERS)]

    def versions(self, subject: str) -> list[ContractVersion]:
        """Live ones, oldest first."""
        return [self._version(subject, number) for number in self.api.versions(subject)]

    def _version(self, subject: str, number: int) -> ContractVersion:
        document = self._document(subject, number) or {}
        source = read_source(document)
        about = f"version {number} of {subject} at {self.title}"
        schema = parse_schema(source, self.document, about, strict=False)
        return ContractVersion(number, source, schema, properties_of(document))

    def document(self, subject: str, number: int) -> SchemaText | None:
        """The text of one version."""
        document = self._document(subject, number)
        return None if document is None else read_source(document)

    def _document(self, subject: str, number: int) -> dict[str, Any] | None:
        key = (subject, number)
        if self._documents.get(key) is None:  # what is not there may be there later
            self._documents[key] = self.api.find_version(subject, number)
        return self._documents[key]

    def terms(self, subject: str) -> CompatibilitySettings:
        """The settings in force."""
        return read_compatibility_settings(self.api.config(subject))

    def readers(self, subject: str) -> list[Reader]:
        """The latest of each."""
        return [self._reader(kept) for kept in self.api.subjects(readers_prefix(subject))]

    def _reader(self, kept: str) -> Reader:
        version = self._version(kept, self.api.versions(kept)[-1])
        return read_reader(kept, version.schema, version.properties)


def read_compatibility_settings(config: dict[str, Any]) -> CompatibilitySettings:
    """Settings as the API writes them; what is not understood is the default."""
    level = str(config.get("compatibilityLevel") or config.get("compatibility") or "").upper()
    policy = str(config.get("compatibilityPolicy") or "").upper()
    return CompatibilitySettings(
        Level[level] if level in Level.__members__ else Level.BACKWARD,
        Policy[policy] if policy in Policy.__members__ else Policy.STRICT,
        config.get("compatibilityGroup") or None,
    )
