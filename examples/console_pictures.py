"""The pictures of the console in README and docs: pages of a shop in headless Chromium.

python -m examples.console_pictures docs/pictures
"""

import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
from playwright.sync_api import Browser, sync_playwright

from examples.console_shop import write_shop
from examples.demo_platform import platform_up

SIZE = {"width": 1280, "height": 800}
SETTLE_MS = 2500
SAMPLES_MS = 45_000


class Picture(NamedTuple):
    """A page to draw, and a text that it shows when it is ready."""

    name: str
    path: str
    theme: str
    ready: str


PICTURES = (
    Picture("console-overview", "", "dark", "Groups by lag"),
    Picture(
        "console-records", "/topics/orders/records?partition=1&open=1%3A300", "light", "schema id"
    ),
    Picture("console-topics", "/topics", "dark", "payments"),
    Picture("console-group", "/groups/billing", "light", "Lag in the last hour"),
    Picture("console-schema", "/schemas/orders-value?from=1&to=3", "dark", "Upgrade order"),
)


def main(folder: Path) -> None:
    """Draw all pictures."""
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("chromium is not installed: make tools")
    with platform_up(None) as address:
        write_shop(address.kafka, address.registry)
        with sync_playwright() as playwright, _traffic(address.registry):
            browser = playwright.chromium.launch(
                executable_path=chromium, args=["--no-sandbox", "--disable-gpu", "--no-first-run"]
            )
            samples = browser.new_page()  # rates and lag are sampled while a page is open
            samples.goto(f"{address.registry.rstrip('/')}/console")
            samples.wait_for_timeout(SAMPLES_MS)
            for picture in PICTURES:
                _draw(browser, address.registry, picture, folder / f"{picture.name}.png")
            browser.close()


@contextmanager
def _traffic(url: str) -> Iterator[None]:
    """Some clicks per second, so that rates are not zero."""
    stopping = threading.Event()

    def write() -> None:
        with httpx.Client(base_url=url) as http:
            number = 0
            while not stopping.wait(0.2):
                number += 1
                records = [{"key": f"visitor-{each}", "value": {"page": "/"}} for each in range(9)]
                http.post("/topics/clicks/produce", json={"records": records[: 3 + number % 7]})

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        yield
    finally:
        stopping.set()
        writer.join()


def _draw(browser: Browser, url: str, picture: Picture, target: Path) -> None:
    theme = picture.theme
    context = browser.new_context(color_scheme=theme, viewport=SIZE)  # type: ignore[arg-type]  # literals there
    page = context.new_page()
    page.goto(f"{url.rstrip('/')}/console{picture.path}")
    page.locator("main").get_by_text(picture.ready).first.wait_for()
    page.wait_for_timeout(SETTLE_MS)
    page.screenshot(path=target)
    context.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
