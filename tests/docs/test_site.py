"""The site that `make docs` builds, and the pages in the repository."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from mkdocs_hooks import PACKAGES, public_names

ROOT = Path(__file__).parents[2]
LOADING = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


class LoadedAddresses(HTMLParser):
    """The addresses that a page makes the browser load."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attribute = LOADING.get(tag)
        self.addresses += [value for name, value in attrs if name == attribute and value]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_site_loads_nothing_from_other_hosts(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 10
    outside = {}
    for page in pages:
        loads = LoadedAddresses()
        loads.feed(page.read_text())
        external = [
            address for address in loads.addresses if address.startswith(("http:", "https:", "//"))
        ]
        if external:
            outside[page.name] = external
    assert not outside
    styles = "".join(sheet.read_text() for sheet in site.rglob("*.css"))
    assert not re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//[^)\"']+", styles)


def test_the_api_reference_has_every_public_name_once(site: Path) -> None:
    pages = {page: page.read_text() for page in (site / "api").glob("*.html")}
    for package in PACKAGES:
        for name in public_names(package):
            title = f'id="{package}.{name}"'
            in_penstock = f'id="penstock.{name}"'
            count = sum(title in text or in_penstock in text for text in pages.values())
            assert count == 1, f"{package}.{name}"


def test_code_is_highlighted_and_words_for_tests_are_removed(site: Path) -> None:
    tutorial = (site / "tutorial.html").read_text()
    assert 'class="highlight"' in tutorial
    assert "```" not in tutorial
    assert 'href="highlight.css"' in tutorial


def test_links_between_pages_have_targets() -> None:
    broken = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        targets = [target for target in LINK.findall(page.read_text()) if "://" not in target]
        broken += [
            f"{page.relative_to(ROOT)}: {target}"
            for target in targets
            if not (page.parent / target).exists()
        ]
    assert not broken


def test_pictures_load_nothing() -> None:
    pictures = sorted((ROOT / "docs").rglob("*.svg"))
    assert pictures
    for picture in pictures:
        text = picture.read_text()
        ElementTree.fromstring(text)
        names = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xhtml"}
        addresses = set(re.findall(r"https?://[^\s\"')<]+", text)) - names
        loaded = [url for url in addresses if f'href="{url}' in text or f"url({url}" in text]
        assert not loaded, picture.name
