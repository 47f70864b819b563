"""Style rules that no linter checks. Each test lists every place that breaks its rule.

The lists of exceptions are to become empty.
"""

import ast
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from penstock.broker.handlers import API_TABLE
from penstock.broker.permissions import AllOf, AnyOf, Permission

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "penstock"
SOURCES = sorted((ROOT / "src").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
BENCHES = sorted((ROOT / "bench").rglob("*.py"))
EVERYTHING = SOURCES + TESTS + BENCHES

FUNCTION_LINES_MAX = 60
KERNEL_LINES_MAX = 160  # numba: a kernel is one loop
FILE_LINES_MAX = 450
KERNEL_FILE_LINES_MAX = 480

EMPTY_NAMES = {"utils", "util", "common", "helpers", "helper", "manager", "misc"}
EMPTY_VERBS = re.compile(r"_?(get|do|process|handle_data)_")
NAMED_BY_OTHERS = {"get_buffer"}  # asyncio's own name

LANGUAGES = {"avro", "json", "protobuf"}
EVERYWHERE = {"__init__", "__main__", "errors", "metrics", "settings"}
MACHINE_FILES = {
    *("apply", "codec", "commands", "decide_timeouts", "events", "machine", "state", "validate"),
}
MODULES_TWICE = {"aio", "control_records", "model"}
CLASSES_TWICE = {"Message", "Record"}

EXCEPTION = re.compile(r"#\s*(noqa|type: ignore)(:\s*[A-Z0-9, ]+|\[[a-z0-9, -]+\])?")
FOR_LATER = re.compile(r"\b(TODO|FIXME|XXX)\b|raise NotImplementedError|pass +# ")

# Words that are never the plain word for a thing here; docs/glossary.md has the plain ones.
FORBIDDEN_WORDS = set(
    re.findall(
        r"\w+",
        """
        anew asker beaten desk everybody house judgement mend mended mender mends mint minted
        minting misfit mute muted nobody obstacle obstacles outbox patiently rot rots rotted rotten
        shelf sieve sift sifted somebody storey tally told unsound whoever whom
        """,
    )
)
FORBIDDEN_PHRASES = re.compile(
    r"(?<![a-z])(?:for ever|good order|ha(?:s|ve) no say|hears? of|in vain|of its own accord"
    r"|so often|speaks? (?:against|of)|stands? still|stood still)(?![a-z])".replace(" ", r"[\s_]+"),
    re.IGNORECASE,
)
PART_OF_NAME = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def has_kernels(path: Path) -> bool:
    return "kernels" in path.stem or "@njit" in path.read_text()


def test_a_module_opens_with_its_purpose() -> None:
    assert not [shown(path) for path in SOURCES if not ast.get_docstring(parsed(path))]


def test_a_package_is_named_for_its_subject() -> None:
    parts = {shown(path): {part.removesuffix(".py") for part in path.parts} for path in SOURCES}
    assert not [name for name, names in parts.items() if EMPTY_NAMES & names]


def test_a_file_has_one_subject() -> None:
    long = set()
    for path in SOURCES:
        limit = KERNEL_FILE_LINES_MAX if has_kernels(path) else FILE_LINES_MAX
        if len(path.read_text().splitlines()) > limit:
            long.add(shown(path))
    assert not long


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


def test_function_names_have_meaningful_verbs() -> None:
    assert not [
        f"{shown(path)}: {function.name}"
        for path in SOURCES
        for function in functions(path)
        if EMPTY_VERBS.match(function.name) and function.name not in NAMED_BY_OTHERS
    ]


def test_a_public_class_name_is_unique_across_packages() -> None:
    homes: defaultdict[str, set[str]] = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].add(path.relative_to(PACKAGE).parts[0])
    twice = {name: sorted(packages) for name, packages in homes.items() if len(packages) > 1}
    assert not {name: where for name, where in twice.items() if name not in CLASSES_TWICE}
    assert not CLASSES_TWICE - twice.keys(), "exceptions that are not needed any more"


def test_a_module_name_occurs_twice_only_by_rule() -> None:
    """A machine's files, the three languages, and the message, handler and command of one thing."""
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        where = path.relative_to(PACKAGE)
        by_rule = (
            where.stem in EVERYWHERE | MACHINE_FILES
            or where.parts[0] == "cli"
            or where.parts[:2] in {("protocol", "messages"), ("broker", "handlers")}
            or LANGUAGES & set(where.parts)
        )
        if not by_rule:
            homes[where.stem].append(str(where))
    twice = {name: where for name, where in homes.items() if len(where) > 1}
    assert not {name: where for name, where in twice.items() if name not in MODULES_TWICE}
    assert not MODULES_TWICE - twice.keys(), "exceptions that are not needed any more"


def test_no_function_takes_a_request_of_any_type() -> None:
    assert not [
        f"{shown(path)}: {function.name}"
        for path in SOURCES
        for function in functions(path)
        for argument in (*function.args.args, *function.args.kwonlyargs)
        if argument.arg == "request"
        and (argument.annotation is None or ast.unparse(argument.annotation) == "Any")
    ]


def test_every_api_states_the_permission_it_requires() -> None:
    assert all(isinstance(row.allow, Permission | AllOf | AnyOf) for row in API_TABLE.rows)


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


def forbidden_in(text: str) -> set[str]:
    words = {word.lower() for word in PART_OF_NAME.findall(text)}
    phrases = {" ".join(re.split(r"[\s_]+", p.lower())) for p in FORBIDDEN_PHRASES.findall(text)}
    return (words & FORBIDDEN_WORDS) | phrases


STYLE_CLASS = re.compile(r"\bmuted\b")  # in style sheets: text of less contrast
TEXT_SUFFIXES = {".case", ".css", ".html", ".java", ".js", ".md", ".py"}
TOP_PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")


def texts_of(folder: str) -> Iterator[tuple[str, str]]:
    """The texts that a reader sees."""
    path = ROOT / folder
    files = [path] if path.is_file() else sorted(path.rglob("*"))
    for file in files:
        if file.suffix in TEXT_SUFFIXES and file != Path(__file__):
            text = file.read_text()
            yield shown(file), STYLE_CLASS.sub("", text) if file.suffix in {".css", ".js"} else text


def folders() -> list[str]:
    inner = [path for top in ("src/penstock", "tests") for path in (ROOT / top).iterdir()]
    tops = [ROOT / name for name in TOP_PAGES]
    others = [path for top in ("bench", "docs", "examples") for path in (ROOT / top).iterdir()]
    return [shown(path) for path in sorted((*inner, *tops, *others)) if any(texts_of(shown(path)))]


@pytest.mark.parametrize("folder", folders())
def test_words_are_plain(folder: str) -> None:
    texts = list(texts_of(folder))
    assert sum(len(text) for _, text in texts) > 0
    assert not {name: sorted(words) for name, text in texts if (words := forbidden_in(text))}


PAGE_FILES = sorted((PACKAGE / "console" / "static").rglob("*.*"))
# What turns text into markup or code, styles that the policy refuses, and other servers.
BANNED_IN_PAGES = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|setHTMLUnsafe|createContextualFragment"
    r"|\beval\(|new Function|\bstyle\s*=\s*[\"'`]|<style|javascript:"
    r"|https?://(?!www\.w3\.org/2000/svg)"
)


def test_pages_make_no_markup_from_text_and_load_nothing_from_elsewhere() -> None:
    assert PAGE_FILES
    assert not {
        shown(path): found
        for path in PAGE_FILES
        if (found := BANNED_IN_PAGES.findall(path.read_text()))
    }


def test_a_module_of_the_pages_has_one_subject_and_opens_with_it() -> None:
    modules = [path for path in PAGE_FILES if path.suffix == ".js"]
    assert not [shown(path) for path in modules if not path.read_text().startswith("// ")]
    assert not [shown(path) for path in modules if len(path.read_text().splitlines()) >= 400]
