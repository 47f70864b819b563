// A table of any number of rows. Only the rows in sight are in the document.
//
// The window with the rows is sticky inside a tall spacer, so a jump never shows a blank place.
// Browsers limit the height of an element: above SPACER_PX_MAX, scroll positions are scaled.

import { append, fill, h } from "./dom.js";

const ROW_PX = 32;
const SPACER_PX_MAX = 8_000_000;

/**
 * @typedef {object} Column
 * @property {string} name also the value of `sort` in the address
 * @property {string} label
 * @property {string} [width] of CSS grid, such as `120px` or `minmax(160px, 1fr)`
 * @property {boolean} [right] for numbers
 * @property {boolean} [mono]
 * @property {(row: any) => unknown} cell a text, a node, or a list of them
 * @property {(left: any, right: any) => number} [compare] makes the column sortable
 * @property {string} [hint]
 */

export class VirtualTable {
  /**
   * @param {{label: string, columns: Column[], rowAt: (index: number) => any, onOpen?: (row: any, index: number) => void,
   *   onSort?: (name: string) => void, onRange?: (first: number, end: number) => void, empty?: () => Node}} options
   */
  constructor({ label, columns, rowAt, onOpen, onSort, onRange, empty }) {
    this.columns = columns;
    this.rowAt = rowAt;
    this.onOpen = onOpen;
    this.onSort = onSort;
    this.onRange = onRange;
    this.empty = empty;
    this.total = 0;
    this.position = 0; // in pixels of all rows, not of the spacer
    this.cursor = -1;
    this.shown = [0, 0]; // the rows that were rendered last
    this.opened = null; // index of the row that is shown elsewhere
    this.id = `table-${Math.random().toString(36).slice(2)}`;
    this.head = h("div", { class: "vhead", role: "row" });
    this.rows = h("div", { class: "vrows", role: "presentation" });
    this.window = h("div", { class: "vwindow", role: "presentation" }, this.rows);
    this.spacer = h("div", { class: "vspacer", role: "rowgroup" }, this.window);
    this.message = h("div", { class: "vmessage" });
    this.grid = h(
      "div",
      { class: "vtable", role: "grid", tabindex: "0", "aria-label": label },
      h("div", { role: "rowgroup", class: "vheads" }, this.head),
      this.spacer,
    );
    this.node = h("div", { class: "vframe" }, this.grid, this.message);
    this.grid.style.setProperty("--columns", columns.map((each) => each.width ?? "1fr").join(" "));
    this.showHead("");
    this.listen();
  }

  listen() {
    this.grid.addEventListener("scroll", () => this.onScroll(), { passive: true });
    this.grid.addEventListener("wheel", (event) => this.onWheel(event), { passive: false });
    this.grid.addEventListener("keydown", (event) => this.onKey(event));
    this.rows.addEventListener("click", (event) => this.onClick(event));
    new ResizeObserver(() => this.onResize()).observe(this.grid);
  }

  /** Shows which column sorts: `name` or `-name`. */
  showHead(sort) {
    const by = sort.replace(/^-/, "");
    fill(
      this.head,
      this.columns.map((column) => {
        const direction = column.name === by ? (sort.startsWith("-") ? "descending" : "ascending") : null;
        const arrow = direction && h("span", { class: "arrow", "aria-hidden": "true" }, direction === "ascending" ? "▲" : "▼");
        const next = column.name === by && !sort.startsWith("-") ? `-${by}` : column.name;
        const content = column.compare
          ? h("button", { class: "sorter", type: "button", onclick: () => this.onSort?.(next) }, column.label, arrow)
          : column.label;
        const props = { role: "columnheader", class: cellClass(column), title: column.hint, "aria-sort": direction };
        return h("div", props, content);
      }),
    );
  }

  setTotal(total) {
    this.total = total;
    this.grid.setAttribute("aria-rowcount", String(total + 1));
    this.spacer.style.height = `${Math.min(total * ROW_PX, SPACER_PX_MAX)}px`;
    this.cursor = Math.min(this.cursor, total - 1);
    fill(this.message, total === 0 && this.empty ? this.empty() : null);
    this.node.classList.toggle("is-empty", total === 0);
    this.render();
  }

  get viewPx() {
    return Math.max(0, this.grid.clientHeight - this.head.offsetHeight);
  }

  get positionMax() {
    return Math.max(0, this.total * ROW_PX - this.viewPx);
  }

  /** How far the rows move for one pixel of the scroll bar. */
  get scale() {
    const scrollMax = this.grid.scrollHeight - this.grid.clientHeight;
    return scrollMax > 0 ? this.positionMax / scrollMax : 1;
  }

  /** A row that was in sight and is marked stays in sight. */
  onResize() {
    const [first, end] = this.shown;
    if (this.cursor >= first && this.cursor < end) this.reveal(this.cursor);
    else this.render();
  }

  onScroll() {
    const expected = Math.round(this.position / this.scale);
    if (Math.abs(this.grid.scrollTop - expected) > 1.5) this.position = this.grid.scrollTop * this.scale;
    this.render();
  }

  /** A wheel moves by rows, also where the scroll bar is scaled. */
  onWheel(event) {
    if (event.ctrlKey || event.shiftKey || this.scale <= 1.01) return;
    event.preventDefault();
    this.moveTo(this.position + event.deltaY * (event.deltaMode === 1 ? ROW_PX : 1));
  }

  moveTo(position) {
    this.position = Math.min(Math.max(0, position), this.positionMax);
    this.grid.scrollTop = this.position / this.scale;
    this.render();
  }

  /** Scrolls as little as needed; `top` puts the row at the top. */
  reveal(index, top = false) {
    const from = index * ROW_PX;
    if (top || from < this.position) this.moveTo(from);
    else if (from + ROW_PX > this.position + this.viewPx) this.moveTo(from + ROW_PX - this.viewPx);
    else this.render();
  }

  get range() {
    const first = Math.floor(this.position / ROW_PX);
    return [first, Math.min(this.total, first + Math.ceil(this.viewPx / ROW_PX) + 1)];
  }

  render() {
    this.position = Math.min(this.position, this.positionMax);
    const [first, end] = this.range;
    this.shown = [first, end];
    this.window.style.height = `${Math.min(this.viewPx, this.total * ROW_PX)}px`;
    this.rows.style.transform = `translateY(${-(this.position % ROW_PX)}px)`;
    fill(this.rows, Array.from({ length: end - first }, (_, i) => this.row(first + i)));
    const active = this.cursor >= first && this.cursor < end ? `${this.id}-${this.cursor}` : null;
    if (active) this.grid.setAttribute("aria-activedescendant", active);
    else this.grid.removeAttribute("aria-activedescendant");
    this.onRange?.(first, end);
  }

  row(index) {
    const value = this.rowAt(index);
    const marks = ["vrow", index === this.cursor && "cursor", index === this.opened && "opened", this.onOpen && "opens"];
    const props = {
      role: "row",
      id: `${this.id}-${index}`,
      class: marks.filter(Boolean).join(" "),
      "aria-rowindex": index + 2,
      "aria-selected": index === this.opened ? "true" : null,
    };
    if (value === undefined) {
      const cells = this.columns.map((_, i) => h("div", { role: "gridcell" }, i === 0 ? "…" : ""));
      return h("div", { ...props, class: `${props.class} waits` }, cells);
    }
    return h("div", props, this.columns.map((column) => {
      const cell = h("div", { role: "gridcell", class: cellClass(column) });
      append(cell, column.cell(value));
      return cell;
    }));
  }

  onClick(event) {
    const row = event.target.closest(".vrow");
    if (!row || event.target.closest("a, button")) return;
    if (String(getSelection())) return;
    this.open(Number(row.getAttribute("aria-rowindex")) - 2);
  }

  open(index) {
    this.cursor = index;
    this.render();
    const value = this.rowAt(index);
    if (value !== undefined) this.onOpen?.(value, index);
  }

  onKey(event) {
    if (event.target !== this.grid || event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(this.viewPx / ROW_PX) - 1);
    const [first] = this.range;
    const from = this.cursor < 0 ? first - 1 : this.cursor;
    const targets = {
      ArrowDown: from + 1, ArrowUp: from - 1, PageDown: from + page, PageUp: from - page,
      Home: 0, End: this.total - 1,
    };
    if (event.key in targets && this.total) {
      event.preventDefault();
      this.cursor = Math.min(Math.max(0, targets[event.key]), this.total - 1);
      this.reveal(this.cursor);
    } else if (event.key === "Enter" && this.cursor >= 0) {
      event.preventDefault();
      this.open(this.cursor);
    }
  }
}

const cellClass = (column) => [column.right && "right", column.mono && "mono"].filter(Boolean).join(" ");

/** Rows in the order of a column: `name`, or `-name` for the largest first. */
export function sorted(rows, columns, sort) {
  const column = columns.find((each) => each.name === sort.replace(/^-/, "") && each.compare);
  if (!column) return rows;
  const sign = sort.startsWith("-") ? -1 : 1;
  return [...rows].sort((left, right) => sign * column.compare(left, right));
}

/** Compares a member of two rows as text. */
export const byText = (name) => (left, right) => String(left[name]).localeCompare(String(right[name]));
/** Compares a member of two rows as a number; null is smallest. */
export const byNumber = (name) => (left, right) => Number(left[name] ?? -1) - Number(right[name] ?? -1);

/**
 * A table that is whole in the document, for few rows.
 * @param {string} label
 * @param {Column[]} columns
 * @param {any[]} rows
 */
export function plainTable(label, columns, rows) {
  const heads = columns.map((column) => h("th", { scope: "col", class: cellClass(column), title: column.hint }, column.label));
  const lines = rows.map((row) =>
    h("tr", null, columns.map((column) => {
      const cell = h("td", { class: cellClass(column) });
      append(cell, column.cell(row));
      return cell;
    })),
  );
  const table = h("table", { "aria-label": label }, h("thead", null, h("tr", null, heads)), h("tbody", null, lines));
  return h("div", { class: "scrolls", tabindex: "0", role: "region", "aria-label": label }, table);
}
