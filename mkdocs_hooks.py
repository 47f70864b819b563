"""What `make docs` adds to the pages: the API reference, and styles for highlighted code.

A page of the reference contains a line `[[names of penstock.client]]`. It is replaced with one
mkdocstrings directive for each public name of that package, so that names are listed only once: in
the package's `__init__.py`.
"""

import re
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from pygments.formatters import HtmlFormatter

import penstock
import penstock.client
import penstock.spark
import penstock.testing

STYLES: Final = (("default", ".highlight"), ("github-dark", '[data-bs-theme="dark"] .highlight'))
PACKAGES: Final[dict[str, Any]] = {
    package.__name__: package
    for package in (penstock, penstock.client, penstock.spark, penstock.testing)
}
_NAMES: Final = re.compile(r"^\[\[names of ([\w.]+)(?: without ([\w.]+))?\]\]$", re.MULTILINE)
_FENCE: Final = re.compile(r"^(```\w+) [^\n]*$", re.MULTILINE)  # with words for the tests


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the style sheet of highlighted code."""
    sheets = [HtmlFormatter(style=style).get_style_defs(where) for style, where in STYLES]
    files.append(File.generated(config, "highlight.css", content="\n".join(sheets)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Expand the names of the API reference, and remove what only tests read."""
    return _FENCE.sub(r"\1", _NAMES.sub(_directives, markdown))


def public_names(package: str) -> list[str]:
    """The public names of a package."""
    return sorted(
        PACKAGES[package].__all__, key=lambda name: (name.endswith("Error"), name.lower())
    )


def _directives(match: re.Match[str]) -> str:
    package, documented = match[1], match[2]
    left_out = public_names(documented) if documented else []
    names = [name for name in public_names(package) if name not in left_out]
    return "\n\n".join(f"::: {package}.{name}" for name in names)
