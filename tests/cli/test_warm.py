"""`penstock warm` compiles each kernel once, and says whether that was stored."""

import json
from importlib import import_module
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import build
from penstock.columns import compiled, warm

COLUMNS = Path(compiled.__file__).parent


def test_every_module_with_kernels_is_warmed() -> None:
    with_kernels = {
        ".".join(path.relative_to(COLUMNS).with_suffix("").parts)
        for path in COLUMNS.rglob("*.py")
        if "\n@kernel\n" in path.read_text() or "\n@object_kernel\n" in path.read_text()
    }
    assert with_kernels == {name for names in warm.MODULES.values() for name in names}


@pytest.mark.slow
@pytest.mark.timeout(300)  # the first run after a change of the kernels compiles all of them
def test_all_kernels_are_ready_afterwards() -> None:
    done = CliRunner().invoke(build(["warm"]), ["warm", "--json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.output)
    for names in warm.MODULES.values():
        for name in names:
            import_module(f"penstock.columns.{name}")
    assert report["kernels"] >= len(warm.MODULES[None]) + len(warm.MODULES["arrow"])
    assert report["cached"]
    again = json.loads(CliRunner().invoke(build(["warm"]), ["warm", "--json"]).output)
    assert again["compiled"] == 0


def test_a_result_that_is_not_stored_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = [warm.Warmed("one", 1.0, True, False), warm.Warmed("two", 1.0, False, True)]
    monkeypatch.setattr(warm, "warm", lambda: iter(kernels))
    done = CliRunner().invoke(build(["warm"]), ["warm"])
    assert done.stdout.startswith("2 kernels are ready: 1 compiled in ")
    assert "set NUMBA_CACHE_DIR" in done.stderr
