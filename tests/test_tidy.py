"""House rules that no other tool knows. Each test names every place that breaks its rule."""

import ast
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
BENCHES = sorted((ROOT / "bench").rglob("*.py"))
EVERYTHING = SOURCES + TESTS + BENCHES
NAMELESS_ROOMS = {"utils", "util", "common", "helpers", "helper", "manager", "misc"}
NAMELESS_VERBS = re.compile(r"_?(get|do|process|handle_data)_")
NAMED_BY_OTHERS = {"get_buffer"}  # asyncio's own name
FUNCTION_LINES_MAX = 60
KERNEL_LINES_MAX = 160  # numba: a kernel is one loop
FILE_LINES_MAX = 500
EXCEPTION = re.compile(r"#\s*(noqa|type: ignore)(:\s*[A-Z0-9, ]+|\[[a-z0-9, -]+\])?")
FOR_LATER = re.compile(r"\b(TODO|FIXME|XXX)\b|raise NotImplementedError|pass +# ")


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_a_module_opens_with_what_it_is() -> None:
    assert not [shown(path) for path in SOURCES if not ast.get_docstring(parsed(path))]


def test_a_room_has_a_name() -> None:
    parts = {shown(path): {part.removesuffix(".py") for part in path.parts} for path in SOURCES}
    assert not [name for name, found in parts.items() if NAMELESS_ROOMS & found]


def test_a_file_holds_one_idea() -> None:
    sizes = {shown(path): len(path.read_text().splitlines()) for path in SOURCES}
    assert not {name: size for name, size in sizes.items() if size > FILE_LINES_MAX}


def test_a_function_fits_a_screen() -> None:
    long = []
    for path in SOURCES:
        limit = KERNEL_LINES_MAX if "columns" in path.parts else FUNCTION_LINES_MAX
        long += [
            f"{shown(path)}: {function.name}"
            for function in functions(path)
            if (function.end_lineno or 0) - function.lineno >= limit
        ]
    assert not long


def test_names_say_what_they_mean() -> None:
    assert not [
        f"{shown(path)}: {function.name}"
        for path in SOURCES
        for function in functions(path)
        if NAMELESS_VERBS.match(function.name) and function.name not in NAMED_BY_OTHERS
    ]


def test_an_exception_to_a_rule_gives_its_reason() -> None:
    silent = []
    for path in EVERYTHING:
        with tokenize.open(path) as file:
            tokens = list(tokenize.generate_tokens(file.readline))
        for token in tokens:
            if token.type == tokenize.COMMENT and EXCEPTION.match(token.string):
                reason = EXCEPTION.sub("", token.string).strip(" -#:.")
                if len(reason) < 8:
                    silent.append(f"{shown(path)}:{token.start[0]} {token.string}")
    assert not silent


def test_nothing_is_left_for_later() -> None:
    here = Path(__file__)
    left = [
        shown(path) for path in EVERYTHING if path != here and FOR_LATER.search(path.read_text())
    ]
    assert not left


def test_pins_name_no_host() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert lines
    assert all(re.fullmatch(r"[A-Za-z0-9_.\-\[\]]+==[A-Za-z0-9.!+]+", line) for line in lines)
