"""The registry's store: ids, versions, duplicates, deletions, references, settings, modes."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model import Millis
from penstock.registry.errors import DeclinedError
from penstock.registry.store.apply import apply
from penstock.registry.store.commands import (
    Command,
    DeleteSubject,
    DeleteVersion,
    MarkLog,
    RemoveConfig,
    RemoveMode,
    SetConfig,
    SetMode,
)
from penstock.registry.store.events import (
    Contents,
    Mode,
    SubjectCleared,
    SubjectConfig,
    Version,
    VersionStored,
)
from penstock.registry.store.examination import Outdated, SchemaProposal
from penstock.registry.store.state import RegistryState
from penstock.registry.store.validate import validate
from penstock.registry.subject_names import Subject, context_of
from penstock.schemas.identity import Metadata, Rule, RuleSet
from penstock.schemas.model import InvalidSchemaError, Reference, SchemaText, SchemaType
from tests.support.registry_scenario import Registration, RegistryScenario

ORDERS = Subject("orders-value")
OTHER = Subject("other-value")
ABROAD = Subject(":.eu:orders-value")


def contents(text: str, *references: Reference, **more: Any) -> Contents:
    return Contents(SchemaText(SchemaType.AVRO, text, references), **more)


def register(
    text: str,
    subject: Subject = ORDERS,
    *references: Reference,
    equivalents: frozenset[int] = frozenset(),
    **more: Any,
) -> Registration:
    source = SchemaText(SchemaType.AVRO, text, references)
    return Registration(SchemaProposal(subject, source, **more), equivalents)


def declined(scenario: RegistryScenario, command: Command | Registration) -> int:
    with pytest.raises(DeclinedError) as caught:
        scenario.submit(command)
    return caught.value.code


def text_of(version: Version | None) -> str:
    assert version is not None
    return version.contents.source.text


def known(state: RegistryState) -> object:
    """All that a client could see."""
    versions = {
        subject: [(v.number, v.id, v.contents, v.deleted) for v in found.values()]
        for subject, found in state.versions.items()
    }
    contexts = {
        name: (
            {schema_id: set(users) for schema_id, users in context.ids.items()},
            context.by_fingerprint,
            context.last_id,
        )
        for name, context in state.contexts.items()
    }
    referrers = {key: set(found) for key, found in state.referrers.items()}
    return versions, contexts, state.guids, referrers, state.configs, state.modes


def test_the_first_schema_gets_id_and_version_one(scenario: RegistryScenario) -> None:
    version = scenario.submit(register("a"))
    assert (version.id, version.number) == (1, 1)


def test_a_registered_schema_keeps_its_version_and_id(scenario: RegistryScenario) -> None:
    first = scenario.submit(register("a"))
    written = len(scenario.log)
    assert scenario.submit(register("a")) == scenario.state.latest(ORDERS)
    assert first.key == scenario.submit(register("a")).key
    assert len(scenario.log) == written


def test_the_same_schema_in_another_subject_has_the_same_id(
    scenario: RegistryScenario,
) -> None:
    scenario.submit(register("a"))
    scenario.submit(register("b"))
    other = scenario.submit(register("b", OTHER))
    assert (other.id, other.number) == (2, 1)


def test_ids_are_counted_in_each_context(scenario: RegistryScenario) -> None:
    scenario.submit(register("a"))
    scenario.submit(register("b"))
    assert scenario.submit(register("b", ABROAD)).id == 1
    assert scenario.log[-2].key == (
        b'{"keytype":"CONTEXT","tenant":"default","context":".eu","magic":0}'
    )


def test_an_equivalent_schema_is_found(scenario: RegistryScenario) -> None:
    scenario.submit(register("a"))
    assert scenario.submit(register("a ", equivalents=frozenset({1}))).id == 1


def test_other_metadata_makes_another_schema(scenario: RegistryScenario) -> None:
    owned = Metadata(properties={"owner": "shop"})
    scenario.submit(register("a"))
    second = scenario.submit(register("a", metadata=owned, equivalents=frozenset({1})))
    assert (second.id, second.number) == (2, 2)
    again = scenario.submit(register("a", metadata=owned))
    assert again.number == 2


def test_metadata_is_inherited_by_the_next_version(scenario: RegistryScenario) -> None:
    owned = Metadata(properties={"owner": "shop"})
    scenario.submit(register("a", metadata=owned))
    assert scenario.submit(register("b")).contents.metadata == owned
    assert scenario.submit(register("b")).number == 2


def test_settings_add_default_and_override_metadata(
    scenario: RegistryScenario,
) -> None:
    config = SubjectConfig(
        default_metadata=Metadata(properties={"owner": "default", "tier": "3"}),
        override_metadata=Metadata(properties={"tier": "1"}),
    )
    members = frozenset(("default_metadata", "override_metadata"))
    scenario.submit(SetConfig(ORDERS, config, members))
    given = Metadata(properties={"owner": "shop", "tier": "2"})
    stored = scenario.submit(register("a", metadata=given))
    assert stored.contents.metadata.properties == {"owner": "shop", "tier": "1"}
    assert scenario.submit(register("a", metadata=given)).number == 1


@pytest.mark.parametrize(
    "rules",
    [
        RuleSet(domain_rules=(Rule("a", kind="CONDITION", mode="UPGRADE", type="CEL"),)),
        RuleSet(migration_rules=(Rule("a", kind="TRANSFORM", mode="WRITE", type="JSONATA"),)),
        RuleSet(domain_rules=(Rule("a", kind="WISH", mode="WRITE", type="CEL"),)),
        RuleSet(domain_rules=(Rule("", kind="CONDITION", mode="WRITE", type="CEL"),)),
        RuleSet(domain_rules=(Rule("a", kind="CONDITION", mode="WRITE", type="CEL"),) * 2),
        RuleSet(domain_rules=(Rule("a", kind="CONDITION", mode="WRITE"),)),
    ],
)
def test_an_invalid_rule_set_is_declined(scenario: RegistryScenario, rules: RuleSet) -> None:
    assert declined(scenario, register("a", rule_set=rules)) == 42210


def test_a_given_version_must_be_the_next_and_is_stored(scenario: RegistryScenario) -> None:
    scenario.submit(register("a"))
    assert declined(scenario, register("b", version=3)) == 42201
    second = scenario.submit(register("b", version=2))
    assert second.contents.metadata.properties == {"confluent:version": "2"}
    third = scenario.submit(register("c"))
    assert third.contents.metadata.properties == {"confluent:version": "3"}
    assert scenario.submit(register("c", equivalents=frozenset({3}))).number == 3


def test_version_minus_one_is_only_for_the_latest(scenario: RegistryScenario) -> None:
    scenario.submit(register("a"))
    scenario.submit(register("b"))
    assert scenario.submit(register("b", version=-1)).number == 2
    assert declined(scenario, register("a", version=-1)) == 42201
    assert declined(scenario, register("c", version=-1)) == 42201


def test_a_soft_deleted_schema_can_be_read_by_id(scenario: RegistryScenario) -> None:
    scenario.submit(register("a"))
    assert scenario.submit(DeleteVersion(ORDERS, 1)) == 1
    assert not scenario.state.has_subject(ORDERS)
    assert text_of(scenario.state.by_id(1)) == "a"


def test_a_soft_deleted_schema_returns_with_its_id_and_a_new_version(
    scenario: RegistryScenario,
) -> None:
    scenario.submit(register("a"))
    scenario.submit(DeleteSubject(ORDERS))
    back = scenario.submit(register("a"))
    assert (back.id, back.number) == (1, 2)
    assert [v.number for v in scenario.state.stored(ORDERS)] == [2]


def test_deletion_takes_two_steps(scenario: RegistryScenario) -> None:
    scenario.submit(register("a"))
    scenario.submit(register("b"))
    assert declined(scenario, DeleteSubject(ORDERS, permanent=True)) == 40405
    assert declined(scenario, DeleteVersion(ORDERS, 1, permanent=True)) == 40407
    assert scenario.submit(DeleteVersion(ORDERS, 1)) == 1
    assert declined(scenario, DeleteVersion(ORDERS, 1)) == 40406
    assert scenario.submit(DeleteSubject(ORDERS)) == [2]
    assert declined(scenario, DeleteSubject(ORDERS)) == 40404
    assert scenario.submit(DeleteVersion(ORDERS, 1, permanent=True)) == 1
    assert declined(scenario, DeleteVersion(ORDERS, 1)) == 40402
    assert scenario.submit(DeleteSubject(ORDERS, permanent=True)) == [2]
    assert declined(scenario, DeleteSubject(ORDERS)) == 40401
    assert scenario.state.by_id(1) is None


def test_settings_are_removed_with_the_last_version(scenario: RegistryScenario) -> None:
    scenario.submit(register("a"))
    scenario.submit(
        SetConfig(ORDERS, SubjectConfig(compatibility="none"), frozenset(("compatibility",)))
    )
    scenario.submit(SetMode(ORDERS, Mode.READWRITE))
    scenario.submit(DeleteSubject(ORDERS))
    assert ORDERS in scenario.state.configs
    scenario.submit(DeleteSubject(ORDERS, permanent=True))
    assert not scenario.state.configs
    assert not scenario.state.modes


def test_an_id_is_not_given_twice_even_after_compaction_and_restart(
    scenario: RegistryScenario,
) -> None:
    scenario.submit(register("a"))
    scenario.submit(register("b"))
    scenario.submit(DeleteVersion(ORDERS, 2))
    scenario.submit(DeleteVersion(ORDERS, 2, permanent=True))
    scenario.state = scenario.replayed(scenario.compacted())
    scenario.submit(MarkLog())
    scenario.state = scenario.replayed(scenario.compacted())
    assert scenario.submit(register("c")).id == 3


def test_a_mark_without_ids_is_as_confluent_writes_it(
    scenario: RegistryScenario,
) -> None:
    scenario.submit(register("a"))
    scenario.submit(MarkLog())
    assert scenario.log[-1] == (b'{"keytype":"NOOP","magic":0}', None)


def test_a_referenced_schema_is_not_deleted(scenario: RegistryScenario) -> None:
    scenario.submit(register("base", OTHER))
    scenario.submit(register("a", ORDERS, Reference("base", OTHER, 1)))
    assert declined(scenario, DeleteVersion(OTHER, 1)) == 42206
    assert declined(scenario, DeleteSubject(OTHER)) == 42206
    scenario.submit(DeleteSubject(ORDERS))
    scenario.submit(DeleteSubject(OTHER))
    assert declined(scenario, DeleteSubject(OTHER, permanent=True)) == 42206
    scenario.submit(DeleteSubject(ORDERS, permanent=True))
    assert scenario.submit(DeleteSubject(OTHER, permanent=True)) == [1]


def test_references_inside_a_subject_do_not_prevent_its_deletion(
    scenario: RegistryScenario,
) -> None:
    scenario.submit(register("base"))
    scenario.submit(register("a", ORDERS, Reference("base", ORDERS, 1)))
    assert scenario.submit(DeleteSubject(ORDERS)) == [1, 2]


def test_imports_are_transitive_and_deepest_first(scenario: RegistryScenario) -> None:
    one, two = Subject("one"), Subject("two")
    scenario.submit(register("1", one))
    scenario.submit(register("2", two, Reference("n1", one, 1)))
    imports = scenario.state.imports((Reference("n2", two, 1), Reference("n1", one, 1)), ".")
    assert list(imports.items()) == [("n1", "1"), ("n2", "2")]
    (pinned,) = scenario.state.pinned((Reference("n2", two, -1),), ".")
    assert pinned.version == 1


def test_a_reference_to_nothing_is_an_invalid_schema(scenario: RegistryScenario) -> None:
    with pytest.raises(InvalidSchemaError, match='No schema reference found for subject "x"'):
        scenario.state.imports((Reference("x", "x", 1),), ".")


def test_circular_references_are_an_invalid_schema(scenario: RegistryScenario) -> None:
    circular = contents("a", Reference("a", ORDERS, 1))
    version = Version(ORDERS, 1, 1, circular, circular.fingerprint())
    apply(scenario.state, VersionStored(version))
    with pytest.raises(InvalidSchemaError, match="leads back"):
        scenario.state.imports((Reference("a", ORDERS, 1),), ".")


def test_a_reference_is_resolved_in_the_context_of_its_schema(scenario: RegistryScenario) -> None:
    scenario.submit(register("home", OTHER))
    scenario.submit(register("abroad", Subject(":.eu:other-value")))
    assert scenario.state.imports((Reference("n", OTHER, 1),), ".eu") == {"n": "abroad"}


def test_settings_come_from_the_nearest_scope_that_has_them(scenario: RegistryScenario) -> None:
    def level(scope: str | None, word: str) -> None:
        scenario.submit(
            SetConfig(scope, SubjectConfig(compatibility=word), frozenset(("compatibility",)))
        )

    assert scenario.state.config(ORDERS).compatibility == "BACKWARD"
    level(":.__GLOBAL:", "FORWARD")
    assert scenario.state.config(ABROAD).compatibility == "FORWARD"
    level(None, "FULL")
    assert scenario.state.config(ORDERS).compatibility == "FULL"
    assert scenario.state.config(ABROAD).compatibility == "FORWARD"
    level(":.eu:", "none")
    assert scenario.state.config(ABROAD).compatibility == "NONE"
    scenario.submit(SetConfig(ORDERS, SubjectConfig(normalize=True), frozenset(("normalize",))))
    assert scenario.state.config(ORDERS) == SubjectConfig(compatibility="FULL", normalize=True)


def test_settings_are_merged_and_null_clears(scenario: RegistryScenario) -> None:
    both = SubjectConfig(compatibility="FULL", group="major")
    scenario.submit(SetConfig(ORDERS, both, frozenset(("compatibility", "group"))))
    scenario.submit(SetConfig(ORDERS, SubjectConfig(), frozenset(("group",))))
    assert scenario.state.configs[ORDERS] == SubjectConfig(compatibility="FULL")
    assert scenario.submit(RemoveConfig(ORDERS)) == SubjectConfig(compatibility="FULL")
    assert declined(scenario, RemoveConfig(ORDERS)) == 40401


def test_an_unknown_level_is_declined(scenario: RegistryScenario) -> None:
    command = SetConfig(None, SubjectConfig(compatibility="SOME"), frozenset(("compatibility",)))
    assert declined(scenario, command) == 42203


def test_read_only_declines_every_change(scenario: RegistryScenario) -> None:
    scenario.submit(register("a"))
    scenario.submit(SetMode(ORDERS, Mode.READONLY))
    changes: list[Command | Registration] = [
        register("b"),
        DeleteSubject(ORDERS),
        DeleteVersion(ORDERS, 1),
        SetConfig(ORDERS, SubjectConfig(compatibility="FULL"), frozenset(("compatibility",))),
    ]
    assert [declined(scenario, change) for change in changes] == [42205] * 4
    assert scenario.submit(register("b", OTHER)).id == 2
    assert scenario.submit(RemoveMode(ORDERS)) is Mode.READONLY
    assert scenario.submit(register("b")).number == 2


def test_the_global_override_applies_to_all_subjects(scenario: RegistryScenario) -> None:
    scenario.submit(SetMode(ORDERS, Mode.READWRITE))
    scenario.submit(SetMode(None, Mode.READONLY_OVERRIDE))
    assert declined(scenario, register("a")) == 42205
    assert declined(scenario, SetMode(ORDERS, Mode.READONLY_OVERRIDE)) == 42204


def test_an_import_keeps_ids(scenario: RegistryScenario) -> None:
    assert declined(scenario, register("a", id=7)) == 42205
    scenario.submit(SetMode(ORDERS, Mode.IMPORT))
    assert declined(scenario, register("a")) == 42205
    imported = scenario.submit(register("a", id=7, version=3))
    assert (imported.id, imported.number) == (7, 3)
    assert scenario.submit(register("a", id=7, version=3)).key == imported.key
    assert declined(scenario, register("b", id=7, version=4)) == 42205
    assert declined(scenario, register("b", id=8, version=3)) == 42205
    scenario.submit(SetMode(ORDERS, Mode.READWRITE))
    after = scenario.submit(register("b"))
    assert (after.id, after.number) == (8, 4)


def test_importing_needs_an_empty_scope_unless_forced(scenario: RegistryScenario) -> None:
    scenario.submit(register("a"))
    assert declined(scenario, SetMode(ORDERS, Mode.IMPORT)) == 42205
    assert declined(scenario, SetMode(None, Mode.IMPORT)) == 42205
    scenario.submit(SetMode(ORDERS, Mode.IMPORT, force=True))
    scenario.submit(SetMode(ORDERS, Mode.READWRITE))
    scenario.submit(DeleteSubject(ORDERS))
    scenario.submit(SetMode(ORDERS, Mode.IMPORT))
    assert not scenario.state.stored(ORDERS)


def test_an_alias_is_resolved_in_its_context(scenario: RegistryScenario) -> None:
    scenario.submit(SetConfig(ABROAD, SubjectConfig(alias="target"), frozenset(("alias",))))
    assert scenario.state.resolve_alias(ABROAD) == ":.eu:target"
    assert scenario.state.resolve_alias(ORDERS) == ORDERS


def test_a_record_whose_id_has_other_contents_is_ignored(
    scenario: RegistryScenario,
) -> None:
    scenario.submit(register("a"))
    clash = contents("b")
    apply(scenario.state, VersionStored(Version(OTHER, 1, 1, clash, clash.fingerprint())))
    assert text_of(scenario.state.by_id(1)) == "a"
    assert not scenario.state.has_subject(OTHER)


def test_clearing_a_subject_removes_deleted_versions(scenario: RegistryScenario) -> None:
    scenario.submit(register("a"))
    scenario.submit(register("b"))
    scenario.submit(DeleteVersion(ORDERS, 1))
    apply(scenario.state, SubjectCleared(ORDERS))
    assert [v.number for v in scenario.state.stored(ORDERS)] == [2]


SUBJECTS = st.sampled_from([ORDERS, OTHER, ABROAD])
TEXTS = st.sampled_from("abcd")
COMMANDS = st.one_of(
    st.builds(register, TEXTS, SUBJECTS),
    st.builds(lambda t, s: register(t, s, Reference("n", OTHER, 1)), TEXTS, SUBJECTS),
    st.builds(DeleteSubject, SUBJECTS, st.booleans()),
    st.builds(DeleteVersion, SUBJECTS, st.sampled_from([-1, 1, 2]), st.booleans()),
    st.builds(
        lambda s: SetConfig(s, SubjectConfig(compatibility="FULL"), frozenset(("compatibility",))),
        SUBJECTS,
    ),
    st.builds(SetMode, SUBJECTS, st.sampled_from([Mode.READWRITE, Mode.READONLY, None])),
    st.builds(MarkLog),
)


@settings(deadline=None, max_examples=150)
@given(commands=st.lists(COMMANDS, max_size=40))
def test_the_log_replays_to_the_same_state_compacted_or_not(
    commands: list[Command | Registration],
) -> None:
    scenario = RegistryScenario()
    for command in commands:
        try:
            scenario.submit(command)
        except DeclinedError:
            continue
    assert known(scenario.replayed(scenario.log)) == known(scenario.state)
    assert known(scenario.replayed(scenario.log + scenario.log[-1:])) == known(scenario.state)
    scenario.submit(MarkLog())
    assert known(scenario.replayed(scenario.compacted())) == known(scenario.state)


@settings(deadline=None, max_examples=100)
@given(commands=st.lists(COMMANDS, max_size=40))
def test_an_id_never_changes_its_meaning(commands: list[Command | Registration]) -> None:
    scenario = RegistryScenario()
    meanings: dict[tuple[str, int], Contents] = {}
    for command in commands:
        try:
            reply = scenario.submit(command)
        except DeclinedError:
            continue
        if isinstance(reply, Version):
            key = (context_of(reply.subject), reply.id)
            assert meanings.setdefault(key, reply.contents) == reply.contents


def test_timestamps_come_from_the_log(scenario: RegistryScenario) -> None:
    scenario.submit(register("a"))
    version = scenario.state.latest(ORDERS)
    assert version is not None
    assert version.timestamp == Millis(1001)


def test_the_story_of_a_subject_says_what_happened(scenario: RegistryScenario) -> None:
    scenario.submit(register("a"))
    members = frozenset(("compatibility",))
    scenario.submit(SetConfig(ORDERS, SubjectConfig(compatibility="FULL"), members))
    scenario.submit(DeleteSubject(ORDERS))
    assert [text for _, text in scenario.story.of(ORDERS)] == [
        "version 1 registered with id 1",
        "settings changed: compatibility",
        "1 version(s) deleted softly",
    ]


def test_an_examination_of_another_state_is_not_used(scenario: RegistryScenario) -> None:
    """What it depends on changed: another version, the level, or a referenced schema."""
    first = register("a").examined(scenario.state)
    scenario.submit(register("b", OTHER))
    assert isinstance(scenario.submit(first), Version), "another subject does not matter"
    for change in (
        register("b"),
        SetConfig(ORDERS, SubjectConfig(compatibility="FULL"), frozenset(("compatibility",))),
        SetMode(ORDERS, Mode.IMPORT, force=True),
    ):
        examined = register("c").examined(scenario.state)
        scenario.submit(change)
        assert isinstance(scenario.submit(examined), Outdated)


def test_a_new_schema_is_not_registered_without_its_checks(scenario: RegistryScenario) -> None:
    examined = register("a").examined(scenario.state)
    examination = examined.examination
    for incomplete in (
        examination._replace(compatibility=None),
        examination._replace(equivalent_versions=None),
    ):
        command = examined._replace(examination=incomplete)
        assert isinstance(scenario.submit(command), Outdated)
    assert scenario.log == []


def damage_ids(state: RegistryState) -> None:
    state.contexts["."].ids.clear()


def damage_last_id(state: RegistryState) -> None:
    state.contexts["."].last_id = 0


def damage_order(state: RegistryState) -> None:
    state.versions[ORDERS] = dict(reversed(state.versions[ORDERS].items()))


def damage_referrers(state: RegistryState) -> None:
    state.referrers.clear()


@pytest.mark.parametrize("damage", [damage_ids, damage_last_id, damage_order, damage_referrers])
def test_a_state_that_breaks_an_invariant_fails(
    scenario: RegistryScenario, damage: Callable[[RegistryState], None]
) -> None:
    scenario.submit(register("a"))
    scenario.submit(register("b", ORDERS, Reference("a", ORDERS, 1)))
    damage(scenario.state)
    with pytest.raises(AssertionError):
        validate(scenario.state)
