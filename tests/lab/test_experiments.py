"""Every experiment, with little of everything and at its default scale."""

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.lab.experiments import EXPERIMENTS


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "penstock", "lab", *arguments],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["wire", "references", "aliases"])
def test_a_quick_run_confirms_its_claims(name: str, tmp_path: Path) -> None:
    done = run(name, "--scale", "quick", "--report-speed", "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / f"{name}-quick.json").exists()
    page = (tmp_path / f"{name}-quick.md").read_text()
    assert f"`penstock lab {name} --seed 1 --scale quick --fraction 1.0 --brokers 1`" in page
    assert "1 of 1 done in " in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_all_experiments_confirm_their_claims_at_their_default_scale(tmp_path: Path) -> None:
    done = run("all", "--report-speed", "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    for experiment in EXPERIMENTS:
        assert (tmp_path / f"{experiment.name}.md").exists()


def test_half_an_address_is_refused(tmp_path: Path) -> None:
    done = run("wire", "--bootstrap", "127.0.0.1:1", "--out", str(tmp_path))
    assert done.returncode == 1
    assert "--registry" in done.stderr
