// Write a record: a form made from the schema, or JSON. The server checks it before it is written.

import { ApiError, path, read, request } from "../api.js";
import { field, select, toast } from "../dialog.js";
import { fill, h } from "../dom.js";
import { bytes, count } from "../format.js";
import { place } from "../router.js";
import { badge, loaded, panel } from "../states.js";
import { schemaForm, shapeOf } from "./schema_form.js";

const KINDS = [["json", "JSON"], ["text", "Text"], ["null", "null (tombstone)"]];

export function show(context) {
  const { topic } = context.params;
  const holder = loaded({
    what: "the topic", signal: context.signal,
    load: (signal) => loadAll(topic, context.query.get("from"), signal),
    render: (state) => form(context, topic, state),
  });
  return { node: holder.node };
}

async function loadAll(topic, from, signal) {
  const found = await read(path`/console/api/topics/${topic}`, signal);
  const [partition, offset] = (from ?? "").split(":");
  const [value, key, record] = await Promise.all([
    latestSchema(found.subjects?.value, signal),
    latestSchema(found.subjects?.key, signal),
    offset ? read(path`/topics/${topic}/partitions/${partition}/records/${offset}`, signal) : null,
  ]);
  return { found, schemas: { value, key }, record };
}

async function latestSchema(subject, signal) {
  return subject ? read(path`/subjects/${subject}/versions/latest`, signal) : null;
}

function form(context, topic, { found, schemas, record }) {
  const key = keyPart(schemas.key, record);
  const value = valuePart(schemas.value, record);
  const headers = h("textarea", { rows: "2", placeholder: "source=console", spellcheck: "false", value: headerLines(record) });
  const partitions = [["", "By the key"], ...found.partitions.map((each) => [each.partition, `Partition ${each.partition}`])];
  const partition = select(partitions, "");
  const verdict = h("div", { class: "verdict", role: "status" });
  const showVerdict = (tone, ...children) => {
    verdict.className = `verdict ${tone}`;
    fill(verdict, children);
  };

  async function send(dryRun) {
    const members = [...key.members(), ...value.members(), `"headers": ${JSON.stringify(readHeaders(headers.value))}`];
    if (partition.value !== "") members.push(`"partition": ${partition.value}`);
    const json = `{"records": [{${members.join(", ")}}]}`;
    const answer = await request("POST", `${path`/topics/${topic}/produce`}${dryRun ? "?dry_run=true" : ""}`, { json, signal: context.signal });
    const [result] = answer.records;
    if (result.error) throw new ApiError(400, result.error.code, result.error.message);
    return result;
  }

  async function run(dryRun) {
    try {
      const result = await send(dryRun);
      if (dryRun) {
        const size = result.bytes === null || result.bytes === undefined ? "" : `, ${bytes(result.bytes)}`;
        showVerdict("good", `The record is valid${size}. Nothing was written.`);
        return;
      }
      const id = `${result.partition}:${result.offset}`;
      const link = h("a", { href: `${place`/topics/${topic}/records`}?partition=${result.partition}&offset=${result.offset}&open=${id}` }, "Show it");
      showVerdict("good", `Written to partition ${result.partition} at offset ${count(result.offset)}. `, link);
      toast(`Written at offset ${count(result.offset)}.`);
    } catch (error) {
      if (!context.signal.aborted) showVerdict("bad", error.message);
    }
  }

  const buttons = h("div", { class: "row" },
    h("button", { class: "primary", "data-changes": true, onclick: () => run(false) }, "Produce"),
    h("button", { onclick: () => run(true) }, "Check"));
  const note = record && h("p", { class: "muted" }, `Filled from partition ${record.partition}, offset ${count(record.offset)}. A new record is written; that one stays.`);
  const left = panel("Value", note, value.node);
  const right = h("div", { class: "stack" }, panel("Key", key.node), panel("Headers and place", field("Headers", headers, "One name=value per line"), field("Partition", partition), verdict, buttons));
  return h("div", { class: "columns produce" }, left, right);
}

/** The value under the latest schema as a form or JSON; without a schema as JSON, text or null. */
function valuePart(schema, record) {
  const start = record ? record.value?.data : undefined;
  const text = h("textarea", { rows: "14", spellcheck: "false", "aria-label": "Value", value: start === undefined ? "{}" : JSON.stringify(start, null, 2) });
  const kind = select(schema ? [KINDS[0], KINDS[2]] : KINDS, record && record.value === null ? "null" : "json", { "aria-label": "Kind of value" });
  const shape = schema && shapeOf(schema.schemaType ?? "AVRO", schema.schema);
  const made = shape && schemaForm(shape, start);
  let asForm = Boolean(made);
  const content = h("div", null);
  const toggle = made && h("button", { class: "small", type: "button", onclick: () => change() });
  const showPlace = () => {
    fill(content, kind.value === "null" ? h("p", { class: "state" }, "null: on a compacted topic it deletes the key.") : asForm ? made.node : text);
    if (toggle) fill(toggle, asForm ? "Edit as JSON" : "Edit as a form");
  };
  const change = () => {
    if (asForm) text.value = made.text();
    asForm = !asForm;
    showPlace();
  };
  kind.addEventListener("change", showPlace);
  showPlace();
  const named = schema ? badge(`${schema.subject} version ${schema.version}`) : badge("no schema");
  const fallback = schema && !made && h("p", { class: "hint muted" }, "This schema has parts that a form cannot show: enter JSON.");
  const members = () => {
    if (kind.value === "null") return ['"value": null'];
    if (kind.value === "text") return [`"value_base64": ${JSON.stringify(base64(text.value))}`];
    const json = asForm ? made.text() : checked(text.value, "value");
    return schema ? [`"value": ${json}`, `"value_schema_id": ${schema.id}`] : [`"value": ${json}`];
  };
  return { node: h("div", { class: "stack tight" }, h("div", { class: "row" }, named, kind, h("span", { class: "space" }), toggle), fallback, content), members };
}

function keyPart(schema, record) {
  const data = record?.key?.data;
  const start = data === undefined || data === null ? "" : typeof data === "string" && !schema ? data : JSON.stringify(data);
  const text = h("input", { type: "text", class: "mono", value: start, spellcheck: "false", autocomplete: "off" });
  const none = h("input", { type: "checkbox", checked: record ? record.key === null : false });
  none.addEventListener("change", () => (text.disabled = none.checked));
  text.disabled = none.checked;
  const hint = schema ? `JSON, written with ${schema.subject} version ${schema.version}` : "Text. Records with the same key go to the same partition";
  const members = () => {
    if (none.checked || (text.value === "" && !schema)) return ['"key": null'];
    if (!schema) return [`"key": ${JSON.stringify(text.value)}`];
    return [`"key": ${checked(text.value, "key")}`, `"key_schema_id": ${schema.id}`];
  };
  return { node: h("div", null, field("Key", text, hint), h("label", { class: "checks" }, none, "No key")), members };
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

function base64(text) {
  return btoa(Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join(""));
}

function headerLines(record) {
  return (record?.headers ?? []).filter(([, value]) => typeof value?.data === "string").map(([name, value]) => `${name}=${value.data}`).join("\n");
}

function readHeaders(text) {
  return text.split("\n").map((line) => line.trim()).filter(Boolean).map((line) => {
    const cut = line.indexOf("=");
    if (cut < 1) throw new Error(`The header "${line}" is not name=value.`);
    return [line.slice(0, cut), line.slice(cut + 1)];
  });
}
