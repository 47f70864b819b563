"""Contracts of a registry, as a store for the gate."""

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
    """The contracts of a registry, read when they are needed."""

    def __init__(self, api: RegistryApi) -> None:
        self.api = api
        self._documents: dict[tuple[str, int], dict[str, Any]] = {}

    @property
    def title(self) -> str:
        """The address of the registry."""
        return self.api.url

    def subjects(self) -> list[str]:
        """All subjects except those of readers."""
        return [subject for subject in self.api.subjects() if not subject.startswith(READERS)]

    def versions(self, subject: str) -> list[ContractVersion]:
        """Live versions, oldest first."""
        return [self._version(subject, number) for number in self.api.versions(subject)]

    def _version(self, subject: str, number: int) -> ContractVersion:
        document = self._document(subject, number) or {}
        source = read_source(document)
        about = f"version {number} of {subject} at {self.title}"
        schema = parse_schema(source, self.text, about, strict=False)
        return ContractVersion(number, source, schema, properties_of(document))

    def text(self, subject: str, number: int) -> SchemaText | None:
        """The text of one version."""
        document = self._document(subject, number)
        return None if document is None else read_source(document)

    def _document(self, subject: str, number: int) -> dict[str, Any] | None:
        key = (subject, number)
        document = self._documents.get(key) or self.api.find_version(subject, number)
        if document is not None:  # a missing version may be registered later
            self._documents[key] = document
        return document

    def settings(self, subject: str) -> CompatibilitySettings:
        """The settings that are effective for the subject."""
        return read_compatibility_settings(self.api.config(subject))

    def readers(self, subject: str) -> list[Reader]:
        """The current declaration of each reader."""
        return [self._reader(stored) for stored in self.api.subjects(readers_prefix(subject))]

    def _reader(self, stored_subject: str) -> Reader:
        version = self._version(stored_subject, self.api.versions(stored_subject)[-1])
        return read_reader(stored_subject, version.schema, version.properties)


def read_compatibility_settings(config: dict[str, Any]) -> CompatibilitySettings:
    """The settings in a response of the API; unknown values count as the default."""
    level = str(config.get("compatibilityLevel") or config.get("compatibility") or "").upper()
    policy = str(config.get("compatibilityPolicy") or "").upper()
    return CompatibilitySettings(
        Level[level] if level in Level.__members__ else Level.BACKWARD,
        Policy[policy] if policy in Policy.__members__ else Policy.STRICT,
        config.get("compatibilityGroup") or None,
    )
