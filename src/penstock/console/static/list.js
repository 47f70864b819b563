// A list page: a virtual table over rows that are loaded again and again, with filter and sort in the address.

import { debounced, h, setText } from "./dom.js";
import { plural } from "./format.js";
import { loaded } from "./states.js";
import { VirtualTable, sorted } from "./table.js";

const ADDRESS_AFTER_MS = 250;

/**
 * @param {{context: import("./router.js").Context, what: string, word: string, columns: any[], load: (signal: AbortSignal) => Promise<any[]>,
 *   text: (row: any) => string, open?: (row: any) => void, sort: string, every_ms?: number, empty: () => Node,
 *   keep?: (row: any) => boolean, controls?: Node[]}} options `text` is what the filter searches, `keep` a filter beside it
 */
export function listPage({ context, what, word, columns, load, text, open, sort, every_ms = 5000, empty, keep = () => true, controls = [] }) {
  const { query, signal, setQuery } = context;
  let order = query.get("sort") ?? sort;
  let all = []; // in the order of `order`
  let rows = [];
  const number = h("span", { class: "muted count", role: "status" });
  const filter = h("input", {
    type: "search", class: "filter", "aria-label": `Filter ${what}`, placeholder: `Filter ${what}   /`, value: query.get("q"),
    autocomplete: "off", spellcheck: "false", "data-slash": true,
  });
  const table = new VirtualTable({
    label: what,
    columns,
    rowAt: (index) => rows[index],
    onOpen: open,
    onSort: (name) => {
      order = name;
      setQuery({ sort: name === sort ? null : name });
      sortAll();
      show();
    },
    empty: () => (all.length ? h("p", { class: "state empty" }, `No ${word} matches the filter.`) : empty()),
  });

  // Sorting takes longer than filtering, so it is not done for every letter that is typed.
  function sortAll() {
    all = sorted(all, columns, order);
  }

  function show() {
    const wanted = filter.value.trim().toLowerCase();
    rows = all.filter((row) => keep(row) && (!wanted || text(row).toLowerCase().includes(wanted)));
    setText(number, rows.length === all.length ? plural(all.length, word) : `${rows.length} of ${plural(all.length, word)}`);
    table.showHead(order);
    table.setTotal(rows.length);
  }

  const toAddress = debounced(() => signal.aborted || setQuery({ q: filter.value.trim() }), ADDRESS_AFTER_MS);
  filter.addEventListener("input", () => {
    show();
    toAddress();
  });
  const place = loaded({
    what, signal, every_ms, fills: true, load,
    render: (value) => {
      all = value;
      sortAll();
      show();
      return table.node.isConnected ? null : table.node;
    },
  });
  const toolbar = h("div", { class: "toolbar" }, filter, controls, h("span", { class: "space" }), number);
  const update = (changed) => {
    filter.value = changed.get("q") ?? "";
    order = changed.get("sort") ?? sort;
    sortAll();
    show();
  };
  return { node: h("div", { class: "fills" }, toolbar, place.node), reload: place.reload, update, show };
}
