"""The pages about the client and the gate: every block runs, and prints what the page shows.

```python    runs in one namespace, as a notebook would
```sh        runs in a shell, in the same folder
```text      what the block before must print: these lines, in this order, with others between
             them; … stands for anything
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
Run = Callable[[str], str]


def blocks(page: str, *languages: str) -> list[tuple[str, str]]:
    text = (PAGES / page).read_text()
    return [(kind, inside) for kind, inside in FENCE.findall(text) if kind in languages]


@pytest.fixture
def run(tmp_path: Path, bootstrap: str) -> Run:
    """A shell in a folder of the test; returns its output and status."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PENSTOCK_BOOTSTRAP": bootstrap,
        "COLUMNS": "200",
    }

    def run_command(command: str) -> str:
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", command], cwd=tmp_path, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, check=False,
        )  # fmt: skip
        return f"{done.stdout}\n(status {done.returncode})"

    return run_command


def check_output(expected: str, output: str) -> None:
    lines = iter(output.splitlines())
    for line in expected.splitlines():
        pattern = re.compile(".*".join(map(re.escape, line.split("…"))))
        assert any(pattern.fullmatch(one.rstrip()) for one in lines), (line, output)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_block_about_the_client_runs(
    bootstrap: str,
    registry_url: str,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "notebook"}
    output, count = "", 0
    for kind, text in blocks("client.md", "python", "sh", "text"):
        here = text.replace("http://127.0.0.1:8081", registry_url)
        here = here.replace("127.0.0.1:9092", bootstrap)
        if kind == "text":
            check_output(here, output)
            continue
        count += 1
        if kind == "sh":
            output = run(here)
            continue
        with redirect_stdout(StringIO()) as out:
            exec(compile(here, f"client.md, block {count}", "exec"), names)
        output = out.getvalue()
    names["registry"].close()
    assert count >= 14


def contract_files(folder: Path, *versions: str) -> None:
    subject = folder / "contracts" / "orders-value"
    subject.mkdir(parents=True)
    for number, fields in enumerate(versions, 1):
        text = f'{{"type": "record", "name": "Order", "fields": [{fields}]}}'
        (subject / f"v{number}.avsc").write_text(text)


A = '{"name": "a", "type": "int"}'
OPTIONAL = f'{A}, {{"name": "b", "type": "int", "default": 0}}'
REQUIRED = f'{A}, {{"name": "b", "type": "int"}}'


def yaml_block(holding: str) -> Any:
    (block,) = (text for _, text in blocks("contract-gate.md", "yaml") if holding in text)
    return yaml.safe_load(block)


@pytest.mark.parametrize(("second", "status"), [(OPTIONAL, 0), (REQUIRED, 1)])
def test_the_commands_of_the_workflow_gate_a_pull_request(
    run: Run, tmp_path: Path, second: str, status: int
) -> None:
    steps = yaml_block("actions/checkout")["jobs"]["gate"]["steps"]
    checkouts = [step["with"]["path"] for step in steps if "checkout" in step.get("uses", "")]
    assert checkouts == ["proposed", "published"]
    contract_files(tmp_path / "proposed", A, second)
    contract_files(tmp_path / "published", A)
    commands = [step["run"] for step in steps if "run" in step]
    assert commands[0].startswith("pip install "), "which tests/docs/test_install.py runs"
    *before, gate = commands[1:]
    for command in before:
        assert run(command).endswith("(status 0)")
    output = run(gate)
    assert output.endswith(f"(status {status})")
    sign = "::notice " if status == 0 else "::error file=proposed/contracts/orders-value/v2.avsc"
    assert any(line.startswith(sign) for line in output.splitlines()), output


def test_the_workflow_gates_a_repository_that_had_no_contracts(run: Run, tmp_path: Path) -> None:
    steps = yaml_block("actions/checkout")["jobs"]["gate"]["steps"]
    contract_files(tmp_path / "proposed", A)
    for command in [step["run"] for step in steps if "run" in step][1:]:
        assert run(command).endswith("(status 0)")


@pytest.mark.parametrize(("second", "status"), [(OPTIONAL, 0), (REQUIRED, 1)])
def test_the_hook_stops_a_commit_that_breaks_a_contract(
    run: Run, tmp_path: Path, second: str, status: int
) -> None:
    (hook,) = yaml_block("pre-commit")["repos"][0]["hooks"]
    contract_files(tmp_path, A, second)
    assert re.search(hook["files"], "contracts/orders-value/v2.avsc")
    assert (hook["language"], hook["pass_filenames"]) == ("system", False)
    assert run(hook["entry"]).endswith(f"(status {status})")
