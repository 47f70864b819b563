// A form made from a schema. What a form cannot show (unions of several types, recursion, maps) is
// entered as JSON. A form writes JSON text, so that numbers beyond 2^53 keep all their digits.

import { h } from "../dom.js";
import { field, select } from "../dialog.js";

/**
 * What a form needs of a schema, whatever its language.
 * @typedef {{kind: "record", fields: {name: string, shape: Shape, doc: string, optional: boolean, initial: unknown}[]}
 *   | {kind: "enum", symbols: string[]} | {kind: "text" | "integer" | "number" | "boolean" | "bytes"}} Shape
 */

const AVRO = { string: "text", int: "integer", long: "integer", float: "number", double: "number", boolean: "boolean", bytes: "bytes" };
// Texts in JSON, whatever type carries them.
const LOGICAL = /^(decimal|uuid|date|time-(millis|micros)|(local-)?timestamp-(millis|micros))$/;
const JSON_TYPES = { string: "text", integer: "integer", number: "number", boolean: "boolean" };
const DEPTH_MAX = 4;

/**
 * A form for values of a schema, which starts with a value if one is given.
 * @returns {{node: Node, text: () => string} | null} null: only JSON can express the schema or the value
 */
export function formOf({ schemaType, schema }, value) {
  const shape = shapeOf(schemaType ?? "AVRO", schema);
  if (!shape || (value !== undefined && !fits(shape, value))) return null;
  return schemaForm(shape, value);
}

/** Whether a form shows all of a value: JSON may have members that its schema does not name. */
function fits(shape, value) {
  if (shape.kind !== "record") return typeof value !== "object" || value === null || (shape.kind === "bytes" && "base64" in value);
  if (typeof value !== "object" || value === null || Array.isArray(value)) return false;
  const fields = new Map(shape.fields.map((each) => [each.name, each]));
  return Object.entries(value).every(([name, each]) => {
    const known = fields.get(name);
    return known !== undefined && ((each === null && known.optional) || fits(known.shape, each));
  });
}

/** @returns {Shape | null} null: only JSON can express it */
function shapeOf(schemaType, text) {
  try {
    const schema = JSON.parse(text);
    if (schemaType === "JSON") return jsonShape(schema, 0);
    return schemaType === "PROTOBUF" ? null : avroShape(schema, 0);
  } catch {
    return null;
  }
}

function avroShape(schema, depth) {
  if (typeof schema === "string") return AVRO[schema] ? { kind: AVRO[schema] } : null;
  if (Array.isArray(schema) || depth > DEPTH_MAX) return null;
  if (schema.type === "enum") return { kind: "enum", symbols: schema.symbols };
  if (schema.type !== "record") {
    if (LOGICAL.test(schema.logicalType)) return { kind: "text" };
    return typeof schema.type === "string" ? avroShape(schema.type, depth + 1) : null;
  }
  const fields = [];
  for (const each of schema.fields) {
    const optional = Array.isArray(each.type) && each.type.includes("null");
    const inner = optional ? each.type.filter((type) => type !== "null") : [each.type];
    const shape = inner.length === 1 ? avroShape(inner[0], depth + 1) : null;
    if (!shape) return null;
    fields.push({ name: each.name, shape, doc: each.doc ?? "", optional, initial: each.default });
  }
  return { kind: "record", fields };
}

function jsonShape(schema, depth) {
  if (depth > DEPTH_MAX || typeof schema !== "object" || schema === null) return null;
  if (Array.isArray(schema.enum) && schema.enum.every((each) => typeof each === "string")) return { kind: "enum", symbols: schema.enum };
  if (["anyOf", "oneOf", "allOf", "$ref", "if"].some((name) => name in schema)) return null;
  if (schema.type !== "object") return JSON_TYPES[schema.type] ? { kind: JSON_TYPES[schema.type] } : null;
  const required = new Set(schema.required ?? []);
  const fields = [];
  for (const [name, inner] of Object.entries(schema.properties ?? {})) {
    const shape = jsonShape(inner, depth + 1);
    if (!shape) return null;
    fields.push({ name, shape, doc: inner.description ?? "", optional: !required.has(name), initial: inner.default });
  }
  return fields.length ? { kind: "record", fields, leavesOut: true } : null;
}

/**
 * @param {Shape} shape
 * @param {any} value what the form starts with
 * @returns {{node: Node, text: () => string}} `text` is the value as JSON
 */
function schemaForm(shape, value) {
  return shape.kind === "record" ? recordForm(shape, value) : control(shape, value, "Value", "");
}

function recordForm(shape, value) {
  const parts = shape.fields.map((each) => {
    // A value of an older version gets defaults; in JSON, what is absent is left out.
    const isGiven = value && (each.name in value || shape.leavesOut);
    const given = isGiven ? value[each.name] : each.initial;
    if (each.shape.kind === "record") return { each, ...nested(each, given) };
    const hint = [each.doc, each.optional && "Empty: null"].filter(Boolean).join(". ");
    const { node, text } = control(each.shape, given, each.name, hint, each.optional);
    return { each, node, text };
  });
  const text = () => {
    const members = parts.map(({ each, text: inner }) => [each, inner()]);
    const sent = members.filter(([each, json]) => !(shape.leavesOut && each.optional && json === "null"));
    return `{${sent.map(([each, json]) => `${JSON.stringify(each.name)}: ${json}`).join(", ")}}`;
  };
  return { node: h("div", { class: "schema-form" }, parts.map((part) => part.node)), text };
}

/** A record in a record; one that is optional can be left out. */
function nested(each, given) {
  const inner = recordForm(each.shape, given ?? undefined);
  const none = h("input", { type: "checkbox", checked: each.optional && (given === null || given === undefined) });
  const show = () => (inner.node.hidden = none.checked);
  none.addEventListener("change", show);
  show();
  const node = h("fieldset", null, h("legend", null, each.name), each.doc && h("p", { class: "hint" }, each.doc),
    each.optional && h("label", { class: "checks" }, none, "null"), inner.node);
  return { node, text: () => (none.checked ? "null" : inner.text()) };
}

/** A value or a default as a control shows it. Defaults of bytes are text with a character for each byte. */
function shownAs(shape, value) {
  if (value === null || value === undefined) return "";
  return shape.kind === "bytes" ? (value.base64 ?? btoa(value)) : String(value);
}

function control(shape, value, name, hint, optional = false) {
  const shown = shownAs(shape, value);
  let input;
  if (shape.kind === "enum") input = select([...(optional ? [["", "null"]] : []), ...shape.symbols], shown);
  else if (shape.kind === "boolean") input = select([...(optional ? [["", "null"]] : []), "true", "false"], shown || (optional ? "" : "false"));
  else input = h("input", { type: "text", class: "mono", value: shown, autocomplete: "off", spellcheck: "false", inputmode: shape.kind === "text" ? null : "decimal" });
  const text = () => {
    if (input.value === "" && optional) return value === "" ? '""' : "null";
    if (shape.kind === "boolean") return input.value;
    // A text that is no number goes to the server as text, which then says what is wrong with it.
    if (["integer", "number"].includes(shape.kind) && /^-?\d+(\.\d+)?([eE][+-]?\d+)?$/.test(input.value.trim())) return input.value.trim();
    return JSON.stringify(input.value);
  };
  return { node: field(name, input, shape.kind === "bytes" ? ["Base64", hint].filter(Boolean).join(". ") : hint), text };
}
