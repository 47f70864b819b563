"""The clients of `tests/faults/java/ClusterClients.java`, as one process."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.apache_kafka import java_command
from tests.support.history import Committed, Outcome, Produced, Transaction, read_operation

if TYPE_CHECKING:
    from tests.support.history import History

PROGRAM = Path(__file__).parents[2] / "faults" / "java" / "ClusterClients.java"
END_S = 180.0
FATAL = {"error"}  # what of their notes no application may see


class JavaClients:
    """Starts the program; its lines become operations of the history."""

    def __init__(self, history: History, libraries: Path, *arguments: str) -> None:
        self.history = history
        self.acknowledged: Counter[str] = Counter()  # by client
        self.errors: list[str] = []
        self.notes: Counter[str] = Counter()
        self._command = java_command(libraries, str(PROGRAM), *arguments)
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._read, name="java clients")
        self._has_ended = False
        self._produced: list[Produced] = []

    def start(self) -> None:
        """Run the clients."""
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # what clients log of a failing cluster
            text=True,
        )
        self._thread.start()

    def stop(self) -> None:
        """Let the clients finish: all that was to be moved is moved."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        try:
            process.stdin.write("\n")
            process.stdin.close()
            process.wait(END_S)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            process.kill()
            process.wait()
        self._thread.join()
        assert process.stdout is not None
        process.stdout.close()
        # The outcome of a batch that was retried is known later than that of the next one.
        for operation in sorted(self._produced, key=_sending_order):
            self.history.add(operation)
        if not self._has_ended:
            self.errors.append("the Java clients did not finish")

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):  # the library logs its errors there, too
                self._take(json.loads(line))

    def _take(self, row: dict[str, Any]) -> None:
        if row["kind"] == "end":
            self._has_ended = True
        elif row["kind"] == "note":
            note = f"{row['client']} {row['what']}: {row['text']}"
            self.notes[note] += 1
            if row["what"] in FATAL:
                self.errors.append(note)
        else:
            operation = read_operation(row)
            if isinstance(operation, Produced):
                self._produced.append(operation)
            else:
                self.history.add(operation)
            if getattr(operation, "outcome", None) == Outcome.ACKNOWLEDGED:
                self._count(operation)

    def _count(self, operation: Any) -> None:
        match operation:
            case Produced(transaction=None):
                self.acknowledged[operation.producer] += 1
            case Transaction():
                self.acknowledged[operation.name.rpartition("-")[0]] += 1
            case Committed():
                self.acknowledged[operation.group] += 1


def _sending_order(produced: Produced) -> list[int]:
    """Values end with a number for each transaction or record: java-17, java-transactions-3.5."""
    return [int(number) for number in re.findall(r"\d+", produced.value)]
