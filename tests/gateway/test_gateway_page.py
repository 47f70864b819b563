"""The pages of the gateway: commands are run as they stand, tables match the code."""

import json
import re
import shlex
import subprocess
from pathlib import Path

from penstock.gateway.settings import ROWS
from penstock.testing.platform import Platform

PAGE = Path("docs/how-to/gateway.md")
REFERENCE = Path("docs/gateway.md")


def commands() -> list[str]:
    blocks = re.findall(r"```bash\n(.*?)```", PAGE.read_text(), re.DOTALL)
    lines = "".join(blocks).replace("\\\n", "").splitlines()
    return [line for line in lines if line.startswith("curl")]


def test_the_commands_of_the_page_work_in_their_order(penstock: Platform) -> None:
    """In one topic and group of their own; every request is answered without an error."""
    topic, group = penstock.name("orders"), penstock.name("billing")
    answers = []
    for command in commands():
        command = command.replace("http://127.0.0.1:8081", penstock.registry_url)
        command = re.sub(r"\borders\b", topic, command).replace("billing", group)
        command = command.replace("order-17", penstock.name("key"))
        done = subprocess.run(
            [*shlex.split(command), "--fail-with-body"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        answers.append(done.stdout)
    assert len(answers) >= 10
    events = json.loads(answers[4])["events"]
    assert [event["value"]["cents"] for event in events] == [1250, 300, 80, 17]


def test_the_reference_has_every_setting() -> None:
    text = REFERENCE.read_text()
    for row in ROWS:
        assert f"| `{row.name}` | {row.default} | {row.meaning} |" in text
