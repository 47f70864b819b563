"""Schemas made to cost much: the registry answers, briefly, and serves others meanwhile."""

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx


def nested(levels: int, leaf: str) -> str:
    """Each record defines the one below it and names it twice more."""
    schema: Any = {"type": "record", "name": "n0", "fields": [{"name": "v", "type": leaf}]}
    for level in range(1, levels + 1):
        below = f"n{level - 1}"
        fields = [{"name": "l", "type": schema}, {"name": "r", "type": below}]
        fields.append({"name": "s", "type": below})
        schema = {"type": "record", "name": f"n{level}", "fields": fields}
    return json.dumps(schema)


def test_forty_levels_of_records_named_three_times_are_refused_with_a_short_answer(
    http: httpx.Client, subject: str
) -> None:
    path = f"/subjects/{subject}/versions"
    assert http.post(path, json={"schema": nested(40, "int")}).is_success
    refused = http.post(path, json={"schema": nested(40, "string")})
    assert refused.status_code == 409
    assert "TYPE_MISMATCH" in refused.text
    assert "more differences are not listed" in refused.text
    assert len(refused.content) < 400_000
    checked = http.post(
        f"/compatibility{path}/latest?verbose=true", json={"schema": nested(40, "string")}
    )
    assert checked.json()["is_compatible"] is False
    assert len(checked.content) < 400_000


def one_of(branches: int, prefix: str) -> dict[str, str]:
    """A JSON Schema that takes the whole budget of a comparison with its like."""
    schemas = [
        {
            "type": "object",
            "properties": {"kind": {"const": f"{prefix}{one}"}},
            "required": ["kind"],
        }
        for one in range(branches)
    ]
    return {"schema": json.dumps({"oneOf": schemas}), "schemaType": "JSON"}


def test_checks_that_take_their_whole_budget_do_not_hold_up_other_registrations(
    http: httpx.Client, subject: str, record: Callable[..., str]
) -> None:
    path = f"/subjects/{subject}/versions"
    assert http.post(path, json=one_of(400, "a")).is_success
    base_url = str(http.base_url)
    order: list[str] = []

    def check(number: int) -> None:
        with httpx.Client(base_url=base_url, timeout=60) as client:
            answer = client.post(path, json=one_of(400, f"b{number}x"))
            assert answer.status_code == 409, answer.text
            order.append("hostile")

    began = time.perf_counter()
    check(3)
    order.clear()
    check_s = time.perf_counter() - began
    threads = [threading.Thread(target=check, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(check_s / 2)  # one at least has begun, and none has ended
    assert http.post(
        f"/subjects/{subject}-other/versions", json={"schema": record("a:int")}
    ).is_success
    order.append("other")
    for thread in threads:
        thread.join()
    assert order == ["other", *["hostile"] * 3], "the plain registration waited for a check"
