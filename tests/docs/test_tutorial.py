"""The commands of the tutorial and the README run against a real platform."""

from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_command_of_the_tutorial_has_the_output_on_the_page(
    follow: Callable[[str], int],
) -> None:
    assert follow((ROOT / "docs" / "tutorial.md").read_text()) > 10


@pytest.mark.timeout(600)
def test_every_command_of_the_readme_has_the_output_on_the_page(
    follow: Callable[[str], int],
) -> None:
    assert follow((ROOT / "README.md").read_text()) >= 4


@pytest.mark.parametrize(
    "page",
    [
        "```sh\nfalse\n```\n",
        "```sh\nfalse | true\n```\n",
        "```sh status 3\ntrue\n```\n",
        "```sh\necho a\n```\n\n```text\nb\n```\n",
        "```sh\necho a; echo b\n```\n\n```text\nb\na\n```\n",
        "```sh\necho ab\n```\n\n```text\na\n```\n",
        "```sh in a terminal of its own\ntrue\n```\n",
    ],
)
def test_a_page_with_other_output_fails(
    follow: Callable[[str], int], page_error: type[Exception], page: str
) -> None:
    with pytest.raises((page_error, AssertionError)):
        follow(page)


def test_an_ellipsis_matches_anything(follow: Callable[[str], int]) -> None:
    page = "```sh\necho 'a   12 s'; exit 1\n```\n\n```text\na … s\n```\n"
    assert follow(page.replace("```sh", "```sh status 1")) == 1
