"""Several nodes: one writes, all read, and the death of the one is survived."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from penstock.registry.election import DUPLICATE_URLS, PrimaryCandidate, assign, read_candidate

StartNode = Callable[..., Any]
Record = Callable[..., str]


def is_primary(node: Any) -> bool:
    return "penstock_registry_primary 1\n" in httpx.get(f"{node.url}/metrics", timeout=20).text


def the_primary(nodes: list[Any]) -> Any:
    """The one that says so, once there is exactly one."""
    give_up_at = time.monotonic() + 60
    while time.monotonic() < give_up_at:
        found = [node for node in nodes if is_primary(node)]
        if len(found) == 1:
            return found[0]
        time.sleep(0.1)
    raise AssertionError("no node became the primary")


class Clients:
    """Registers one schema after another, at any node that responds, until `stop` is called."""

    def __init__(self, nodes: list[Any], record: Record, workers: int = 4) -> None:
        self.nodes = nodes
        self.acknowledged: dict[str, int] = {}
        self.refused: set[int] = set()
        self._record = record
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, args=(worker,)) for worker in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def _work(self, worker: int) -> None:
        count = 0
        while not self._stop.is_set():
            subject = f"s-{worker}-{count}"
            node = self.nodes[(worker + count) % len(self.nodes)]
            body = {"schema": self._record("a:int", name=f"R{worker}_{count}")}
            try:
                answer = httpx.post(
                    f"{node.url}/subjects/{subject}/versions", json=body, timeout=30
                )
            except httpx.HTTPError:
                count += 1
                continue
            if answer.is_success:
                self.acknowledged[subject] = answer.json()["id"]
            else:
                self.refused.add(answer.json()["error_code"])
            count += 1

    def wait_for_more(self, count: int) -> None:
        wanted = len(self.acknowledged) + count
        give_up_at = time.monotonic() + 60
        while len(self.acknowledged) < wanted:
            assert time.monotonic() < give_up_at, "registrations stopped"
            time.sleep(0.05)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def check_all_kept(clients: Clients, nodes: list[Any]) -> None:
    assert clients.refused <= {50001, 50002, 50003, 50004}
    assert len(set(clients.acknowledged.values())) == len(clients.acknowledged)
    for node in nodes:
        with httpx.Client(base_url=node.url, timeout=30) as http:
            listed: list[dict[str, Any]] = []
            while page := http.get("/schemas", params={"offset": len(listed)}).json():
                listed += page
        stored = {one["subject"]: one["id"] for one in listed}
        assert clients.acknowledged.items() <= stored.items()
        contents: dict[int, str] = {}
        for one in listed:
            assert contents.setdefault(one["id"], one["schema"]) == one["schema"]


def test_every_node_takes_writes_and_finds_them_at_once(start_node: StartNode) -> None:
    first = start_node("_schemas-two")
    second = start_node("_schemas-two")
    primary = the_primary([first, second])
    assert primary is first  # the primary stays when others join
    for number, node in enumerate((second, first, second)):
        with httpx.Client(base_url=node.url, timeout=30) as http:
            schema = json.dumps({"type": "fixed", "name": f"F{number}", "size": 1})
            made = http.post(f"/subjects/s{number}/versions", json={"schema": schema})
            assert made.json()["id"] == number + 1
            assert http.get(f"/schemas/ids/{number + 1}").is_success
            assert http.put(f"/config/s{number}", json={"compatibility": "FULL"}).is_success
            assert http.get(f"/config/s{number}").json() == {"compatibilityLevel": "FULL"}
            refused = http.delete("/subjects/unknown")
            assert refused.json()["error_code"] == 40401
    first.end()
    with httpx.Client(base_url=second.url, timeout=60) as http:
        assert http.post("/subjects/after/versions", json={"schema": '"int"'}).json()["id"] == 4
    second.end()


@pytest.mark.slow
def test_the_primary_is_killed_while_schemas_are_registered(
    start_node: StartNode, record: Record
) -> None:
    nodes = [start_node("_schemas-three", wait=False) for _ in range(3)]
    for node in nodes:
        node.wait_ready()
    primary = the_primary(nodes)
    clients = Clients(nodes, record)
    try:
        clients.wait_for_more(50)
        primary.end(kill=True)
        survivors = [node for node in nodes if node is not primary]
        clients.nodes = survivors
        clients.wait_for_more(100)
    finally:
        clients.stop()
    the_primary(survivors)
    check_all_kept(clients, survivors)
    for node in survivors:
        node.end()


@pytest.mark.slow
def test_a_primary_that_slept_through_its_replacement_writes_nothing(
    start_node: StartNode, record: Record
) -> None:
    nodes = [start_node("_schemas-asleep", wait=False) for _ in range(2)]
    for node in nodes:
        node.wait_ready()
    primary = the_primary(nodes)
    (other,) = [node for node in nodes if node is not primary]
    clients = Clients(nodes, record)
    try:
        clients.wait_for_more(30)
        os.kill(primary.process.pid, signal.SIGSTOP)
        clients.nodes = [other]
        the_primary([other])
        clients.wait_for_more(30)
        os.kill(primary.process.pid, signal.SIGCONT)
        clients.nodes = nodes
        clients.wait_for_more(60)
    finally:
        os.kill(primary.process.pid, signal.SIGCONT)
        clients.stop()
    the_primary(nodes)
    check_all_kept(clients, nodes)
    for node in nodes:
        node.end()


def verdict(*members: PrimaryCandidate) -> dict[str, Any]:
    said = {f"m{index}": member.to_json() for index, member in enumerate(members)}
    answers = assign(said)
    assert len(set(answers.values())) == 1
    return dict(json.loads(answers["m0"]))


def test_the_smallest_url_is_chosen_among_those_who_may() -> None:
    found = verdict(
        PrimaryCandidate("b", 1),
        PrimaryCandidate("a", 1, is_eligible=False),
        PrimaryCandidate("c", 1),
    )
    assert (found["error"], found["master"]) == (0, "m0")
    assert found["master_identity"]["host"] == "b"


def test_the_present_primary_stays() -> None:
    assert (
        verdict(PrimaryCandidate("a", 1), PrimaryCandidate("b", 1, is_primary=True))["master"]
        == "m1"
    )


def test_two_nodes_of_one_url_are_an_error_and_none_is_chosen() -> None:
    found = verdict(PrimaryCandidate("a", 1), PrimaryCandidate("a", 1))
    assert (found["error"], found["master"]) == (DUPLICATE_URLS, None)


def test_a_candidate_is_read_as_it_was_said() -> None:
    one = PrimaryCandidate("h", 8081, is_eligible=False, scheme="https", is_primary=True)
    assert read_candidate(one.to_json()) == one
    assert one.url == "https://h:8081"
    assert read_candidate(b"{") is None
    assert read_candidate(b"{}") is None
