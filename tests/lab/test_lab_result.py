"""Results: claims, pages and plots."""

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from penstock.lab import lab_result
from penstock.lab.findings import findings_page, index_with_runs, load_results, missing_results
from penstock.lab.known_failures import KNOWN_FAILURES
from penstock.lab.lab_result import LabPlot, LabResult
from penstock.lab.lab_run import machine

INDEX = """# The lab

<!-- runs: written by `penstock lab findings` -->
None yet.
<!-- end of runs -->
"""
DOCS = Path(__file__).parents[2] / "docs"


def result() -> LabResult:
    made = LabResult("wire", "What is in a record?", {"seed": 1, "scale": "quick"})
    made.claim("it | holds", "yes", True)
    made.table("Sizes", ("language", "bytes"), [("AVRO", 12)])
    made.plots = [
        LabPlot("Lag", "events", {"a & b": [(0, 0), (1, 5), (2, 0)]}, "s"),
        LabPlot("Bytes", "bytes", {"AVRO": [(0, 12)], "JSON": [(0, 30)]}),
    ]
    return made


def test_a_claim_about_speed_need_not_decide() -> None:
    made = result()
    assert made.holds()
    made.claim("it is fast", "slow", False, is_speed=True)
    assert not made.holds()
    assert made.holds(with_speed=False)
    made.claim("it is right", "wrong", False)
    assert not made.holds(with_speed=False)


def test_a_result_is_written_as_json_a_page_and_plots(tmp_path: Path) -> None:
    result().write(tmp_path)
    document = json.loads((tmp_path / "wire-quick.json").read_text())
    assert document["claims"][0]["holds"] is True
    page = (tmp_path / "wire-quick.md").read_text()
    assert "| it \\| holds | yes | yes |" in page
    assert "![Lag](wire-quick-1.svg)" in page
    for name in ("wire-quick-1.svg", "wire-quick-2.svg"):
        root = ElementTree.parse(tmp_path / name).getroot()
        assert root.tag.endswith("svg")
    made = result()
    made.plots = []
    made.write(tmp_path)
    assert not list(tmp_path.glob("*.svg")), "plots of an earlier run are removed"


def test_the_page_on_compatibility_says_what_the_results_say() -> None:
    results = load_results(DOCS / "lab")
    assert not missing_results(results)
    assert (DOCS / "compatibility.md").read_text(encoding="utf-8") == findings_page(results)


def numbers_in(document: Any) -> set[str]:
    """Every number of a result, as a page shows it."""
    if isinstance(document, dict):
        return set().union(*map(numbers_in, document.values()))
    if isinstance(document, list):
        return set().union(*map(numbers_in, document))
    if isinstance(document, int):
        return {str(document), f"{document:,}"}
    return {str(document)} if isinstance(document, float | str) else set()


def test_every_number_on_the_page_on_compatibility_is_in_a_result_file() -> None:
    known = set().union(
        *(
            numbers_in(result[part])
            for result in load_results(DOCS / "lab").values()
            for part in ("numbers", "config")
        )
    )
    page = (DOCS / "compatibility.md").read_text(encoding="utf-8")
    shown = re.findall(r"(?<![\w.-])\d+(?:,\d{3})*(?:\.\d+)?(?!\w)", page)
    assert len(shown) > 20
    assert set(shown) <= known


def test_a_claim_that_fails_in_a_committed_result_has_a_cause_on_its_page() -> None:
    failed = {
        (stem, claim["text"])
        for stem, document in load_results(DOCS / "lab").items()
        for claim in document["claims"]
        if not claim["holds"]
    }
    assert failed == set(KNOWN_FAILURES)
    for (stem, _), cause in KNOWN_FAILURES.items():
        assert cause in (DOCS / "lab" / f"{stem}.md").read_text(encoding="utf-8")


def test_the_pages_of_the_lab_say_what_the_results_say() -> None:
    results = load_results(DOCS / "lab")
    for stem in results:
        read = LabResult.read(DOCS / "lab" / f"{stem}.json")
        assert read.stem == stem
        assert (DOCS / "lab" / f"{stem}.md").read_text(encoding="utf-8") == read.page()
    index = (DOCS / "lab" / "index.md").read_text(encoding="utf-8")
    assert index == index_with_runs(index, results)


def test_runs_of_another_scale_or_cluster_do_not_replace_a_result(tmp_path: Path) -> None:
    made = result()
    options = (
        {"scale": "default", "fraction": 1.0, "brokers": 1}, {"scale": "full"},
        {"scale": "full", "fraction": 0.05}, {"brokers": 3}, {"scale": "full", "brokers": 3},
    )  # fmt: skip
    for own in options:
        made.options = own
        made.write(tmp_path)
    assert set(load_results(tmp_path)) == {
        "wire", "wire-3-brokers", "wire-full", "wire-full-3-brokers", "wire-full-fraction-0.05",
    }  # fmt: skip
    assert len(list(tmp_path.glob("*.svg"))) == 2 * len(options), "nor its plots"
    text = index_with_runs(INDEX, load_results(tmp_path))
    assert "[wire-full-3-brokers](wire-full-3-brokers.md)" in text
    assert "[wire](wire.md)" not in text
    assert index_with_runs(text, {}) == INDEX


def test_a_result_names_code_and_machine() -> None:
    facts = machine()
    assert re.fullmatch(r"[0-9a-f]{12}(\+changes)?|version .+", facts["commit"])
    assert facts["processor"]
    assert facts["cores"] >= 1


def test_the_cause_of_a_failed_claim_is_on_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    made = result()
    made.claim("it is fast", "slow", False, is_speed=True)
    monkeypatch.setattr(
        lab_result, "KNOWN_FAILURES", {("wire-quick", "it is fast"): "it has one core"}
    )
    assert "Why *it is fast* does not hold: it has one core" in made.page()
