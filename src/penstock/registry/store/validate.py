"""The invariants of the registry, for tests and simulations."""

from penstock.registry.store.apply import referred_keys
from penstock.registry.store.state import RegistryState, SubjectContext, VersionKey
from penstock.registry.subject_names import DEFAULT_CONTEXT, context_of


def validate(state: RegistryState) -> None:
    """Assert that every index follows from the versions."""
    users: dict[str, dict[int, set[VersionKey]]] = {}
    referrers: dict[VersionKey, set[VersionKey]] = {}
    for subject, versions in state.versions.items():
        assert versions, f"{subject} has no version"
        assert list(versions) == sorted(versions), "versions are in the order of their numbers"
        for number, version in versions.items():
            assert version.key == (subject, number)
            assert version.fingerprint == version.contents.fingerprint()
            users.setdefault(context_of(subject), {}).setdefault(version.id, set()).add(version.key)
            for key in referred_keys(version):
                referrers.setdefault(key, set()).add(version.key)
    assert {key: set(keys) for key, keys in state.referrers.items()} == referrers
    assert DEFAULT_CONTEXT in state.contexts
    assert users.keys() <= state.contexts.keys()
    for name, context in state.contexts.items():
        _validate_context(state, name, context, users.get(name, {}))


def _validate_context(
    state: RegistryState, name: str, context: SubjectContext, users: dict[int, set[VersionKey]]
) -> None:
    assert {schema_id: set(keys) for schema_id, keys in context.ids.items()} == users
    assert context.last_id >= max(users, default=0), "the last id is never lost"
    for schema_id, keys in users.items():
        fingerprints = {state.versions[subject][number].fingerprint for subject, number in keys}
        (fingerprint,) = fingerprints  # an id has one meaning
        assert context.by_fingerprint[fingerprint] in users
        assert state.guids[fingerprint][name] in users, f"id {schema_id} has no GUID"
    known = set(users)
    assert set(context.by_fingerprint.values()) <= known
    assert {ids[name] for ids in state.guids.values() if name in ids} <= known
