"""What a person sees of a list, and when: asked by the place on the screen, measured in the page.

A row counts when it is the topmost element at its place: rows that are in the document and not on
the screen do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from playwright.sync_api import Page

NODES_MAX: Final = 2_500
_SEEN: Final = """
const rowAt = (index) => {
  const table = document.querySelector(".vtable");
  if (!table) return "";
  const box = table.getBoundingClientRect();
  const y = index < 0 ? box.bottom + 12 + 32 * index : box.top + 44 + 32 * index;
  const row = document.elementFromPoint(box.left + 60, y)?.closest(".vrow:not(.waits)");
  return row?.textContent ?? "";
};
const frame = () => new Promise(requestAnimationFrame);
const until = async (text) => {
  const deadline = performance.now() + 60_000;
  while (!rowAt(0).includes(text)) {
    if (performance.now() > deadline) throw new Error(`not on top of the list: ${text}`);
    await frame();
  }
  await frame(); // the frame before this one was painted
};
"""
_ROW_AT: Final = f"(index) => {{ {_SEEN} return rowAt(index); }}"
_UNTIL: Final = f"async (text) => {{ {_SEEN} await until(text); return performance.now(); }}"
_TYPE: Final = f"""async ([label, text, wanted]) => {{ {_SEEN}
  const input = document.querySelector(`[aria-label="${{label}}"]`);
  const began = performance.now();
  input.value = text;
  input.dispatchEvent(new Event("input", {{ bubbles: true }}));
  input.form?.requestSubmit();
  await until(wanted);
  return performance.now() - began;
}}"""


def row_at(page: Page, index: int = 0) -> str:
    """The text of a row on the screen: 0 is the first, -1 the last."""
    text: str = page.evaluate(_ROW_AT, index)
    return text


def open_until_ms(page: Page, url: str, text: str) -> float:
    """Open a page; the time from the navigation until the first row on the screen has the text."""
    page.goto(url, wait_until="commit")
    elapsed_ms: float = page.evaluate(_UNTIL, text)
    return elapsed_ms


def type_until_ms(page: Page, label: str, text: str, wanted: str) -> float:
    """Enter a text, and send its form if it has one; the time until the wanted row is painted."""
    elapsed_ms: float = page.evaluate(_TYPE, [label, text, wanted])
    return elapsed_ms


def node_count(page: Page) -> int:
    """The elements of the document."""
    count: int = page.evaluate("() => document.querySelectorAll('*').length")
    return count
