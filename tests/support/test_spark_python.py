"""The Python that Spark starts in tests connects to Spark before it imports the worker's module."""

import os
import socket
import subprocess
from pathlib import Path

PYTHON = Path(__file__).parent / "spark_python" / "python"
MODULE = """
import os, socket, time
from pathlib import Path

while not Path("go").exists():  # a module that takes long to import
    time.sleep(0.01)
with socket.socket() as connection:
    connection.settimeout(10)
    connection.connect(("127.0.0.1", int(os.environ["PYTHON_WORKER_FACTORY_PORT"])))
    connection.sendall(b"imported")
    assert connection.recv(10) == b"bye"
"""


def test_a_worker_is_connected_before_its_module_is_imported(tmp_path: Path) -> None:
    (tmp_path / "slow_module.py").write_text(MODULE)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(30)
        port = listener.getsockname()[1]
        worker = subprocess.Popen(
            [PYTHON, "-m", "slow_module"],
            cwd=tmp_path,
            env={**os.environ, "PYTHON_WORKER_FACTORY_PORT": str(port)},
        )
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(30)
            (tmp_path / "go").touch()
            assert connection.recv(20) == b"imported"
            connection.sendall(b"bye")
        assert worker.wait(30) == 0
