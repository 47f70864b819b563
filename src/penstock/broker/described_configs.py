"""Rows of DescribeConfigs, which CreateTopics returns too: keys with their effective values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.key_rows import Key, UpdateMode
from penstock.config.resolve import (
    ConfigSource,
    Layers,
    effective_setting,
    settings_by_precedence,
)
from penstock.protocol.messages.configs import ConfigSynonym, DescribedConfig

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def described_configs(
    keys: Mapping[str, Key],
    own: Mapping[str, str],
    source: ConfigSource,
    layers: Layers,
    *,
    requested: Sequence[str] | None = None,
    with_synonyms: bool = False,
    with_documentation: bool = False,
) -> list[DescribedConfig]:
    """Every key, or those requested. `own` are the overrides of the resource, by `source`."""
    rows = []
    for key in keys.values():
        if requested is not None and key.name not in requested:
            continue
        setting = effective_setting(key, own, source, layers)
        synonyms: list[ConfigSynonym] = []
        if with_synonyms and not key.sensitive:
            chain = settings_by_precedence(key, own, source, layers)
            synonyms = [ConfigSynonym(each.name, each.value, each.source) for each in chain]
        rows.append(
            DescribedConfig(
                key.name,
                None if key.sensitive else setting.value,
                read_only=source is ConfigSource.STATIC_BROKER
                and key.update_mode is UpdateMode.READ_ONLY,
                config_source=setting.source,
                is_sensitive=key.sensitive,
                synonyms=synonyms,
                config_type=key.value_type,
                documentation=key.doc if with_documentation else None,
            )
        )
    return rows
