"""`make bench` writes results, pages and charts."""

import json
import re
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from confluent_kafka import Producer

import bench.__main__ as benches
from bench.charts import bench_chart, overview_chart
from bench.figures import LIMIT, Figure
from bench.floor import bare_server, latency_limit_ms
from bench.kafka_floor import bare_broker
from bench.latency import kept_up
from bench.overview import OVERVIEW, OverviewLine

FASTER = Figure("append <1 kB>", 30.0, 10.0, "MB/s", ">= 2.0")
SLOWER = Figure("latency & jitter", 4.0, 2.0, "ms", "<= 1.0")
ALONE = Figure("start", 12_345.6, None, "s")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs benchmarks with given results; their files go to a folder of the test."""
    (tmp_path / "docs").mkdir()

    def run_benches(results: dict[str, list[Figure] | None], *arguments: str) -> int:
        monkeypatch.setattr(benches, "run", lambda name: results.get(name))
        return benches.main(arguments, root=tmp_path)

    return run_benches


def test_a_run_writes_results_tables_and_charts(run: Callable[..., int], tmp_path: Path) -> None:
    assert run({"log": [FASTER, SLOWER], "serde": [ALONE]}, "log", "serde") == 0
    results = json.loads((tmp_path / "bench" / "results.json").read_text())
    assert [row["ours"] for row in results["log"]["figures"]] == [30.0, 4.0]
    assert {"date", "cores", "python", "confluent-kafka"} <= set(results["log"]["measured"])
    page = (tmp_path / "docs" / "benchmarks.md").read_text()
    assert "| append <1 kB> | 30 | 10 | 3.00 | MB/s | >= 2.0 | met |" in page
    assert "| latency & jitter | 4 | 2 | 2.00 | ms | <= 1.0 | missed |" in page
    assert "| start | 12,346 | - | - | s |  |  |" in page
    assert "(charts/log.svg)" in page
    assert "(../docs/charts/log.svg)" in (tmp_path / "bench" / "results.md").read_text()
    drawn = {path.name for path in (tmp_path / "docs" / "charts").iterdir()}
    assert drawn == {"log.svg", "overview.svg"}  # without a peer there is no chart


def test_a_run_of_one_benchmark_keeps_the_results_of_the_others(
    run: Callable[..., int], tmp_path: Path
) -> None:
    run({"log": [FASTER]}, "log")
    run({"serde": [ALONE]}, "serde")
    results = json.loads((tmp_path / "bench" / "results.json").read_text())
    assert list(results) == ["log", "serde"]


@pytest.mark.parametrize(
    ("ours", "target", "is_met"),
    [(3.0, "<= 1.0", True), (3.003, "<= 1.0", False), (2.997, ">= 1.0", False)],
)
def test_a_target_that_is_missed_by_little_is_missed(
    ours: float, target: str, is_met: bool
) -> None:
    assert Figure("paused", ours, 3.0, "s", target, peer_name=LIMIT).is_met is is_met


def test_a_failed_benchmark_fails_the_run_and_keeps_the_other_results(
    run: Callable[..., int], tmp_path: Path
) -> None:
    assert run({"log": None, "serde": [ALONE]}, "log", "serde") == 1
    assert list(json.loads((tmp_path / "bench" / "results.json").read_text())) == ["serde"]


def test_every_benchmark_is_known_and_the_quick_ones_start_no_java() -> None:
    known = benches.benches()
    assert {"broker", "log", "registry", "serde"} <= set(known)
    assert not {"figures", "peers", "load", "charts"} & set(known)
    assert known["broker"]
    assert not known["log"]


def test_an_unknown_benchmark_is_refused() -> None:
    with pytest.raises(SystemExit):
        benches.main(["nope"])


def test_a_chart_has_both_bars_and_loads_nothing() -> None:
    chart = bench_chart("python -m bench.log", [FASTER, SLOWER, ALONE])
    assert chart is not None
    root = ElementTree.fromstring(chart)
    bars = [float(bar.get("width", "")) for bar in root.iter("{http://www.w3.org/2000/svg}rect")]
    assert bars[2] == pytest.approx(3 * bars[3], abs=0.2)
    assert bars[4] == pytest.approx(2 * bars[5], abs=0.2)
    assert "prefers-color-scheme: dark" in chart
    assert chart.count("http") == 1  # the name of the format itself


OVERWHELMED = Figure(
    "end to end, p99", 5.0, 7_000.0, "ms", "<= 1.0", peer_name="Kafka", peer_kept_up=False
)
LIMITED = Figure("GET, p99", 4.0, 5.0, "ms", "<= 1.0", peer_name=LIMIT, floor=2.5)


def lines_of(*figures: Figure) -> list[OverviewLine]:
    return [OverviewLine("log", figure.name, f"line: {figure.name}") for figure in figures]


def test_the_overview_shows_multiples_of_the_peer_for_both_directions() -> None:
    figures = [FASTER, SLOWER, ALONE]
    texts = overview_chart({"log": figures}, lines_of(*figures))
    assert "3.00x" in texts
    assert "0.50x" in texts
    assert "line: start" not in texts


def test_the_overview_names_its_peers_and_leaves_out_fixed_limits() -> None:
    figures = [replace(FASTER, peer_name="Kafka"), LIMITED]
    texts = overview_chart({"log": figures}, lines_of(*figures))
    assert "compared with Kafka" in texts
    assert "GET, p99" not in texts


def test_the_overview_has_ten_lines_and_each_was_measured() -> None:
    results = benches.read_results(benches.HERE.parent)
    assert len(OVERVIEW) == 10
    for line in OVERVIEW:
        names = [figure.name for figure in benches.figures_of(results[line.bench])]
        assert names.count(line.figure) == 1, line


def test_other_figures_are_not_in_the_overview() -> None:
    texts = overview_chart({"log": [FASTER, SLOWER]}, lines_of(SLOWER))
    assert "line: latency" in texts
    assert "append" not in texts


def test_a_peer_that_did_not_keep_up_has_no_ratio_anywhere(
    run: Callable[..., int], tmp_path: Path
) -> None:
    assert run({"log": [OVERWHELMED]}, "log") == 0
    overview = overview_chart({"log": [OVERWHELMED]}, lines_of(OVERWHELMED))
    page = (tmp_path / "docs" / "benchmarks.md").read_text()
    row = "| end to end, p99 | 5 | 7,000 | peer did not keep up | ms | <= 1.0 | met |"
    assert row in page
    for texts in (overview, (tmp_path / "docs" / "charts" / "log.svg").read_text()):
        assert "the peer did not keep up" in texts
        assert "1400" not in texts


def test_bars_of_the_overview_start_at_the_peer_and_end_with_the_scale() -> None:
    figures = [
        Figure(f"times {times}", times, 1.0, "x", ">= 0.1", peer_name="peer")
        for times in (10.0, 0.5, 100.0, 8020.0)
    ]
    chart = overview_chart({"log": figures}, lines_of(*figures))
    bars = list(ElementTree.fromstring(chart).iter("{http://www.w3.org/2000/svg}rect"))
    left = [float(bar.get("x", "")) for bar in bars]
    width = [float(bar.get("width", "")) for bar in bars]
    assert left[0] == left[2] == left[3]
    assert left[1] + width[1] == pytest.approx(left[0], abs=0.2)  # worse than the peer: left of it
    assert width[2] == pytest.approx(2 * width[0], abs=0.2)  # two decades on the scale
    assert width[3] == width[2]
    assert "more than 100x" in chart
    assert "8020" not in chart.replace("line: times 8020.0", "")
    for tick in ("0.5x", "1x", "10x", "100x"):
        assert f">{tick}</text>" in chart


def test_a_latency_is_shown_with_its_floor_and_its_limit(
    run: Callable[..., int], tmp_path: Path
) -> None:
    named = replace(FASTER, peer_name="Apicurio")
    assert run({"registry": [named, LIMITED], "log": [named]}, "registry", "log") == 0
    page = (tmp_path / "docs" / "benchmarks.md").read_text()
    assert "Peer: Apicurio.\n" in page
    assert "| figure | Penstock | peer | ratio | unit | target | floor | |" in page
    assert "| GET, p99 | 4 | 5 (limit) | 0.80 | ms | <= 1.0 | 2.5 | met |" in page
    assert "| figure | Penstock | peer | ratio | unit | target | |" in page, "no floor, no column"


def test_every_measured_percentile_in_milliseconds_has_a_floor() -> None:
    results = benches.read_results(benches.HERE.parent)
    percentiles = [
        figure
        for name in results
        for figure in benches.figures_of(results[name])
        if figure.unit == "ms" and re.search(r"\bp\d\d\b", figure.name)
    ]
    assert len(percentiles) >= 6
    assert [figure.name for figure in percentiles if figure.floor is None] == []


def test_pages_are_drawn_again_without_a_run(run: Callable[..., int], tmp_path: Path) -> None:
    run({"log": [FASTER]}, "log")
    page = tmp_path / "docs" / "benchmarks.md"
    before = page.read_text()
    page.write_text("")
    assert run({}, "--draw") == 0
    assert page.read_text() == before


@pytest.mark.parametrize(
    ("floor_ms", "limit_ms"), [(0.5, 5.0), (3.0, 5.0), (3.2, 5.0), (4.0, 6.0), (7.3, 10.95)]
)
def test_the_limit_of_a_latency_follows_a_high_floor(floor_ms: float, limit_ms: float) -> None:
    assert latency_limit_ms(floor_ms, 5.0) == pytest.approx(limit_ms)


def test_the_minimal_server_sends_the_same_bytes_for_every_request() -> None:
    with bare_server(10) as (url, _):
        host, _, port = url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            for piece in (b"GET / HTTP/1.1\r\n\r", b"\nGET /2 HTTP/1.1\r\n\r\nGET", b" /3\r\n\r\n"):
                connection.sendall(piece)
                time.sleep(0.05)  # so that it arrives in pieces
            expected = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nxxxxxxxxxx" * 3
            received = b""
            while len(received) < len(expected):
                received += connection.recv(1000)
    assert received == expected


@pytest.mark.parametrize("compressed", ["none", "lz4"])
def test_the_minimal_broker_acknowledges_what_librdkafka_sends(compressed: str) -> None:
    errors: list[object] = []
    with bare_broker("latency", 4) as bootstrap:
        settings = {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0}
        producer = Producer({**settings, "compression.type": compressed})
        for number in range(100):
            producer.produce(
                "latency", bytes(number * 100), partition=number % 4,
                on_delivery=lambda error, message: errors.append(error or message.partition()),
            )  # fmt: skip
        assert producer.flush(20) == 0
    assert sorted(map(str, errors)) == sorted(str(number % 4) for number in range(100))


@pytest.mark.parametrize(
    ("waits_ms", "is_in_time"),
    [
        ([1.0] * 990 + [900.0] * 10, True),  # a pause
        (list(range(1000)), False),  # it grows
        ([20.0] * 900 + [150.0] * 100, False),  # at the end
        ([360.0] * 850 + [1.0] * 150, False),  # behind most of the time
    ],
)
def test_a_server_with_a_backlog_did_not_keep_up(waits_ms: list[float], is_in_time: bool) -> None:
    waits_ns = np.array(waits_ms) * 1e6
    assert kept_up(waits_ns, float(np.median(waits_ms)) / 1000) == is_in_time


@pytest.mark.parametrize("name", sorted(path.stem for path in benches.HERE.glob("*.py")))
def test_every_module_of_the_benchmarks_can_be_imported(name: str) -> None:
    import_module(f"bench.{name}")
