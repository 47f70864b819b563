// The settings of a topic: value, source, default, meaning; an editor that shows the server's verdict.

import { path, patch, read } from "../api.js";
import { field, openDialog, select, toast } from "../dialog.js";
import { debounced, fill, h } from "../dom.js";
import { badge, loaded } from "../states.js";
import { VirtualTable } from "../table.js";

const SOURCES = { topic: ["set for this topic", "good"], broker: ["set for the broker", "warn"], default: ["default", ""] };
const CHECK_AFTER_MS = 200;

export function show(context) {
  const { topic } = context.params;
  const { query, setQuery, signal } = context;
  let rows = [];
  let all = [];
  const changed = h("input", { type: "checkbox", checked: query.get("set") === "1" });
  const filter = h("input", { type: "search", class: "filter", "aria-label": "Filter settings", placeholder: "Filter settings   /", "data-slash": true, value: query.get("q") });
  const editable = (row) => !row.read_only && !context.info.read_only;
  const table = new VirtualTable({
    label: "Settings",
    columns: [
      { name: "name", label: "Name", width: "minmax(200px, 260px)", mono: true, cell: (row) => row.name },
      { name: "value", label: "Value", width: "minmax(100px, 160px)", mono: true, cell: (row) => (row.sensitive ? "hidden" : (row.value ?? "–")) },
      { name: "source", label: "Source", width: "140px", cell: (row) => badge(...(SOURCES[row.source] ?? [row.source, ""])) },
      { name: "default", label: "Default", width: "minmax(80px, 130px)", mono: true, cell: (row) => row.default ?? "–" },
      { name: "doc", label: "Meaning", width: "minmax(200px, 1fr)", cell: (row) => h("span", { title: plain(row.doc) }, plain(row.doc)) },
    ],
    rowAt: (index) => rows[index],
    onOpen: (row) => editable(row) && edit(topic, row, () => holder.reload()),
    empty: () => h("p", { class: "state empty" }, "No setting matches the filter."),
  });

  function showRows() {
    const wanted = filter.value.trim().toLowerCase();
    rows = all.filter((row) => (!changed.checked || row.source === "topic") && `${row.name} ${row.doc ?? ""}`.toLowerCase().includes(wanted));
    table.setTotal(rows.length);
  }

  filter.addEventListener("input", () => {
    setQuery({ q: filter.value.trim() });
    showRows();
  });
  changed.addEventListener("change", () => {
    setQuery({ set: changed.checked ? "1" : null });
    showRows();
  });
  const holder = loaded({
    what: "the settings", signal, fills: true,
    load: (aborted) => read(path`/console/api/topics/${topic}/configs`, aborted),
    render: (found) => {
      all = found.configs;
      showRows();
      return table.node.isConnected ? null : table.node;
    },
  });
  const hint = context.info.read_only ? "" : "Choose a setting to change it";
  const toolbar = h("div", { class: "toolbar" }, filter, h("label", { class: "checks" }, changed, "Set for this topic"), h("span", { class: "space" }), h("span", { class: "muted count" }, hint));
  return { node: h("div", { class: "fills" }, toolbar, holder.node) };
}

/** Every change of the text is checked by the server, without effect. */
function edit(topic, row, reload) {
  const control = row.type === "boolean"
    ? select(["true", "false"], row.value)
    : h("input", { type: "text", class: "mono", value: row.sensitive ? "" : row.value, autocomplete: "off", spellcheck: "false" });
  const verdict = h("div", { class: "verdict", role: "status" });
  let accepted = false;
  const form = () => dialog.querySelector("form");
  const check = debounced(async () => {
    const value = control.value;
    try {
      await patch(`${path`/topics/${topic}`}?dry_run=true`, { configs: { [row.name]: value } });
      if (value !== control.value) return;
      accepted = true;
      showVerdict(verdict, "good", value === row.value ? "This is the value now." : "The server accepts this value.");
    } catch (error) {
      if (value !== control.value) return;
      accepted = false;
      showVerdict(verdict, "bad", error.message);
    }
    form()?.dispatchEvent(new Event("input"));
  }, CHECK_AFTER_MS);
  control.addEventListener("input", (event) => {
    event.stopPropagation();
    accepted = false;
    form().dispatchEvent(new Event("input"));
    check();
  });
  const reset = row.source === "topic" && h("button", { type: "button", class: "quiet", onclick: () => save(null) }, "Return to the default");
  async function save(value) {
    try {
      await patch(path`/topics/${topic}`, { configs: { [row.name]: value } });
    } catch (error) {
      showVerdict(verdict, "bad", error.message);
      throw error;
    }
    toast(value === null ? `${row.name} has its default again.` : `${row.name} is ${value}.`);
    dialog.close();
    reload();
  }
  const dialog = openDialog({
    title: row.name, action: "Save",
    body: [h("p", { class: "muted" }, plain(row.doc)), field("Value", control, row.default === null ? "" : `Default: ${row.default}`), verdict, reset],
    ready: () => accepted && control.value !== row.value,
    onSubmit: () => save(control.value),
  });
}

const plain = (doc) => (doc ?? "").replaceAll("`", "");

function showVerdict(element, tone, text) {
  element.className = `verdict ${tone}`;
  fill(element, text);
}
