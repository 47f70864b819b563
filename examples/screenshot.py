"""The terminal of the README: real commands on a real platform, drawn as SVG.

    python -m examples.screenshot docs/pictures/terminal.svg

Nothing is made up: what is drawn is what the commands said.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

from examples.demo_platform import Where, platform_up

COLUMNS = 118
ORDER = """{"type": "record", "name": "Order", "fields": [
  {"name": "city", "type": "string"}, {"name": "cents", "type": "long"}]}"""
CHANGED = """{"type": "record", "name": "Order", "fields": [
  {"name": "city", "type": "string"}, {"name": "currency", "type": "string"}]}"""
COMMANDS = (
    "echo 'berlin:{\"cents\": 1250}' | penstock produce visits -K :",
    "penstock consume visits --exit -f '%t/%p@%o %k %v\\n'",
    "kcat -b $PENSTOCK_BOOTSTRAP -L | head -4",
    "penstock schema register orders-value order.avsc",
    "penstock contract check --subject orders-value --proposed changed.avsc"
    " --registry $PENSTOCK_REGISTRY",
)
FACE = re.compile(r"@font-face \{.*?\}", re.DOTALL)  # rich names a font of a content network


def main(target: Path) -> None:
    """Run the commands and draw what they say."""
    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w"))  # noqa: SIM115 - until the end
    with platform_up(None) as where, tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "order.avsc").write_text(ORDER)
        (Path(folder) / "changed.avsc").write_text(CHANGED)
        for command in COMMANDS:
            console.print(Text.assemble(("$ ", "bold green"), (shown(command, where), "bold")))
            console.print(Text(said(command, where, Path(folder)).rstrip()), soft_wrap=False)
            console.print()
    drawing = console.export_svg(title="penstock", font_aspect_ratio=0.61)
    drawing = FACE.sub("", drawing).replace("Fira Code, monospace", "ui-monospace, monospace")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(drawing)


def said(command: str, where: Where, folder: Path) -> str:
    """All that a command says, on either stream."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PENSTOCK_BOOTSTRAP": where.kafka,
        "PENSTOCK_REGISTRY": where.registry,
        "COLUMNS": str(COLUMNS),
    }
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, text=True, timeout=60, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    status = "" if done.returncode == 0 else f"(exit status {done.returncode})"
    usual = done.stdout.replace(where.kafka, "127.0.0.1:9092")
    return usual + status


def shown(command: str, where: Where) -> str:
    """As a person types it, on the usual ports."""
    usual = command.replace("$PENSTOCK_BOOTSTRAP", "127.0.0.1:9092")
    return usual.replace(" --registry $PENSTOCK_REGISTRY", " --registry http://127.0.0.1:8081")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
