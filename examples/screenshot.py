"""The terminal of the README: commands that are run on a platform, with their output, as SVG.

python -m examples.screenshot docs/pictures/terminal.svg
"""

import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

from examples.demo_platform import PlatformAddress, platform_up

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
FACE = re.compile(r"@font-face \{.*?\}", re.DOTALL)  # rich refers to a font on the web


def main(target: Path) -> None:
    """Run the commands and draw their output."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    with platform_up(None) as address, tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "order.avsc").write_text(ORDER)
        (Path(folder) / "changed.avsc").write_text(CHANGED)
        for command in COMMANDS:
            console.print(Text.assemble(("$ ", "bold green"), (shown(command), "bold")))
            console.print(Text(output_of(command, address, Path(folder)).rstrip()), soft_wrap=False)
            console.print()
    drawing = console.export_svg(title="penstock", font_aspect_ratio=0.61)
    drawing = FACE.sub("", drawing).replace("Fira Code, monospace", "ui-monospace, monospace")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(drawing)


def output_of(command: str, address: PlatformAddress, folder: Path) -> str:
    """The output of a command, of both streams."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PENSTOCK_BOOTSTRAP": address.kafka,
        "PENSTOCK_REGISTRY": address.registry,
        "COLUMNS": str(COLUMNS),
    }
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, text=True, timeout=60, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    status = "" if done.returncode == 0 else f"(exit status {done.returncode})"
    return done.stdout.replace(address.kafka, "127.0.0.1:9092") + status


def shown(command: str) -> str:
    """The command as it is typed, with the default ports."""
    typed = command.replace("$PENSTOCK_BOOTSTRAP", "127.0.0.1:9092")
    return typed.replace(" --registry $PENSTOCK_REGISTRY", " --registry http://127.0.0.1:8081")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
