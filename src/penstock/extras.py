"""Extras: which optional libraries an install may lack, and how that is reported.

A base install runs the broker, the registry, single events in Avro and JSON, the command line and
the pytest plugin. Whatever needs more calls `require` before it imports the library: without it the
caller gets one sentence that names the extra, and never a slower or partial substitute.
"""

import sys
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final, NamedTuple


class Extra(NamedTuple):
    """A row: an optional dependency of `pyproject.toml`."""

    modules: tuple[str, ...]  # what must be importable
    purpose: str


EXTRAS: Final[Mapping[str, Extra]] = {
    "arrow": Extra(("pyarrow",), "Events as Arrow columns"),
    "otel": Extra(("opentelemetry.sdk",), "Traces"),
    "protobuf": Extra(("grpc_tools",), "Protobuf schemas"),
    "sql": Extra(("duckdb", "pyarrow"), "SQL over topics"),
    "spark": Extra(("pyspark", "pyarrow", "pandas"), "Pipelines on Spark"),
}


class MissingExtraError(ImportError):
    """A library of an extra is not installed."""

    def __init__(self, name: str, module: str) -> None:
        super().__init__(
            f"{EXTRAS[name].purpose} need the extra '{name}', which is not installed (there is no "
            f"module {module}): install penstock[{name}]",
            name=module,
        )
        self.extra = name


def require(name: str) -> None:
    """Raise MissingExtraError unless all libraries of the extra are installed. Imports none."""
    for module in EXTRAS[name].modules:
        if not _is_importable(module):
            raise MissingExtraError(name, module)


def is_installed(name: str) -> bool:
    """Whether all libraries of the extra are installed."""
    return all(map(_is_importable, EXTRAS[name].modules))


def _is_importable(module: str) -> bool:
    if module in sys.modules:
        return True
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a finder that refuses the module
        return False
