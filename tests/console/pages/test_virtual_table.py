"""The virtual table at its limits, asked by what is on the screen at a place."""

import pytest

from tests.console.pages.conftest import OpenPage

pytestmark = pytest.mark.slow
ROWS = 1_000_000
BUILD = """async (total) => {
  const { VirtualTable } = await import("/console/static/table.js");
  const table = new VirtualTable({
    label: "rows",
    columns: [{ name: "n", label: "n", width: "1fr", cell: (row) => `row ${row}` }],
    rowAt: (index) => index,
  });
  const main = document.querySelector("main");
  main.replaceChildren(table.node);
  table.setTotal(total);
  window.table = table;
}"""
AT = """(place) => {
  const box = document.querySelector(".vtable").getBoundingClientRect();
  const y = place === "top" ? box.top + 40 : box.bottom - 24;
  return document.elementFromPoint(box.left + 40, y).textContent;
}"""


@pytest.mark.parametrize("total", [3, 1000, ROWS, 50 * ROWS])
def test_the_first_and_the_last_row_are_in_sight(open_page: OpenPage, total: int) -> None:
    page = open_page("/nothing")
    page.get_by_text("There is no such page").wait_for()
    page.evaluate(BUILD, total)
    assert page.evaluate(AT, "top") == "row 0"
    page.locator(".vtable").focus()
    page.keyboard.press("End")
    if total > 30:
        assert page.evaluate(AT, "bottom") == f"row {total - 1}"
    page.keyboard.press("Home")
    assert page.evaluate(AT, "top") == "row 0"
    assert page.locator(".vrow").count() < 60


def test_a_jump_by_the_scroll_bar_or_to_a_row_shows_rows(open_page: OpenPage) -> None:
    page = open_page("/nothing")
    page.get_by_text("There is no such page").wait_for()
    page.evaluate(BUILD, ROWS)
    page.evaluate(
        "() => { const t = document.querySelector('.vtable'); t.scrollTop = t.scrollHeight / 2; }"
    )
    page.wait_for_function("() => document.querySelector('.vrow').textContent !== 'row 0'")
    middle = int(page.evaluate(AT, "top").removeprefix("row "))
    assert 0.45 * ROWS < middle < 0.55 * ROWS
    page.evaluate("() => table.reveal(777_777, true)")
    assert page.evaluate(AT, "top") == "row 777777"


def test_a_wheel_moves_by_rows_however_long_the_table_is(open_page: OpenPage) -> None:
    page = open_page("/nothing")
    page.get_by_text("There is no such page").wait_for()
    page.evaluate(BUILD, 50 * ROWS)
    page.locator(".vtable").hover()
    page.mouse.wheel(0, 320)
    page.wait_for_function("() => document.querySelector('.vrow').textContent === 'row 10'")
