// Key, value and headers of a record to write. Each part starts as it is in another record, if there is
// one, and is written with the same bytes until a person changes it.

import { field, select } from "../dialog.js";
import { fill, h } from "../dom.js";
import { badge } from "../states.js";
import { formOf } from "./schema_form.js";

const NULL_VALUE = ["null", "null (tombstone)"];
const BYTES = ["base64", "Bytes as base64"];
const HEADER_KINDS = [["text", "Text"], ["base64", "Base64"], ["null", "null"]];

/**
 * What a part starts with.
 * @typedef {{kind: "json" | "text" | "base64" | "null", text: string, data: any, schemaId: number | null, hex: string | null}} Start
 */

/** @returns {Start | null} null: there is no other record */
function startOf(record, side) {
  if (!record) return null;
  const hex = record[`${side}_hex`];
  const shown = record[side];
  const schemaId = record[`${side}_schema_id`] ?? null;
  if (hex === null || shown === null) return { kind: "null", text: "", data: undefined, schemaId, hex: null };
  if (schemaId !== null) {
    const data = withoutMarks(shown.data);
    return { kind: "json", text: JSON.stringify(data, null, 2), data: shown.data, schemaId, hex };
  }
  // The text as it is stored: reading and writing JSON would change spaces and large numbers.
  const isText = shown.format === "json" || shown.format === "text";
  const text = isText ? new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytesOf(hex)) : base64(bytesOf(hex));
  const kind = isText ? (shown.format === "json" && side === "value" ? "json" : "text") : "base64";
  return { kind, text, data: shown.format === "json" ? shown.data : undefined, schemaId, hex };
}

/** Bytes in a decoded value are {"base64": …}; the server takes the text of it. */
function withoutMarks(value) {
  if (Array.isArray(value)) return value.map(withoutMarks);
  if (typeof value !== "object" || value === null) return value;
  const names = Object.keys(value);
  if (names.length === 1 && names[0] === "base64" && typeof value.base64 === "string") return value.base64;
  return Object.fromEntries(names.map((name) => [name, withoutMarks(value[name])]));
}

/** The members of the request for a side: the same bytes until `node` is changed, then what was entered. */
function membersOf(side, start, node, entered) {
  let isChanged = start === null;
  for (const event of ["input", "change"]) node.addEventListener(event, () => (isChanged = true));
  return () => {
    if (isChanged) return entered();
    return [start.hex === null ? `"${side}": null` : `"${side}_base64": ${JSON.stringify(base64(bytesOf(start.hex)))}`];
  };
}

/** The value under a schema as a form or JSON; without a schema as JSON or text; as bytes, or null. */
export function valuePart(schema, record) {
  const start = startOf(record, "value");
  const schemaId = schema?.id ?? start?.schemaId ?? null;
  const kinds = [["json", schemaId === null ? "JSON" : "JSON by the schema"], ["text", "Text"], BYTES, NULL_VALUE];
  const text = h("textarea", { rows: "14", spellcheck: "false", "aria-label": "Value", value: start ? start.text : "{}" });
  const kind = select(kinds, start?.kind ?? "json", { "aria-label": "Kind of value" });
  const form = schema && formOf(schema, start?.data);
  let asForm = Boolean(form);
  const content = h("div", null);
  const toggle = form && h("button", { class: "small", type: "button", onclick: () => change() });
  const showContent = () => {
    const isForm = asForm && kind.value === "json";
    fill(content, kind.value === "null" ? h("p", { class: "state" }, "null: on a compacted topic it deletes the key.") : isForm ? form.node : text);
    if (toggle) {
      toggle.hidden = kind.value !== "json";
      fill(toggle, asForm ? "Edit as JSON" : "Edit as a form");
    }
  };
  const change = () => {
    if (asForm) text.value = form.text();
    asForm = !asForm;
    showContent();
  };
  kind.addEventListener("change", showContent);
  showContent();
  const named = schema ? badge(`${schema.subject} version ${schema.version}`) : badge(schemaId === null ? "no schema" : `schema id ${schemaId}`);
  const fallback = schema && !form && h("p", { class: "hint muted" }, "This schema or value has parts that a form cannot show: enter JSON.");
  const node = h("div", { class: "stack tight" }, h("div", { class: "row" }, named, kind, h("span", { class: "space" }), toggle), fallback, content);
  const members = membersOf("value", start, node, () => {
    if (kind.value === "null") return ['"value": null'];
    if (kind.value === "text") return [`"value_base64": ${JSON.stringify(base64(new TextEncoder().encode(text.value)))}`];
    if (kind.value === "base64") return [`"value_base64": ${JSON.stringify(text.value.trim())}`];
    const json = asForm ? form.text() : checked(text.value, "value");
    return [`"value": ${json}`, ...(schemaId === null ? [] : [`"value_schema_id": ${schemaId}`])];
  });
  return { node, members };
}

export function keyPart(schema, record) {
  const start = startOf(record, "key");
  const schemaId = schema?.id ?? start?.schemaId ?? null;
  const kinds = [...(schemaId === null ? [] : [["json", "JSON by the schema"]]), ["text", "Text"], BYTES, ["null", "No key"]];
  const kind = select(kinds, start?.kind ?? kinds[0][0], { "aria-label": "Kind of key" });
  const text = h("textarea", { rows: "1", class: "mono", value: start?.text ?? "", spellcheck: "false", autocomplete: "off" });
  const show = () => (text.disabled = kind.value === "null");
  kind.addEventListener("change", show);
  show();
  const hint = schema ? `Written with ${schema.subject} version ${schema.version}` : "Records with the same key go to the same partition";
  const node = h("div", { class: "stack tight" }, kind, field("Key", text, hint));
  const members = membersOf("key", start, node, () => {
    if (kind.value === "null" || (kind.value === "text" && text.value === "")) return ['"key": null'];
    if (kind.value === "base64") return [`"key_base64": ${JSON.stringify(text.value.trim())}`];
    if (kind.value === "text") return [`"key": ${JSON.stringify(text.value)}`];
    return [`"key": ${checked(text.value, "key")}`, `"key_schema_id": ${schemaId}`];
  });
  return { node, members };
}

export function headersPart(record) {
  const rows = [];
  const list = h("div", { class: "stack tight" });
  const add = (name = "", value = { format: "text", data: "" }) => {
    const row = headerRow(name, value, () => {
      rows.splice(rows.indexOf(row), 1);
      row.node.remove();
    });
    rows.push(row);
    list.append(row.node);
  };
  for (const [name, value] of record?.headers ?? []) add(name, value);
  const more = h("button", { class: "small", type: "button", onclick: () => add() }, "Add a header");
  const members = () => [`"headers": ${JSON.stringify(rows.map((row) => row.header()))}`];
  return { node: h("div", { class: "stack tight" }, list, h("div", null, more)), members };
}

function headerRow(givenName, value, onRemove) {
  // A control turns \r\n into \n, so such a text is shown as bytes.
  const isText = value?.format === "text" && !value.data.includes("\r");
  const start = value === null ? "" : isText ? value.data : value.format === "text" ? base64(new TextEncoder().encode(value.data)) : value.data.base64;
  const name = h("input", { type: "text", class: "mono", "aria-label": "Header name", placeholder: "Name", value: givenName, spellcheck: "false", autocomplete: "off" });
  const nameShown = name.value; // an input has no line breaks
  const kind = select(HEADER_KINDS, value === null ? "null" : isText ? "text" : "base64", { "aria-label": "Kind of header" });
  const content = h("textarea", { rows: "1", class: "mono", "aria-label": "Header value", value: start, spellcheck: "false" });
  const show = () => (content.disabled = kind.value === "null");
  kind.addEventListener("change", show);
  show();
  const header = () => {
    const sent = name.value === nameShown ? givenName : name.value;
    if (sent === "") throw new Error("A header needs a name.");
    if (kind.value === "null") return [sent, null];
    return [sent, kind.value === "text" ? content.value : { base64: content.value.trim() }];
  };
  const remove = h("button", { class: "small", type: "button", "aria-label": "Remove the header", onclick: onRemove }, "Remove");
  return { node: h("div", { class: "header-row" }, name, kind, content, remove), header };
}

/** The text, if it is JSON: it is sent as it is, so that large numbers keep their digits. */
function checked(text, what) {
  try {
    JSON.parse(text);
  } catch (error) {
    throw new Error(`The ${what} is not JSON: ${error.message}`);
  }
  return text;
}

const bytesOf = (hex) => Uint8Array.from(hex.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
const base64 = (content) => btoa(Array.from(content, (byte) => String.fromCharCode(byte)).join(""));
