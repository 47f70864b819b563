"""A rollout: what its claims notice."""

import pytest

from penstock.lab.lab_result import LabResult
from penstock.lab.read_coverage import ReadSpan
from penstock.lab.rollout import RolloutRecord, claim_rollout
from penstock.lab.rollout_fleet import FleetTotals, RolloutMode, RolloutSize

SIZE = RolloutSize(2, 4, 100, (6, 6, 6), 2)
MODE = RolloutMode("FULL", "v2", "any")


def record() -> RolloutRecord:
    """Of a rollout in which all is well."""
    totals = FleetTotals(sent=20, started=12)
    for coverage in totals.read.values():
        coverage.add(ReadSpan(0, 0, 12))
        coverage.add(ReadSpan(1, 0, 8))
    made = RolloutRecord(totals, ends={0: 12, 1: 8}, rolled_s=4.0, stopped_s=6.0, rate=100.0)
    for line in made.lag.values():
        line += [(1.0, 900.0), (5.5, 10.0), (6.5, 0.0)]
    made.old_members = [(1.0, 0.0), (2.0, 5.0), (4.0, 0.0)]
    return made


def failed(made: RolloutRecord) -> list[str]:
    result = LabResult("rollout", "?", {})
    claim_rollout(result, SIZE, MODE, made)
    return [claim.text.removeprefix("FULL, any: ") for claim in result.claims if not claim.holds]


def test_a_rollout_without_faults_holds() -> None:
    assert failed(record()) == []


def test_an_event_that_one_group_lacks_is_noticed_although_others_are_read_twice() -> None:
    made = record()
    lacking = type(made.totals.read["search"])()
    lacking.add(ReadSpan(0, 0, 12))
    lacking.add(ReadSpan(0, 0, 12))
    lacking.add(ReadSpan(1, 0, 7))
    made.totals.read["search"] = lacking
    assert failed(made) == ["search reads every event of every partition"]


@pytest.mark.parametrize(
    ("change", "claim"),
    [
        (lambda made: made.totals.failures.append("c1 v1: exit status 1"), "no process fails"),
        (lambda made: setattr(made.totals, "errors", 1), "no error"),
        (
            lambda made: setattr(made.totals, "sent", 21),
            "every acknowledged event is in the log once",
        ),
        (lambda made: made.lag["search"].append((7.0, 1.0)), "the lag ends at 0"),
        (
            lambda made: made.lag["search"].insert(1, (5.2, 2_000.0)),
            "while producers run on after the last upgrade, the lag is below the events of 5 s",
        ),
        (lambda made: setattr(made, "rate", 90.0), "at least 95 % of the rate"),
    ],
)
def test_each_fault_fails_its_claim(change: object, claim: str) -> None:
    made = record()
    assert callable(change)
    change(made)
    assert failed(made) == [claim]
