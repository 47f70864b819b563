// Write a record: a form made from the schema, or JSON. The server checks it before it is written.

import { ApiError, path, read, request } from "../api.js";
import { field, select, toast } from "../dialog.js";
import { fill, h } from "../dom.js";
import { bytes, count } from "../format.js";
import { place } from "../router.js";
import { loaded, panel } from "../states.js";
import { headersPart, keyPart, valuePart } from "./produce_parts.js";

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
    offset ? read(`${path`/topics/${topic}/partitions/${partition}/records/${offset}`}?whole=true`, signal) : null,
  ]);
  return { found, schemas: { value, key }, record };
}

async function latestSchema(subject, signal) {
  return subject ? read(path`/subjects/${subject}/versions/latest`, signal) : null;
}

function form(context, topic, { found, schemas, record }) {
  const key = keyPart(schemas.key, record);
  const value = valuePart(schemas.value, record);
  const headers = headersPart(record);
  const partitions = [["", "By the key"], ...found.partitions.map((each) => [each.partition, `Partition ${each.partition}`])];
  const partition = select(partitions, "");
  const verdict = h("div", { class: "verdict", role: "status" });
  const showVerdict = (tone, ...children) => {
    verdict.className = `verdict ${tone}`;
    fill(verdict, children);
  };

  async function send(dryRun) {
    const members = [...key.members(), ...value.members(), ...headers.members()];
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
  const note = record && h("p", { class: "muted" }, `Filled from partition ${record.partition}, offset ${count(record.offset)}. A new record is written; that one stays. What you do not change is written with the same bytes.`);
  const left = panel("Value", note, value.node);
  const right = h("div", { class: "stack" }, panel("Key", key.node), panel("Headers", headers.node), panel("Place", field("Partition", partition), verdict, buttons));
  return h("div", { class: "columns produce" }, left, right);
}
