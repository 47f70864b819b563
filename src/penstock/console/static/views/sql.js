// SQL over the records of topics: editor, result, download.

import { ApiError, path, post, read, remove } from "../api.js";
import { field, select } from "../dialog.js";
import { fill, h } from "../dom.js";
import { count, fromInputTime, inputTime, plural, zoneName } from "../format.js";
import { empty, failed } from "../states.js";
import { VirtualTable } from "../table.js";

export function show(context) {
  const { query, setQuery, signal } = context;
  let running = null;
  const editor = h("textarea", { rows: "6", spellcheck: "false", "aria-label": "Query", "data-slash": true, value: query.get("q"), placeholder: 'select _key, count(*) from "orders" group by _key order by 2 desc' });
  const range = rangeFields(query);
  const run = h("button", { class: "primary", onclick: () => start() }, "Run");
  const stop = h("button", { hidden: true, onclick: () => cancel() }, "Cancel");
  const status = h("span", { class: "muted", role: "status" });
  const download = h("span", { class: "row" });
  const result = h("div", { class: "fills" });
  const tables = h("aside", { class: "detail tables", "aria-label": "Tables", tabindex: "0" });

  async function start() {
    const text = editor.value.trim();
    if (!text || running) return;
    setQuery({ q: text, ...range.query() });
    const own = { id: `${Date.now()}${Math.random().toString(36).slice(2)}`, controller: new AbortController() };
    running = own;
    showRunning();
    const began = performance.now();
    const timer = setInterval(() => fill(status, `Running for ${((performance.now() - began) / 1000).toFixed(0)} s`), 1000);
    try {
      const answer = await post("/sql", { query: text, id: own.id, ...range.body() }, AbortSignal.any([signal, own.controller.signal]));
      showResult(answer);
    } catch (error) {
      if (signal.aborted) return;
      fill(download);
      fill(status);
      fill(result, own.controller.signal.aborted ? h("p", { class: "state" }, "The query was cancelled.") : failed("The query failed.", error));
    } finally {
      clearInterval(timer);
      running = null;
      showRunning();
    }
  }

  async function cancel() {
    const own = running;
    if (!own) return;
    own.controller.abort();
    await remove(path`/sql/${own.id}`).catch(() => null); // it may have ended by itself
  }

  function showRunning() {
    run.disabled = running !== null;
    stop.hidden = running === null;
  }

  function showResult(answer) {
    const scanned = Object.entries(answer.scanned ?? {}).map(([topic, number]) => `${number} records of ${topic}`).join(", ");
    fill(status, `${plural(answer.rows.length, "row")}${answer.truncated ? " (cut: the result is larger)" : ""} in ${Number(answer.seconds).toFixed(2)} s${scanned ? `, from ${scanned}` : ""}`);
    fill(download, saveButton("CSV", "result.csv", () => csv(answer)), saveButton("JSON", "result.json", () => JSON.stringify(objects(answer), null, 1)));
    const columns = answer.columns.map((column, i) => ({
      name: column.name, label: column.name, hint: column.type, width: "minmax(120px, 1fr)", mono: true,
      right: answer.rows.some((row) => typeof row[i] === "number"), cell: (row) => cellText(row[i]),
    }));
    const table = new VirtualTable({ label: "Result", columns, rowAt: (index) => answer.rows[index], empty: () => h("p", { class: "state empty" }, "The result has no rows.") });
    fill(result, table.node);
    table.setTotal(answer.rows.length);
  }

  editor.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      start();
    }
  });
  signal.addEventListener("abort", cancel);
  showTables(tables, signal, (text) => {
    editor.setRangeText(text, editor.selectionStart, editor.selectionEnd, "end");
    editor.focus();
  });
  fill(result, empty("Query the records of topics.", "A topic is a table. The fields of its schema are columns, beside _key, _partition, _offset and _timestamp. Ctrl Enter runs the query."));
  const toolbar = h("div", { class: "toolbar sql-bar" }, run, stop, status, h("span", { class: "space" }), download);
  const left = h("div", { class: "fills" }, editor, range.node, toolbar, result);
  if (query.get("q")) start();
  return { title: "SQL", node: h("div", { class: "page whole" }, h("div", { class: "title" }, h("h1", null, "SQL")), h("div", { class: "split" }, left, tables)) };
}

/** Which records are read, and as which version of their schema. */
function rangeFields(query) {
  const bounds = [bound("From", "The first record", query.get("from")), bound("Until", "The end", query.get("until"))];
  const reader = h("input", { type: "text", class: "mono", value: query.get("reader"), placeholder: "orders=2", autocomplete: "off", spellcheck: "false" });
  const chosen = () => ({ from: bounds[0].text(), until: bounds[1].text() });
  const body = () => {
    const sent = Object.entries(chosen()).filter(([, text]) => text).map(([name, text]) => [name, text.startsWith("@") ? { time: text.slice(1) } : { offset: text }]);
    const versions = reader.value.split(",").map((each) => each.trim()).filter(Boolean).map((each) => {
      const [topic, version] = each.split("=");
      if (!/^\d+$/.test(version ?? "")) throw new ApiError(0, "invalid", `"${each}" is not topic=version.`);
      return [topic, Number(version)];
    });
    return { ...Object.fromEntries(sent), ...(versions.length ? { reader: Object.fromEntries(versions) } : {}) };
  };
  const isSet = ["from", "until", "reader"].some((name) => query.get(name));
  const node = h("details", { class: "range", open: isSet }, h("summary", null, "Range and reader schema"),
    h("div", { class: "form-row" }, bounds.map((each) => each.node),
      field("Read as version", reader, "topic=version, several with commas; else the latest version")));
  return { node, body, query: () => ({ ...chosen(), reader: reader.value.trim() }) };
}

/** An end of the range. Its text is an offset, a time in ms after @, or empty, as `penstock sql` takes them. */
function bound(label, none, start) {
  const isTime = start?.startsWith("@");
  const kind = select([["", none], ["offset", "Offset"], ["time", "Time"]], start ? (isTime ? "time" : "offset") : "");
  const offset = h("input", { inputmode: "numeric", class: "offset", "aria-label": `${label}: offset`, value: isTime ? "" : start });
  const at = h("input", { type: "datetime-local", step: "0.001", "aria-label": `${label}: time (${zoneName()})`, value: isTime ? inputTime(start.slice(1)) : "" });
  const show = () => {
    offset.hidden = kind.value !== "offset";
    at.hidden = kind.value !== "time";
  };
  kind.addEventListener("change", show);
  show();
  const text = () => {
    if (kind.value === "time") return at.value && `@${fromInputTime(at.value)}`;
    return kind.value === "offset" ? offset.value.replace(/[,\s]/g, "") : "";
  };
  const hint = label === "From" ? "Of each partition" : "Exclusive";
  return { node: h("div", { class: "row bound" }, field(label, kind, hint), offset, at), text };
}

async function showTables(place, signal, insert) {
  try {
    const answer = await read("/sql/tables", signal);
    const rows = answer.tables.map((table) => h("details", null, h("summary", { class: "mono" }, table.name),
      h("div", { class: "names" }, h("button", { class: "small", onclick: () => insert(quoted(table.name)) }, "Insert name"),
        (table.columns ?? []).map((column) => h("div", { class: "mono" }, column)))));
    fill(place, h("h2", null, "Tables"), rows.length ? rows : empty("There are no topics."));
  } catch (error) {
    if (!signal.aborted) fill(place, failed("Cannot list the tables.", error));
  }
}

const quoted = (name) => `"${name.replaceAll('"', '""')}"`;
const cellText = (value) => (value === null ? h("span", { class: "muted" }, "null") : typeof value === "object" ? JSON.stringify(value) : typeof value === "number" && Number.isInteger(value) ? count(value) : String(value));
const objects = ({ columns, rows }) => rows.map((row) => Object.fromEntries(columns.map((column, i) => [column.name, row[i]])));

function csv({ columns, rows }) {
  const cell = (value) => {
    const text = value === null ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [columns.map((column) => column.name), ...rows].map((row) => row.map(cell).join(",")).join("\n");
}

function saveButton(label, name, content) {
  return h("button", { class: "small", onclick: () => {
    const address = URL.createObjectURL(new Blob([content()], { type: "text/plain" }));
    h("a", { href: address, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
  } }, label);
}
