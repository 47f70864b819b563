"""Who uses what: bounded, shared by all nodes, and honest about what is not known."""

import time
from collections.abc import Callable
from typing import Any

import httpx

from penstock.model import Millis
from penstock.registry.retirement import DAY_MS, assess
from penstock.registry.store.commands import DeleteVersion
from penstock.registry.store.examination import SchemaProposal
from penstock.registry.subject_names import Subject
from penstock.registry.usage import (
    CONSUMER,
    KnownSince,
    SchemaUsage,
    SchemaUse,
    UsageReport,
    UseCount,
    identify,
    read_report,
    write_report,
)
from penstock.schemas.model import Reference, SchemaText, SchemaType
from tests.support.registry_scenario import Registration, RegistryScenario

NOW = Millis(100 * DAY_MS)
WEEK_MS = 7 * DAY_MS
ORDERS = Subject("orders-value")


def use(schema_id: int, client: str = "c") -> SchemaUse:
    return SchemaUse(".", schema_id, client, CONSUMER)


def test_the_latest_use_comes_first_with_its_count() -> None:
    usage = SchemaUsage(Millis(0))
    for at, schema_id in enumerate((1, 2, 1)):
        usage.note(use(schema_id), Millis(at))
    blocked = usage.of(".", frozenset({1, 2}))
    assert [(one.id, seen.last_at, seen.times) for one, seen in blocked] == [(1, 2, 2), (2, 1, 1)]
    assert usage.of(".eu", frozenset({1})) == []


def test_the_oldest_is_forgotten_and_that_is_noted() -> None:
    usage = SchemaUsage(Millis(0), uses_max=2)
    for schema_id in (1, 2, 3):
        usage.note(use(schema_id), Millis(schema_id))
    assert usage.of(".", frozenset({1})) == []
    assert usage.evicted == 1


def test_a_client_is_known_by_its_word_or_by_its_agent() -> None:
    assert identify("till; role=producer", "x", CONSUMER) == ("till", "producer")
    assert identify("till;role=king", "x", CONSUMER) == ("till", "consumer")
    assert identify("", "agent/1", CONSUMER) == ("agent/1", "consumer")
    assert identify("", "", CONSUMER) == ("unknown", "consumer")
    assert len(identify("n" * 1000, "", CONSUMER)[0]) == 200


def test_what_others_saw_is_merged_and_not_written_again() -> None:
    usage = SchemaUsage(Millis(0))
    usage.note(use(1), Millis(5))
    assert usage.take_unshared() == [(use(1), UseCount(Millis(5), 1))]
    usage.merge(use(1), UseCount(Millis(9), 7))
    usage.merge(use(2), UseCount(Millis(3), 1))
    assert usage.take_unshared() == []
    assert usage.of(".", frozenset({1, 2})) == [
        (use(1), UseCount(Millis(9), 7)),
        (use(2), UseCount(Millis(3), 1)),
    ]
    usage.merge(use(1), UseCount(Millis(1), 1))
    assert usage.of(".", frozenset({1})) == [(use(1), UseCount(Millis(9), 7))]


def test_evicted_uses_are_not_written() -> None:
    usage = SchemaUsage(Millis(0), uses_max=1)
    usage.note(use(1), Millis(1))
    usage.note(use(2), Millis(2))
    assert [one.id for one, _ in usage.take_unshared()] == [2]


def test_a_use_goes_through_its_record_and_back() -> None:
    seen = UseCount(Millis(1_700_000_000_000), 3)
    assert read_report(*write_report(use(1, "grüße"), seen), Millis(0)) == UsageReport(
        use(1, "grüße"), seen
    )
    assert read_report(b'{"since":true}', b'{"at":7}', Millis(0)) == KnownSince(Millis(7))


def test_unknown_records_are_skipped() -> None:
    for key, value in (
        (None, None),
        (b"{", b"{}"),
        (b"[]", b"{}"),
        (b"{}", b"{}"),
        (b'{"id":[]}', b'{"lastSeen":1,"count":1}'),
        (b"{}", b'{"lastSeen":null,"count":1}'),
    ):
        assert read_report(key, value, Millis(0)) is None


def register(text: str, subject: Subject = ORDERS, *references: Reference) -> Registration:
    return Registration(SchemaProposal(subject, SchemaText(SchemaType.AVRO, text, references)))


def reasons(scenario: RegistryScenario, usage: SchemaUsage) -> dict[int, tuple[str, ...]]:
    retirements = assess(scenario.state, ORDERS, usage, NOW, quiet_ms=WEEK_MS)
    return {each.version.number: each.reasons for each in retirements}


def test_an_unused_version_may_be_deleted_and_the_latest_may_not(
    scenario: RegistryScenario,
) -> None:
    scenario.submit(register('"int"'))
    scenario.submit(register('"long"'))
    blocked = reasons(scenario, SchemaUsage(Millis(0)))
    assert blocked == {1: (), 2: ("it is the latest version: producers and checks use it",)}


def test_a_version_that_is_used_may_not_be_deleted_until_its_users_are_quiet(
    scenario: RegistryScenario,
) -> None:
    scenario.submit(register('"int"'))
    scenario.submit(register('"long"'))
    usage = SchemaUsage(Millis(0))
    usage.note(use(1, "till-7"), Millis(NOW - 3 * DAY_MS))
    usage.note(use(1, "gone"), Millis(NOW - 8 * DAY_MS))
    assert reasons(scenario, usage)[1] == ("till-7 (consumer) used it 3 days ago",)


def test_a_version_that_others_build_on_may_not_be_deleted(scenario: RegistryScenario) -> None:
    scenario.submit(register('"int"'))
    scenario.submit(register('"long"'))
    other = Subject("other-value")
    scenario.submit(register('"string"', other, Reference("orders", ORDERS, 1)))
    assert reasons(scenario, SchemaUsage(Millis(0)))[1] == ("other-value version 1 refers to it",)
    scenario.submit(DeleteVersion(other, 1))
    assert reasons(scenario, SchemaUsage(Millis(0)))[1] == ()


def test_nothing_may_be_deleted_while_too_little_is_known(scenario: RegistryScenario) -> None:
    scenario.submit(register('"int"'))
    scenario.submit(register('"long"'))
    young = SchemaUsage(Millis(NOW - DAY_MS))
    assert reasons(scenario, young)[1] == (
        "uses are known for 24 hours only: check again in 6 days",
    )
    full = SchemaUsage(Millis(0), uses_max=1)
    full.note(use(8), Millis(1))
    full.note(use(9), Millis(2))
    assert reasons(scenario, full)[1] == ("1 uses are not known: there were too many to keep",)


def until(ask: Callable[[], Any], wanted: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + 40
    while not wanted(blocked := ask()):
        assert time.monotonic() < deadline, blocked
        time.sleep(0.2)
    return blocked


def test_uses_are_known_to_other_nodes_and_after_a_restart(start_node: Any) -> None:
    topic = "_schemas-usage-shared"
    first, second = start_node(topic), start_node(topic)
    schema_id = httpx.post(
        f"{first.url}/subjects/s/versions", json={"schema": '"int"'}, timeout=30
    ).json()["id"]
    headers = {"penstock-client": "till-7; role=consumer"}
    assert httpx.get(
        f"{second.url}/schemas/ids/{schema_id}", headers=headers, timeout=30
    ).is_success

    def asked(node: Any) -> Any:
        return httpx.get(f"{node.url}/subjects/s/usage?quietDays=1", timeout=30).json()

    def clients(answer: Any) -> set[str]:
        return {one["client"] for one in answer["uses"]}

    answer = until(lambda: asked(first), lambda blocked: "till-7" in clients(blocked))
    assert answer["complete"]
    (version,) = answer["versions"]
    assert not version["safeToDelete"]
    assert any(reason.startswith("till-7 (consumer) used it") for reason in version["reasons"])
    first.end()
    second.end()
    third = start_node(topic)
    again = until(lambda: asked(third), lambda blocked: bool(blocked["complete"]))
    assert "till-7" in clients(again)
    assert again["since"] <= answer["since"]
