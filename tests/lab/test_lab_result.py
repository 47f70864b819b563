"""Results: claims, pages and plots."""

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from penstock.lab.findings import findings_page, load_results, missing_results
from penstock.lab.lab_result import LabPlot, LabResult

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
    document = json.loads((tmp_path / "wire.json").read_text())
    assert document["claims"][0]["holds"] is True
    page = (tmp_path / "wire.md").read_text()
    assert "| it \\| holds | yes | yes |" in page
    assert "![Lag](wire-1.svg)" in page
    for name in ("wire-1.svg", "wire-2.svg"):
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


def test_the_committed_results_hold() -> None:
    for name, document in load_results(DOCS / "lab").items():
        failed = [one["text"] for one in document["claims"] if not one["holds"]]
        speed = [one["text"] for one in document["claims"] if one["is_speed"]]
        assert set(failed) <= set(speed), name
