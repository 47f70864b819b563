"""House rules that no other tool knows."""

import ast
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
BENCHES = sorted((ROOT / "bench").rglob("*.py"))
NAMELESS_ROOMS = {"utils", "util", "common", "helpers", "helper", "manager", "misc"}
FUNCTION_LINES_MAX = 60
KERNEL_LINES_MAX = 160  # numba: a kernel is one loop
FILE_LINES_MAX = 500


def ids(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@pytest.mark.parametrize("path", SOURCES, ids=ids)
def test_a_module_opens_with_what_it_is(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text())), "say what the module is and never does"


@pytest.mark.parametrize("path", SOURCES, ids=ids)
def test_a_room_has_a_name(path: Path) -> None:
    assert not NAMELESS_ROOMS & {part.removesuffix(".py") for part in path.parts}


@pytest.mark.parametrize("path", SOURCES, ids=ids)
def test_a_file_holds_one_idea(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= FILE_LINES_MAX


@pytest.mark.parametrize("path", SOURCES, ids=ids)
def test_a_function_fits_a_screen(path: Path) -> None:
    limit = KERNEL_LINES_MAX if "columns" in path.parts else FUNCTION_LINES_MAX
    long = [f.name for f in functions(path) if (f.end_lineno or 0) - f.lineno >= limit]
    assert not long, f"longer than {limit} lines"


@pytest.mark.parametrize("path", SOURCES, ids=ids)
def test_names_say_what_they_mean(path: Path) -> None:
    bad = [f.name for f in functions(path) if re.match(r"_?(get|do|process|handle_data)_", f.name)]
    allowed = {"get_buffer"}  # asyncio's own name
    assert not set(bad) - allowed


@pytest.mark.parametrize("path", SOURCES + TESTS + BENCHES, ids=ids)
def test_an_exception_to_a_rule_gives_its_reason(path: Path) -> None:
    with tokenize.open(path) as file:
        comments = [
            t for t in tokenize.generate_tokens(file.readline) if t.type == tokenize.COMMENT
        ]
    for comment in comments:
        if re.match(r"#\s*(noqa|type: ignore)", comment.string):
            reason = re.sub(
                r"#\s*(noqa|type: ignore)(:\s*[A-Z0-9, ]+|\[[a-z0-9, -]+\])?", "", comment.string
            )
            assert len(reason.strip(" -#:.")) >= 8, f"line {comment.start[0]}: {comment.string}"


@pytest.mark.parametrize("path", SOURCES + TESTS + BENCHES, ids=ids)
def test_nothing_is_left_for_later(path: Path) -> None:
    text = path.read_text()
    if path == Path(__file__):
        return
    assert not re.search(r"\b(TODO|FIXME|XXX)\b|NotImplementedError|pass +# ", text)


def test_pins_name_no_host() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert lines
    assert all(re.fullmatch(r"[A-Za-z0-9_.\-\[\]]+==[A-Za-z0-9.!+]+", line) for line in lines)
