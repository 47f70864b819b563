"""A real browser's EventSource and WebSocket, in headless Chromium."""

import json
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from penstock.node.http_process import HttpOptions
from penstock.node.supervisor import HttpProcess
from penstock.testing.platform import Platform
from tests.gateway.streams.conftest import Write
from tests.support.platform_fixtures import MakeTopic

EXAMPLES = Path(__file__).parents[3] / "examples"
CHROMIUM = shutil.which("chromium")
WAIT_S = 60
EVENTS = 250  # more than the page grants credit for at once

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: make tools"),
]
# Reports what the page of the example shows to the server that it came from.
REPORT = b"""<script>
setInterval(() => {
  const shown = [...document.querySelectorAll("li")].map((item) => item.textContent);
  const body = JSON.stringify({shown, state: document.getElementById("state").textContent});
  fetch("/shown", {method: "POST", body});
}, 100);
</script>"""


class PageServer(ThreadingHTTPServer):
    """Serves the examples, and receives what the page shows."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.state = ""
        super().__init__(("127.0.0.1", 0), partial(PageHandler, directory=str(EXAMPLES)))
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class PageHandler(SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        content = (EXAMPLES / self.path.partition("?")[0].lstrip("/")).read_bytes() + REPORT
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(content)

    def do_POST(self) -> None:
        report = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert isinstance(self.server, PageServer)
        self.server.shown, self.server.state = report["shown"], report["state"]
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        """Not in the output of tests."""


@pytest.fixture
def pages() -> Iterator[PageServer]:
    server = PageServer()
    yield server
    server.shutdown()
    server.server_close()


class Gateway:
    """An HTTP process that allows pages of an origin, and comes back to its port."""

    def __init__(self, bootstrap: str, origin: str) -> None:
        self._options = HttpOptions(bootstrap, http_port=0, allowed_origins=(origin,))
        self.start()

    def start(self) -> None:
        self.process = HttpProcess()
        self.process.configure(self._options)
        self.url = str(self.process.wait_ready()["http"])
        port = int(self.url.rpartition(":")[2].rstrip("/"))
        self._options = HttpOptions(
            self._options.kafka, http_port=port, allowed_origins=self._options.allowed_origins
        )


@pytest.fixture
def gateway(penstock: Platform, pages: PageServer) -> Iterator[Gateway]:
    gateway = Gateway(penstock.bootstrap, pages.origin)
    yield gateway
    gateway.process.stop()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s, "the page does not show it"
        time.sleep(0.1)


def shown(first: int, end: int) -> list[str]:
    rows = [json.dumps({"n": number}, separators=(",", ":")) for number in range(first, end)]
    return sorted(rows)


@pytest.mark.parametrize("page", ["browser_client.html", "browser_websocket.html"])
def test_a_page_reads_a_stream_and_resumes_after_a_kill_of_the_gateway(
    gateway: Gateway, pages: PageServer, make_topic: MakeTopic, write: Write, tmp_path: Path,
    page: str,
) -> None:  # fmt: skip
    topic = make_topic(2)
    write(topic, 0, EVENTS)
    address = f"{pages.origin}/{page}?topic={topic}&offset=earliest"
    assert CHROMIUM is not None
    browser = subprocess.Popen(
        [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
            f"--user-data-dir={tmp_path}", "--remote-debugging-port=0",
            f"{address}&gateway={gateway.url}",
        ],
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_for(lambda: sorted(pages.shown) == shown(0, EVENTS))
        gateway.process.kill()
        wait_for(lambda: pages.state == "connecting again")
        gateway.start()
        write(topic, EVENTS, EVENTS + 3)
        wait_for(lambda: len(pages.shown) >= EVENTS + 3)
        assert sorted(pages.shown) == shown(0, EVENTS + 3)
    finally:
        browser.terminate()
        browser.wait()
