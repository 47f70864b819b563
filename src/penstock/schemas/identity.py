"""The identity of a schema: the MD5 over its text, references, metadata and rules.

The sixteen bytes, as a UUID, are the schema's GUID. Confluent's registry computes the same, so ids
and GUIDs survive a migration in either direction. The language is not part of the identity.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from penstock.schemas.model import Reference


@dataclass(frozen=True, slots=True)
class Metadata:
    """What a schema is annotated with: tags by path, properties, and which of them are secret."""

    tags: Mapping[str, Sequence[str]] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    sensitive: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of a data contract. The registry stores and serves it; clients run it."""

    name: str | None = None
    doc: str | None = None
    kind: str | None = None
    mode: str | None = None
    type: str | None = None
    tags: Sequence[str] = ()
    params: Mapping[str, str] = field(default_factory=dict)
    expr: str | None = None
    on_success: str | None = None
    on_failure: str | None = None
    disabled: bool = False


@dataclass(frozen=True, slots=True)
class RuleSet:
    """The rules of a schema, by purpose."""

    migration_rules: Sequence[Rule] = ()
    domain_rules: Sequence[Rule] = ()
    encoding_rules: Sequence[Rule] = ()
    enable_at: str | None = None


def fingerprint(
    text: str,
    references: Iterable[Reference] = (),
    metadata: Metadata | None = None,
    rule_set: RuleSet | None = None,
) -> bytes:
    """The sixteen bytes that identify a schema in its context."""
    digest = hashlib.md5(usedforsecurity=False)
    digest.update(text.encode())
    for reference in references:
        digest.update(reference.name.encode())
        digest.update(reference.subject.encode())
        digest.update(reference.version.to_bytes(4, "big", signed=True))
    if metadata is not None:
        digest.update(b"\x01")
        digest.update("".join(_metadata_texts(metadata)).encode())
    if rule_set is not None:
        digest.update(b"\x01")
        for rules in (rule_set.migration_rules, rule_set.domain_rules, rule_set.encoding_rules):
            for rule in rules:
                digest.update("".join(_rule_texts(rule)).encode())
                if rule.disabled:
                    digest.update(b"\x01")
        digest.update((rule_set.enable_at or "").encode())
    return digest.digest()


def guid(fingerprint_bytes: bytes) -> str:
    """The fingerprint in the form of the registry's API."""
    return str(UUID(bytes=fingerprint_bytes))


def _metadata_texts(metadata: Metadata) -> Iterable[str]:
    for path, tags in sorted(metadata.tags.items()):
        yield path
        yield from sorted(tags)
    for key, value in sorted(metadata.properties.items()):
        yield key
        yield value
    yield from sorted(metadata.sensitive)


def _rule_texts(rule: Rule) -> Iterable[str]:
    for text in (rule.name, rule.doc, rule.kind, rule.mode, rule.type):
        yield text or ""
    yield from sorted(rule.tags)
    for key, value in sorted(rule.params.items()):
        yield key
        yield value
    for text in (rule.expr, rule.on_success, rule.on_failure):
        yield text or ""
