"""The gate, readers and plans against a real registry over a real broker."""

from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.client.reader_lease import declare_reader, leased, reader_subject, retire_reader
from penstock.client.registry_api import RegistryApi
from penstock.client.registry_documents import schema_body
from penstock.gate.change_plan import ChangePlan, PlanAction, Planner, dependency_order
from penstock.gate.check import CheckOptions
from penstock.gate.folder import ContractFolder
from penstock.gate.proposals import CheckRequest, check_proposed
from penstock.gate.registry_contracts import RegistryContracts
from penstock.gate.results import CheckResult, CheckStatus
from penstock.schemas.avro import parse
from penstock.schemas.compatibility import Level
from penstock.schemas.model import SchemaText, SchemaType
from penstock.schemas.readers import Reader
from penstock.serde.errors import ArgumentError, ClientError, RegistryUnavailableError

Write = Callable[..., Path]
MakeOrder = Callable[..., str]
TODAY = date(2026, 6, 1)
OPTIONS = CheckOptions(TODAY)
COUPON = 'coupon:["null","string"]=null'


def avro(text: str) -> dict[str, Any]:
    return schema_body(SchemaText(SchemaType.AVRO, text))


def check(api: RegistryApi, path: Path, text: str, subject: str) -> CheckResult:
    path.write_text(text)
    (result,) = check_proposed(CheckRequest(path, subject, RegistryContracts(api)), OPTIONS)
    return result


def planned(api: RegistryApi, folder: Path) -> tuple[Planner, ChangePlan]:
    planner = Planner(ContractFolder(folder), api, OPTIONS)
    return planner, planner.plan()


def applied(api: RegistryApi, folder: Path) -> ChangePlan:
    planner, plan = planned(api, folder)
    for change in plan.changes:
        planner.apply(change)
    return plan


def test_a_file_is_checked_against_a_subject_and_its_level(
    api: RegistryApi, subject: str, order: MakeOrder, tmp_path: Path
) -> None:
    api.register(subject, avro(order("a:int")))
    path = tmp_path / "new.avsc"
    breaking = check(api, path, order("a:int", "b:int"), subject)
    assert (breaking.status, breaking.level) == (CheckStatus.BREAKING, Level.BACKWARD)
    api.set_config(subject, {"compatibility": "FORWARD"})
    fine = check(api, path, order("a:int", "b:int"), subject)
    assert (fine.status, fine.level, fine.against) == (CheckStatus.COMPATIBLE, Level.FORWARD, 1)


def test_any_schema_is_compatible_with_an_unknown_subject(
    api: RegistryApi, subject: str, order: MakeOrder, tmp_path: Path
) -> None:
    result = check(api, tmp_path / "new.avsc", order("a:int"), subject)
    assert (result.status, result.against) == (CheckStatus.COMPATIBLE, None)


def test_versions_of_another_compatibility_group_are_not_compared(
    api: RegistryApi, subject: str, order: MakeOrder, tmp_path: Path
) -> None:
    api.set_config(subject, {"compatibility": "BACKWARD_TRANSITIVE", "compatibilityGroup": "major"})
    for major, text in (("1", order("a:string")), ("2", order("a:int"))):
        api.register(subject, avro(text) | {"metadata": {"properties": {"major": major}}})
    result = check(api, tmp_path / "new.avsc", order("a:int", "b:int=0"), subject)
    assert result.status is CheckStatus.COMPATIBLE


def test_an_unreachable_registry_is_an_unchecked_result(tmp_path: Path, order: MakeOrder) -> None:
    with RegistryApi("http://127.0.0.1:9") as api:
        result = check(api, tmp_path / "new.avsc", order("a:int"), "orders-value")
        assert result.status is CheckStatus.UNCHECKED
        assert "Is it running" in result.error
        with pytest.raises(RegistryUnavailableError):
            api.subjects()


def test_removing_a_field_breaks_a_reader_declared_in_the_registry(
    api: RegistryApi, subject: str, order: MakeOrder, tmp_path: Path
) -> None:
    api.register(subject, avro(order("id:long", COUPON)))
    fraud = Reader("fraud-scorer", "7", "risk", fields=("coupon",), only_fields=True)
    assert declare_reader(api, subject, leased(fraud, TODAY), TODAY)
    result = check(api, tmp_path / "new.avsc", order("id:long"), subject)
    assert result.status is CheckStatus.BREAKING
    (of_reader,) = result.readers
    assert of_reader.reader.title == "fraud-scorer 7"
    assert of_reader.reader.last_day == TODAY + timedelta(days=30)
    assert retire_reader(api, subject, "fraud-scorer")
    assert not retire_reader(api, subject, "fraud-scorer")
    assert (
        check(api, tmp_path / "new.avsc", order("id:long"), subject).status
        is CheckStatus.COMPATIBLE
    )


def test_a_reader_is_renewed_when_half_of_its_lease_is_over(
    api: RegistryApi, subject: str, order: MakeOrder
) -> None:
    reader = Reader("r", schema=parse(order("a:int")))
    written = [
        declare_reader(api, subject, leased(reader, day), day)
        for day in (TODAY + timedelta(days=days) for days in (0, 0, 14, 16, 20))
    ]
    assert written == [True, False, False, True, False]
    assert len(api.versions(reader_subject(subject, "r"))) == 1


def test_a_reader_may_change_its_schema_freely(
    api: RegistryApi, subject: str, order: MakeOrder
) -> None:
    for text in (order("a:int"), order("b:string")):
        assert declare_reader(api, subject, Reader("r", schema=parse(text)), TODAY)
    (reader,) = RegistryContracts(api).readers(subject)
    assert reader.schema is not None
    assert reader.schema.canonical == parse(order("b:string")).canonical
    assert reader.last_day is None


def test_readers_belong_to_one_subject(api: RegistryApi, subject: str, order: MakeOrder) -> None:
    reader = Reader("r", schema=parse(order("a:int")))
    declare_reader(api, f"{subject}/x", reader, TODAY)
    declare_reader(api, f":.eu:{subject}", reader, TODAY)
    contracts = RegistryContracts(api)
    assert contracts.readers(subject) == []
    assert [one.name for one in contracts.readers(f"{subject}/x")] == ["r"]
    assert [one.name for one in contracts.readers(f":.eu:{subject}")] == ["r"]
    assert not any(one.startswith(":.readers:") for one in contracts.subjects())


def test_a_reader_of_an_unknown_subject_needs_a_schema(api: RegistryApi, subject: str) -> None:
    with pytest.raises(ClientError, match="pass the reader's schema"):
        declare_reader(api, subject, Reader("r"), TODAY)
    with pytest.raises(ArgumentError, match="invalid reader name"):
        reader_subject(subject, "a/b")


def test_the_plan_after_an_applied_plan_is_empty(
    api: RegistryApi, subject: str, order: MakeOrder, write: Write
) -> None:
    money = '{"type": "record", "name": "Money", "fields": [{"name": "cents", "type": "long"}]}'
    reference = f'[[references]]\nname = "Money"\nsubject = "z-{subject}"\nversion = 1\nsince = 2'
    folder = write(
        {
            f"{subject}/v1.avsc": order("a:int"),
            f"{subject}/v2.avsc": order("a:int", 'total:["null","Money"]=null'),
            f"{subject}/contract.toml": f'compatibility = "FULL"\n{reference}',
            f"{subject}/readers/r.toml": 'fields = ["a"]\nowner = "risk"\nexpires = 2027-01-01',
            f"z-{subject}/v1.avsc": money,
        }
    )
    assert dependency_order(ContractFolder(folder)) == [f"z-{subject}", subject]
    first = applied(api, folder)
    assert [change.action for change in first.changes] == [
        PlanAction.SET_COMPATIBILITY,
        *[PlanAction.REGISTER] * 3,
        PlanAction.DECLARE_READER,
    ]
    assert planned(api, folder)[1].changes == ()
    assert api.versions(subject) == [1, 2]
    assert RegistryContracts(api).settings(subject).level is Level.FULL
    (reader,) = RegistryContracts(api).readers(subject)
    assert (reader.fields, reader.owner) == (("a",), "risk")


def test_a_plan_maps_references_to_the_version_numbers_of_the_registry(
    api: RegistryApi, subject: str, order: MakeOrder, write: Write
) -> None:
    base = f"z-{subject}"
    money = '{"type": "record", "name": "Money", "fields": [{"name": "cents", "type": "long"}]}'
    api.register(base, avro('{"type": "record", "name": "Money", "fields": []}'))
    api.set_config(base, {"compatibility": "NONE"})
    reference = f'[[references]]\nname = "Money"\nsubject = "{base}"\nversion = 1'
    folder = write(
        {
            f"{subject}/v1.avsc": order('total:"Money"'),
            f"{subject}/contract.toml": reference,
            f"{base}/v1.avsc": money,
        }
    )
    applied(api, folder)
    document = api.version(subject, 1)
    assert document["references"] == [{"name": "Money", "subject": base, "version": 2}]
    assert planned(api, folder)[1].changes == ()


def test_a_refused_plan_changes_nothing(
    api: RegistryApi, subject: str, order: MakeOrder, write: Write
) -> None:
    api.register(subject, avro(order("a:int")))
    folder = write({f"{subject}/v1.avsc": order("a:int"), f"{subject}/v2.avsc": order("a:string")})
    plan = planned(api, folder)[1]
    assert plan.is_refused
    assert [change.is_refused for change in plan.changes] == [True]
    assert subject not in plan.unmanaged


@pytest.mark.parametrize("edited", [1, 2])
def test_a_plan_refuses_an_edited_published_version(
    api: RegistryApi, subject: str, write: Write, order: MakeOrder, edited: int
) -> None:
    folder = write(
        {f"{subject}/v1.avsc": order("a:int"), f"{subject}/v2.avsc": order("a:int", "b:int=0")}
    )
    applied(api, folder)
    (folder / subject / f"v{edited}.avsc").write_text(order("a:int", "c:int=0"))
    _, plan = planned(api, folder)
    assert plan.is_refused
    (planned_change,) = plan.changes
    assert planned_change.result is not None
    (change,) = planned_change.result.breaking_changes
    assert change.kind == "VERSION_REWRITTEN"
    assert f"version {edited} was published" in change.sentence
    assert "v3" in change.sentence
    (result,) = check_proposed(CheckRequest(folder, subject, RegistryContracts(api)), OPTIONS)
    assert [one.kind for one in result.breaking_changes] == ["VERSION_REWRITTEN"]


def test_a_field_can_be_removed_together_with_its_last_use(
    api: RegistryApi, subject: str, order: MakeOrder, write: Write
) -> None:
    toml = f"{subject}/readers/fraud.toml"
    first = {f"{subject}/v1.avsc": order("id:long", COUPON), toml: 'fields = ["coupon"]\nreads = 1'}
    applied(api, write(first))
    second = first | {f"{subject}/v2.avsc": order("id:long")}
    plan = planned(api, write(second))[1]
    assert [(one.action, one.is_refused) for one in plan.changes] == [(PlanAction.REGISTER, True)]
    third = second | {toml: 'fields = ["id"]\nreads = 1'}
    plan = applied(api, write(third))
    assert [one.action for one in plan.changes] == [PlanAction.UPDATE_READER, PlanAction.REGISTER]
    assert api.versions(subject) == [1, 2]
    assert planned(api, write(third))[1].changes == ()


def test_a_change_of_settings_is_planned_once(api: RegistryApi, subject: str, write: Write) -> None:
    settings = f"{subject}/contract.toml"
    files = {f"{subject}/v1.json": "{}", settings: 'compatibility = "FULL"\npolicy = "LENIENT"'}
    applied(api, write(files))
    assert planned(api, write(files))[1].changes == ()
    plan = applied(api, write(files | {settings: 'compatibility = "FULL"'}))
    assert [(one.before, one.after) for one in plan.changes] == [("FULL, LENIENT", "FULL")]
    assert planned(api, write(files | {settings: 'compatibility = "FULL"'}))[1].changes == ()
