// Values of records as coloured text. Large values are shown as plain text after the first part.

import { h } from "./dom.js";

const TOKENS_MAX = 3000;
const TOKEN = /("(?:[^"\\]|\\.)*")(\s*:)?|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(true|false|null)/g;

/** A value as indented JSON, coloured. */
export function jsonView(value) {
  const text = typeof value === "string" ? JSON.stringify(value) : JSON.stringify(value, null, 2);
  return h("pre", { class: "json", tabindex: "0" }, coloured(text));
}

/** JSON text as a list of texts and coloured spans. */
export function coloured(text) {
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(TOKEN)) {
    if (parts.length >= TOKENS_MAX) break;
    if (match.index > end) parts.push(text.slice(end, match.index));
    const [whole, string, colon, number] = match;
    if (string && colon) parts.push(h("span", { class: "j-key" }, string), colon);
    else if (string) parts.push(h("span", { class: "j-string" }, string));
    else if (number) parts.push(h("span", { class: "j-number" }, number));
    else parts.push(h("span", { class: "j-literal" }, whole));
    end = match.index + whole.length;
  }
  parts.push(text.slice(end));
  return parts;
}

/** A key, value or header on one line. */
export function oneLine(rendered) {
  if (rendered === null || rendered === undefined) return h("span", { class: "muted" }, "null");
  if (rendered.error) return h("span", { class: "bad-text" }, `cannot decode: ${rendered.error}`);
  const { data } = rendered;
  if (typeof data === "string") return data;
  if (data && typeof data === "object" && "base64" in data && Object.keys(data).length === 1) {
    return h("span", { class: "muted" }, `bytes ${data.base64}`);
  }
  return JSON.stringify(data);
}
