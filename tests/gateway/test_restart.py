"""`penstock up` starts an HTTP process that died again."""

import json
import subprocess
import sys
import time
from pathlib import Path

import httpx
import psutil
import pytest

UP = [sys.executable, "-m", "penstock.cli.main", "up", "--kafka-port", "0", "--http-port", "0"]


def http_pid(parent: int) -> int:
    (found,) = [
        int(child.pid)
        for child in psutil.Process(parent).children()
        if "penstock.node.http_process" in child.cmdline()
    ]
    return found


@pytest.mark.slow
def test_an_http_process_that_was_killed_serves_again_at_its_address(tmp_path: Path) -> None:
    command = [*UP, "--json", "--dir", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        url = json.loads(process.stdout.readline())["http"]
        killed = http_pid(process.pid)
        psutil.Process(killed).kill()
        deadline = time.monotonic() + 60
        while True:
            try:
                if httpx.get(f"{url}/health/ready", timeout=5).status_code == 200:
                    break
            except httpx.TransportError:
                assert time.monotonic() < deadline
                time.sleep(0.2)
        assert http_pid(process.pid) != killed
    finally:
        process.terminate()
        assert process.wait(60) == 0
        process.stdout.close()
        process.stderr.close()
