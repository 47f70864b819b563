"""The registry's store: ids, versions, duplicates, deletions, references, settings, modes."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model import Millis
from penstock.registry.errors import Declined
from penstock.registry.store.apply import apply
from penstock.registry.store.commands import (
    Command,
    DeleteSubject,
    DeleteVersion,
    Mark,
    Register,
    RemoveConfig,
    RemoveMode,
    SetConfig,
    SetMode,
)
from penstock.registry.store.events import (
    Config,
    Contents,
    Mode,
    SubjectCleared,
    Version,
    VersionStored,
)
from penstock.registry.store.state import Store
from penstock.registry.subject_names import Subject, context_of
from penstock.schemas.identity import Metadata, Rule, RuleSet
from penstock.schemas.model import InvalidSchemaError, Reference, SchemaText, SchemaType

ORDERS = Subject("orders-value")
OTHER = Subject("other-value")
ABROAD = Subject(":.eu:orders-value")


def contents(text: str, *references: Reference, **more: Any) -> Contents:
    return Contents(SchemaText(SchemaType.AVRO, text, references), **more)


def register(text: str, subject: Subject = ORDERS, *references: Reference, **more: Any) -> Register:
    return Register(subject, contents(text, *references), **more)


def declined(desk: Any, command: Command) -> int:
    with pytest.raises(Declined) as caught:
        desk.ask(command)
    return caught.value.code


def known(store: Store) -> object:
    """All a client could find out."""
    versions = {
        subject: [(v.number, v.id, v.contents, v.deleted) for v in found.values()]
        for subject, found in store.versions.items()
    }
    contexts = {
        name: (
            {id: set(users) for id, users in context.ids.items()},
            context.by_fingerprint,
            context.last_id,
        )
        for name, context in store.contexts.items()
    }
    referrers = {key: set(found) for key, found in store.referrers.items()}
    return versions, contexts, store.guids, referrers, store.configs, store.modes


def test_the_first_schema_gets_id_and_version_one(desk: Any) -> None:
    version = desk.ask(register("a"))
    assert (version.id, version.number) == (1, 1)


def test_a_schema_that_is_there_keeps_its_version_and_id(desk: Any) -> None:
    first = desk.ask(register("a"))
    written = len(desk.log)
    assert desk.ask(register("a")) == desk.store.latest(ORDERS)
    assert first.key == desk.ask(register("a")).key
    assert len(desk.log) == written


def test_the_same_schema_elsewhere_in_the_context_has_the_same_id(desk: Any) -> None:
    desk.ask(register("a"))
    desk.ask(register("b"))
    other = desk.ask(register("b", OTHER))
    assert (other.id, other.number) == (2, 1)


def test_ids_are_counted_in_each_context(desk: Any) -> None:
    desk.ask(register("a"))
    desk.ask(register("b"))
    assert desk.ask(register("b", ABROAD)).id == 1
    assert desk.log[-2].key == (
        b'{"keytype":"CONTEXT","tenant":"default","context":".eu","magic":0}'
    )


def test_a_schema_said_in_other_words_is_found(desk: Any) -> None:
    desk.ask(register("a"))
    assert desk.ask(register("a ", equivalents=frozenset({1}))).id == 1


def test_other_metadata_make_another_schema(desk: Any) -> None:
    owned = Metadata(properties={"owner": "shop"})
    desk.ask(register("a"))
    second = desk.ask(Register(ORDERS, contents("a", metadata=owned), equivalents=frozenset({1})))
    assert (second.id, second.number) == (2, 2)
    again = desk.ask(Register(ORDERS, contents("a", metadata=owned)))
    assert again.number == 2


def test_metadata_are_handed_on_to_the_next_version(desk: Any) -> None:
    owned = Metadata(properties={"owner": "shop"})
    desk.ask(Register(ORDERS, contents("a", metadata=owned)))
    assert desk.ask(register("b")).contents.metadata == owned
    assert desk.ask(register("b")).number == 2


def test_settings_add_metadata_below_and_above_what_a_schema_brings(desk: Any) -> None:
    config = Config(
        default_metadata=Metadata(properties={"owner": "nobody", "tier": "3"}),
        override_metadata=Metadata(properties={"tier": "1"}),
    )
    members = frozenset(("default_metadata", "override_metadata"))
    desk.ask(SetConfig(ORDERS, config, members))
    brought = Metadata(properties={"owner": "shop", "tier": "2"})
    stored = desk.ask(Register(ORDERS, contents("a", metadata=brought)))
    assert stored.contents.metadata.properties == {"owner": "shop", "tier": "1"}
    assert desk.ask(Register(ORDERS, contents("a", metadata=brought))).number == 1


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
def test_a_rule_set_that_contradicts_itself_is_declined(desk: Any, rules: RuleSet) -> None:
    assert declined(desk, Register(ORDERS, contents("a", rule_set=rules))) == 42210


def test_a_given_version_must_be_the_next_and_is_written_down(desk: Any) -> None:
    desk.ask(register("a"))
    assert declined(desk, register("b", version=3)) == 42201
    second = desk.ask(register("b", version=2))
    assert second.contents.metadata.properties == {"confluent:version": "2"}
    third = desk.ask(register("c"))
    assert third.contents.metadata.properties == {"confluent:version": "3"}
    assert desk.ask(register("c", equivalents=frozenset({3}))).number == 3


def test_version_minus_one_is_only_for_the_latest(desk: Any) -> None:
    desk.ask(register("a"))
    desk.ask(register("b"))
    assert desk.ask(register("b", version=-1)).number == 2
    assert declined(desk, register("a", version=-1)) == 42201
    assert declined(desk, register("c", version=-1)) == 42201


def test_a_softly_deleted_schema_stays_readable_by_id(desk: Any) -> None:
    desk.ask(register("a"))
    assert desk.ask(DeleteVersion(ORDERS, 1)) == 1
    assert not desk.store.has_subject(ORDERS)
    assert desk.store.by_id(1).contents.source.text == "a"


def test_a_softly_deleted_schema_comes_back_with_its_id_and_a_new_version(desk: Any) -> None:
    desk.ask(register("a"))
    desk.ask(DeleteSubject(ORDERS))
    back = desk.ask(register("a"))
    assert (back.id, back.number) == (1, 2)
    assert [v.number for v in desk.store.stored(ORDERS)] == [2]


def test_deleting_takes_two_steps(desk: Any) -> None:
    desk.ask(register("a"))
    desk.ask(register("b"))
    assert declined(desk, DeleteSubject(ORDERS, permanent=True)) == 40405
    assert declined(desk, DeleteVersion(ORDERS, 1, permanent=True)) == 40407
    assert desk.ask(DeleteVersion(ORDERS, 1)) == 1
    assert declined(desk, DeleteVersion(ORDERS, 1)) == 40406
    assert desk.ask(DeleteSubject(ORDERS)) == [2]
    assert declined(desk, DeleteSubject(ORDERS)) == 40404
    assert desk.ask(DeleteVersion(ORDERS, 1, permanent=True)) == 1
    assert declined(desk, DeleteVersion(ORDERS, 1)) == 40402
    assert desk.ask(DeleteSubject(ORDERS, permanent=True)) == [2]
    assert declined(desk, DeleteSubject(ORDERS)) == 40401
    assert desk.store.by_id(1) is None


def test_settings_go_with_the_last_version(desk: Any) -> None:
    desk.ask(register("a"))
    desk.ask(SetConfig(ORDERS, Config(compatibility="none"), frozenset(("compatibility",))))
    desk.ask(SetMode(ORDERS, Mode.READWRITE))
    desk.ask(DeleteSubject(ORDERS))
    assert ORDERS in desk.store.configs
    desk.ask(DeleteSubject(ORDERS, permanent=True))
    assert not desk.store.configs
    assert not desk.store.modes


def test_an_id_is_not_given_twice_even_after_compaction_and_restart(desk: Any) -> None:
    desk.ask(register("a"))
    desk.ask(register("b"))
    desk.ask(DeleteVersion(ORDERS, 2))
    desk.ask(DeleteVersion(ORDERS, 2, permanent=True))
    desk.store = desk.replayed(desk.compacted())
    desk.ask(Mark())
    desk.store = desk.replayed(desk.compacted())
    assert desk.ask(register("c")).id == 3


def test_a_mark_without_anything_to_say_is_as_confluent_writes_it(desk: Any) -> None:
    desk.ask(register("a"))
    desk.ask(Mark())
    assert desk.log[-1] == (b'{"keytype":"NOOP","magic":0}', None)


def test_what_others_build_on_is_not_deleted(desk: Any) -> None:
    desk.ask(register("base", OTHER))
    desk.ask(register("a", ORDERS, Reference("base", OTHER, 1)))
    assert declined(desk, DeleteVersion(OTHER, 1)) == 42206
    assert declined(desk, DeleteSubject(OTHER)) == 42206
    desk.ask(DeleteSubject(ORDERS))
    desk.ask(DeleteSubject(OTHER))
    assert declined(desk, DeleteSubject(OTHER, permanent=True)) == 42206
    desk.ask(DeleteSubject(ORDERS, permanent=True))
    assert desk.ask(DeleteSubject(OTHER, permanent=True)) == [1]


def test_references_inside_a_subject_do_not_hold_it(desk: Any) -> None:
    desk.ask(register("base"))
    desk.ask(register("a", ORDERS, Reference("base", ORDERS, 1)))
    assert desk.ask(DeleteSubject(ORDERS)) == [1, 2]


def test_references_are_found_with_all_they_reach_deepest_first(desk: Any) -> None:
    one, two = Subject("one"), Subject("two")
    desk.ask(register("1", one))
    desk.ask(register("2", two, Reference("n1", one, 1)))
    found = desk.store.imports((Reference("n2", two, 1), Reference("n1", one, 1)), ".")
    assert list(found.items()) == [("n1", "1"), ("n2", "2")]
    (pinned,) = desk.store.pinned((Reference("n2", two, -1),), ".")
    assert pinned.version == 1


def test_a_reference_to_nothing_is_an_invalid_schema(desk: Any) -> None:
    with pytest.raises(InvalidSchemaError, match='No schema reference found for subject "x"'):
        desk.store.imports((Reference("x", "x", 1),), ".")


def test_references_that_lead_back_are_an_invalid_schema(desk: Any) -> None:
    around = contents("a", Reference("a", ORDERS, 1))
    version = Version(ORDERS, 1, 1, around, around.fingerprint())
    apply(desk.store, VersionStored(version))
    with pytest.raises(InvalidSchemaError, match="leads back"):
        desk.store.imports((Reference("a", ORDERS, 1),), ".")


def test_a_reference_is_looked_for_in_the_context_it_is_said_in(desk: Any) -> None:
    desk.ask(register("home", OTHER))
    desk.ask(register("abroad", Subject(":.eu:other-value")))
    assert desk.store.imports((Reference("n", OTHER, 1),), ".eu") == {"n": "abroad"}


def test_settings_come_from_the_nearest_scope_that_has_them(desk: Any) -> None:
    def level(scope: str | None, word: str) -> None:
        desk.ask(SetConfig(scope, Config(compatibility=word), frozenset(("compatibility",))))

    assert desk.store.config(ORDERS).compatibility == "BACKWARD"
    level(":.__GLOBAL:", "FORWARD")
    assert desk.store.config(ABROAD).compatibility == "FORWARD"
    level(None, "FULL")
    assert desk.store.config(ORDERS).compatibility == "FULL"
    assert desk.store.config(ABROAD).compatibility == "FORWARD"
    level(":.eu:", "none")
    assert desk.store.config(ABROAD).compatibility == "NONE"
    desk.ask(SetConfig(ORDERS, Config(normalize=True), frozenset(("normalize",))))
    assert desk.store.config(ORDERS) == Config(compatibility="FULL", normalize=True)


def test_settings_are_merged_and_null_clears(desk: Any) -> None:
    both = Config(compatibility="FULL", group="major")
    desk.ask(SetConfig(ORDERS, both, frozenset(("compatibility", "group"))))
    desk.ask(SetConfig(ORDERS, Config(), frozenset(("group",))))
    assert desk.store.configs[ORDERS] == Config(compatibility="FULL")
    assert desk.ask(RemoveConfig(ORDERS)) == Config(compatibility="FULL")
    assert declined(desk, RemoveConfig(ORDERS)) == 40401


def test_a_level_nobody_knows_is_declined(desk: Any) -> None:
    command = SetConfig(None, Config(compatibility="SOME"), frozenset(("compatibility",)))
    assert declined(desk, command) == 42203


def test_read_only_declines_every_change(desk: Any) -> None:
    desk.ask(register("a"))
    desk.ask(SetMode(ORDERS, Mode.READONLY))
    changes: list[Command] = [
        register("b"),
        DeleteSubject(ORDERS),
        DeleteVersion(ORDERS, 1),
        SetConfig(ORDERS, Config(compatibility="FULL"), frozenset(("compatibility",))),
    ]
    assert [declined(desk, one) for one in changes] == [42205] * 4
    assert desk.ask(register("b", OTHER)).id == 2
    assert desk.ask(RemoveMode(ORDERS)) is Mode.READONLY
    assert desk.ask(register("b")).number == 2


def test_the_global_override_beats_what_subjects_say(desk: Any) -> None:
    desk.ask(SetMode(ORDERS, Mode.READWRITE))
    desk.ask(SetMode(None, Mode.READONLY_OVERRIDE))
    assert declined(desk, register("a")) == 42205
    assert declined(desk, SetMode(ORDERS, Mode.READONLY_OVERRIDE)) == 42204


def test_an_import_brings_ids_along(desk: Any) -> None:
    assert declined(desk, register("a", id=7)) == 42205
    desk.ask(SetMode(ORDERS, Mode.IMPORT))
    assert declined(desk, register("a")) == 42205
    imported = desk.ask(register("a", id=7, version=3))
    assert (imported.id, imported.number) == (7, 3)
    assert desk.ask(register("a", id=7, version=3)).key == imported.key
    assert declined(desk, register("b", id=7, version=4)) == 42205
    assert declined(desk, register("b", id=8, version=3)) == 42205
    desk.ask(SetMode(ORDERS, Mode.READWRITE))
    after = desk.ask(register("b"))
    assert (after.id, after.number) == (8, 4)


def test_importing_needs_an_empty_place_unless_forced(desk: Any) -> None:
    desk.ask(register("a"))
    assert declined(desk, SetMode(ORDERS, Mode.IMPORT)) == 42205
    assert declined(desk, SetMode(None, Mode.IMPORT)) == 42205
    desk.ask(SetMode(ORDERS, Mode.IMPORT, force=True))
    desk.ask(SetMode(ORDERS, Mode.READWRITE))
    desk.ask(DeleteSubject(ORDERS))
    desk.ask(SetMode(ORDERS, Mode.IMPORT))
    assert not desk.store.stored(ORDERS)


def test_an_alias_leads_to_its_target_in_the_same_context(desk: Any) -> None:
    desk.ask(SetConfig(ABROAD, Config(alias="target"), frozenset(("alias",))))
    assert desk.store.aliased(ABROAD) == ":.eu:target"
    assert desk.store.aliased(ORDERS) == ORDERS


def test_a_record_whose_id_belongs_to_other_contents_is_left_out(desk: Any) -> None:
    desk.ask(register("a"))
    clash = contents("b")
    apply(desk.store, VersionStored(Version(OTHER, 1, 1, clash, clash.fingerprint())))
    assert desk.store.by_id(1).contents.source.text == "a"
    assert not desk.store.has_subject(OTHER)


def test_clearing_a_subject_forgets_what_is_deleted(desk: Any) -> None:
    desk.ask(register("a"))
    desk.ask(register("b"))
    desk.ask(DeleteVersion(ORDERS, 1))
    apply(desk.store, SubjectCleared(ORDERS))
    assert [v.number for v in desk.store.stored(ORDERS)] == [2]


SUBJECTS = st.sampled_from([ORDERS, OTHER, ABROAD])
TEXTS = st.sampled_from("abcd")
COMMANDS = st.one_of(
    st.builds(register, TEXTS, SUBJECTS),
    st.builds(lambda t, s: register(t, s, Reference("n", OTHER, 1)), TEXTS, SUBJECTS),
    st.builds(DeleteSubject, SUBJECTS, st.booleans()),
    st.builds(DeleteVersion, SUBJECTS, st.sampled_from([-1, 1, 2]), st.booleans()),
    st.builds(
        lambda s: SetConfig(s, Config(compatibility="FULL"), frozenset(("compatibility",))),
        SUBJECTS,
    ),
    st.builds(SetMode, SUBJECTS, st.sampled_from([Mode.READWRITE, Mode.READONLY, None])),
    st.builds(Mark),
)


@settings(deadline=None, max_examples=150)
@given(commands=st.lists(COMMANDS, max_size=40))
def test_what_is_read_again_is_what_was_known_compacted_or_not(
    desk_class: Callable[[], Any], commands: list[Command]
) -> None:
    desk = desk_class()
    for command in commands:
        try:
            desk.ask(command)
        except Declined:
            continue
    assert known(desk.replayed(desk.log)) == known(desk.store)
    assert known(desk.replayed(desk.log + desk.log[-1:])) == known(desk.store)
    desk.ask(Mark())
    assert known(desk.replayed(desk.compacted())) == known(desk.store)


@settings(deadline=None, max_examples=100)
@given(commands=st.lists(COMMANDS, max_size=40))
def test_an_id_never_changes_its_meaning(
    desk_class: Callable[[], Any], commands: list[Command]
) -> None:
    desk = desk_class()
    meant: dict[tuple[str, int], Contents] = {}
    for command in commands:
        try:
            answer = desk.ask(command)
        except Declined:
            continue
        if isinstance(answer, Version):
            place = (context_of(answer.subject), answer.id)
            assert meant.setdefault(place, answer.contents) == answer.contents


def test_times_come_from_the_log(desk: Any) -> None:
    desk.ask(register("a"))
    assert desk.store.latest(ORDERS).timestamp == Millis(1001)
