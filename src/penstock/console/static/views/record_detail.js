// One record: decoded value and key, headers, annotated bytes, and its place as commands and code.

import { path, read } from "../api.js";
import { fill, h } from "../dom.js";
import { bytes, count, time } from "../format.js";
import { icon } from "../icons.js";
import { jsonView, oneLine } from "../json_view.js";
import { place } from "../router.js";
import { badge, copyButton, loaded } from "../states.js";
import { plainTable } from "../table.js";

const TABS = ["value", "key", "headers", "bytes", "copy"];
const COPIES = [["curl", "curl"], ["cli", "Command line"], ["pytest", "pytest"], ["spark", "Spark"]];
const HEX_BYTES_MAX = 2048;
const SHADES = 4;

/**
 * @param {{context: import("../router.js").Context, topic: string, id: string, tab: string, onClose: () => void,
 *   onStep: (step: number) => void, onTab: (tab: string) => void}} options
 */
export function recordDetail({ context, topic, id, tab, onClose, onStep, onTab }) {
  const [partition, offset] = id.split(":");
  const leaving = new AbortController();
  const signal = AbortSignal.any([context.signal, leaving.signal]);
  const again = h("a", { class: "button", "data-changes": true, href: `${place`/topics/${topic}/produce`}?from=${encodeURIComponent(id)}` }, "Produce again");
  const top = h("div", { class: "top" },
    h("h2", null, `Partition ${partition}, offset ${count(offset)}`), h("span", { class: "space" }), again,
    h("button", { class: "quiet", title: "Previous in the list", "aria-label": "Previous record", onclick: () => onStep(-1) }, icon("left")),
    h("button", { class: "quiet", title: "Next in the list", "aria-label": "Next record", onclick: () => onStep(1) }, icon("right")),
    h("button", { class: "quiet", title: "Close (Esc)", "aria-label": "Close record", onclick: onClose }, icon("close")));
  const body = loaded({
    what: "the record", signal,
    load: (aborted) => read(path`/topics/${topic}/partitions/${partition}/records/${offset}`, aborted),
    render: (record) => recordBody(record, TABS.includes(tab) ? tab : "value", onTab),
  });
  const node = h("aside", { class: "detail", "aria-label": "Record", tabindex: "0" }, top, body.node);
  return { node, close: () => leaving.abort() };
}

function recordBody(record, first, onTab) {
  const content = h("div", { role: "tabpanel", id: "record-tab" });
  const shown = { value: side(record, "value"), key: side(record, "key"), headers: headers(record), bytes: frame(record), copy: copies(record) };
  const labels = { value: "Value", key: "Key", headers: `Headers (${record.headers.length})`, bytes: "Bytes", copy: "Copy as" };
  const buttons = TABS.map((name) => h("button", { role: "tab", "aria-controls": "record-tab", onclick: () => choose(name) }, labels[name]));
  function choose(name) {
    for (const [i, button] of buttons.entries()) button.setAttribute("aria-selected", String(TABS[i] === name));
    fill(content, shown[name]);
    onTab(name);
  }
  choose(first);
  const facts = h("dl", { class: "facts-list" },
    h("dt", null, "Time"), h("dd", { class: "mono" }, time(record.timestamp), " ", badge(record.timestamp_type === "append" ? "set by the broker" : "set by the producer")),
    h("dt", null, "Size"), h("dd", null, bytes(record.size)));
  return h("div", { class: "stack" }, facts, h("div", { class: "tabs", role: "tablist" }, buttons), content);
}

function side(record, name) {
  const rendered = record[name];
  if (rendered === null) {
    return h("p", { class: "state" }, name === "value" ? "null: a tombstone. Compaction removes earlier records with this key." : "null: this record has no key.");
  }
  const schema = record[`${name}_schema_id`];
  const note = h("div", { class: "row" }, badge(rendered.format), schema !== null && schema !== undefined && badge(`schema id ${schema}`), h("span", { class: "space" }),
    copyButton(() => (typeof rendered.data === "string" ? rendered.data : JSON.stringify(rendered.data, null, 2))));
  const problem = rendered.error && h("div", { class: "verdict bad" }, `Cannot decode: ${rendered.error}`);
  return h("div", { class: "stack tight" }, note, problem, typeof rendered.data === "string" ? h("pre", { tabindex: "0" }, rendered.data) : jsonView(rendered.data));
}

function headers(record) {
  if (!record.headers.length) return h("p", { class: "state" }, "This record has no headers.");
  const columns = [
    { label: "Name", name: "name", mono: true, cell: ([name]) => name },
    { label: "Value", name: "value", mono: true, cell: ([, value]) => oneLine(value) },
  ];
  return plainTable("Headers", columns, record.headers);
}

/** The bytes of the value with a shade for each part, and the parts with their meaning. */
function frame(record) {
  const parts = record.frame ?? [];
  const hex = (record.value_hex ?? "").match(/../g) ?? [];
  const ends = [];
  for (const [i, part] of parts.entries()) for (let at = part.from; at < part.until; at += 1) ends[at] = i % SHADES;
  const spans = [];
  let start = 0;
  const end = Math.min(hex.length, HEX_BYTES_MAX);
  for (let at = 1; at <= end; at += 1) {
    if (at < end && ends[at] === ends[start]) continue;
    spans.push(h("span", { class: ends[start] === undefined ? "" : `part-${ends[start]}` }, hex.slice(start, at).join(" ")), " ");
    start = at;
  }
  const columns = [
    { label: "Bytes", name: "bytes", mono: true, cell: (part) => h("span", { class: "nowrap" }, part.until - part.from === 1 ? part.from : `${part.from}–${part.until - 1}`) },
    { label: "Meaning", name: "meaning", cell: (part) => part.meaning },
  ];
  const rest = hex.length > end && h("p", { class: "muted" }, `The first ${count(end)} of ${count(hex.length)} bytes.`);
  return h("div", { class: "stack tight" },
    hex.length ? h("pre", { class: "hex", tabindex: "0" }, spans) : h("p", { class: "state" }, "The value has no bytes."),
    rest, parts.length > 0 && plainTable("Parts of the value", columns, parts),
    record.key_hex && [h("h3", null, "Key"), h("pre", { tabindex: "0" }, record.key_hex.replace(/(..)(?=.)/g, "$1 "))]);
}

function copies(record) {
  const texts = COPIES.filter(([name]) => record.copy?.[name]);
  return h("div", { class: "stack" }, texts.map(([name, label]) => h("div", null,
    h("div", { class: "row" }, h("h3", null, label), h("span", { class: "space" }), copyButton(() => record.copy[name])),
    h("pre", { tabindex: "0" }, record.copy[name]))));
}
