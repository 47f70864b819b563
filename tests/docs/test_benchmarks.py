"""`make bench`: what it writes of what the benches found."""

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

import bench.__main__ as benches
from bench.charts import bench_chart, overview_chart
from bench.figures import Figure

FASTER = Figure("append <1 kB>", 30.0, 10.0, "MB/s", ">= 2.0")
SLOWER = Figure("latency & jitter", 4.0, 2.0, "ms", "<= 1.0")
ALONE = Figure("start", 12_345.6, None, "s")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs benches that find what they are told to find, into a folder of the test's own."""
    (tmp_path / "docs").mkdir()

    def run_benches(found: dict[str, list[Figure] | None], *arguments: str) -> int:
        monkeypatch.setattr(benches, "run", lambda name: found.get(name))
        return benches.main(arguments, root=tmp_path)

    return run_benches


def test_a_run_leaves_results_tables_and_charts(run: Callable[..., int], tmp_path: Path) -> None:
    assert run({"log": [FASTER, SLOWER], "serde": [ALONE]}, "log", "serde") == 0
    results = json.loads((tmp_path / "bench" / "results.json").read_text())
    assert [row["ours"] for row in results["log"]["figures"]] == [30.0, 4.0]
    assert {"date", "cores", "python", "confluent-kafka"} <= set(results["log"]["measured"])
    page = (tmp_path / "docs" / "benchmarks.md").read_text()
    assert "| append <1 kB> | 30 | 10 | 3.00 | MB/s | >= 2.0 | held |" in page
    assert "| latency & jitter | 4 | 2 | 2.00 | ms | <= 1.0 | missed |" in page
    assert "| start | 12,346 | - | - | s |  |  |" in page
    assert "(charts/log.svg)" in page
    assert "(../docs/charts/log.svg)" in (tmp_path / "bench" / "results.md").read_text()
    drawn = {path.name for path in (tmp_path / "docs" / "charts").iterdir()}
    assert drawn == {"log.svg", "overview.svg"}  # nothing to compare: nothing to draw


def test_a_run_of_one_bench_keeps_what_the_others_found(
    run: Callable[..., int], tmp_path: Path
) -> None:
    run({"log": [FASTER]}, "log")
    run({"serde": [ALONE]}, "serde")
    results = json.loads((tmp_path / "bench" / "results.json").read_text())
    assert list(results) == ["log", "serde"]


def test_a_bench_that_breaks_fails_the_run_and_keeps_the_rest(
    run: Callable[..., int], tmp_path: Path
) -> None:
    assert run({"log": None, "serde": [ALONE]}, "log", "serde") == 1
    assert list(json.loads((tmp_path / "bench" / "results.json").read_text())) == ["serde"]


def test_every_bench_is_known_and_the_quick_ones_start_no_java() -> None:
    known = benches.benches()
    assert {"broker", "log", "registry", "serde"} <= set(known)
    assert not {"figures", "peers", "load", "charts"} & set(known)
    assert known["broker"]
    assert not known["log"]


def test_a_bench_nobody_wrote_is_refused() -> None:
    with pytest.raises(SystemExit):
        benches.main(["nope"])


def test_a_chart_is_a_picture_of_both_bars_and_loads_nothing() -> None:
    chart = bench_chart("python -m bench.log", [FASTER, SLOWER, ALONE])
    assert chart is not None
    root = ElementTree.fromstring(chart)
    bars = [float(bar.get("width", "")) for bar in root.iter("{http://www.w3.org/2000/svg}rect")]
    assert bars[2] == pytest.approx(3 * bars[3], abs=0.2)
    assert bars[4] == pytest.approx(2 * bars[5], abs=0.2)
    assert "prefers-color-scheme: dark" in chart
    assert chart.count("http") == 1  # the name of the format itself


def test_the_overview_tells_how_many_times_as_good_whatever_the_direction() -> None:
    texts = overview_chart({"log": [FASTER, SLOWER, ALONE]})
    assert "3.00x" in texts
    assert "0.50x" in texts
    assert "log: start" not in texts
