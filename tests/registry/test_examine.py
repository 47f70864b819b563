"""The time that one proposal may take: beyond it the request is declined, not the registry held."""

import asyncio
import itertools
import json
from datetime import date
from types import SimpleNamespace

import pytest

from penstock.registry import examine
from penstock.registry.errors import DeclinedError
from penstock.registry.examine import CHECK_S, Examiner
from penstock.registry.store.commands import SetConfig
from penstock.registry.store.events import SubjectConfig
from penstock.registry.store.examination import (
    Examination,
    SchemaProposal,
    Snapshot,
    snapshot_to_register,
)
from penstock.registry.subject_names import Subject
from penstock.schemas.model import SchemaText, SchemaType
from tests.support.registry_scenario import Registration, RegistryScenario

ORDERS = Subject("orders-value")
VERSIONS = 30


def proposal(fields: int) -> SchemaProposal:
    names = [f"f{number}" for number in range(fields)]
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": "int", "default": 0} for name in names],
    }
    return SchemaProposal(ORDERS, SchemaText(SchemaType.AVRO, json.dumps(schema)))


@pytest.fixture
def snapshot(scenario: RegistryScenario) -> Snapshot:
    """Of a version that must be compatible with all others."""
    level = SubjectConfig(compatibility="FULL_TRANSITIVE")
    scenario.submit(SetConfig(ORDERS, level, frozenset(("compatibility",))))
    for fields in range(1, VERSIONS + 1):
        scenario.submit(Registration(proposal(fields)))
    return snapshot_to_register(scenario.state, proposal(VERSIONS + 1), date.min)


def examined(examiner: Examiner, snapshot: Snapshot) -> Examination:
    return asyncio.run(examiner.examine(snapshot, 0, thorough=True))


def test_a_check_that_takes_too_long_is_declined_and_can_be_repeated(
    snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(snapshot.compared) == VERSIONS
    examiner = Examiner()
    seconds = itertools.count(step=2)  # each look at the clock is two seconds later
    with monkeypatch.context() as patched:
        patched.setattr(examine, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
        with pytest.raises(DeclinedError, match=r"could not be checked.* within 20 s") as declined:
            examined(examiner, snapshot)
    assert declined.value.code == 50002
    looks = next(seconds) // 2
    assert looks == CHECK_S // 2 + 2, "it stops at the first look after the end"
    compatibility = examined(examiner, snapshot).compatibility
    assert compatibility is not None
    assert compatibility.breaks == ()
    examiner.close()
