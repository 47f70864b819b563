"""The tutorial and the README are run, command by command, against a real platform."""

from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(600)
def test_every_command_of_the_tutorial_does_what_the_page_says(
    follow: Callable[[str], int],
) -> None:
    assert follow((ROOT / "docs" / "tutorial.md").read_text()) > 10


@pytest.mark.timeout(600)
def test_every_command_of_the_readme_does_what_it_says(follow: Callable[[str], int]) -> None:
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
def test_a_page_that_says_otherwise_is_caught(
    follow: Callable[[str], int], unlike: type[Exception], page: str
) -> None:
    with pytest.raises((unlike, AssertionError)):
        follow(page)


def test_what_varies_may_be_left_open(follow: Callable[[str], int]) -> None:
    page = "```sh\necho 'a   12 s'; exit 1\n```\n\n```text\na … s\n```\n"
    assert follow(page.replace("```sh", "```sh status 1")) == 1
