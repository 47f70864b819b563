// Reset the offsets of a group: a table of before and after first, then the change.

import { path, put, read } from "../api.js";
import { confirmByName, field, select, toast } from "../dialog.js";
import { fill, h } from "../dom.js";
import { count, fromInputTime, plural, zoneName } from "../format.js";
import { ROOT, place } from "../router.js";
import { failed, loaded, panel } from "../states.js";
import { plainTable } from "../table.js";

const TARGETS = [["earliest", "The first record"], ["latest", "The end: skip what is there"], ["time", "A time"], ["shift", "By a number of records"]];

export function show(context) {
  const { group } = context.params;
  const holder = loaded({
    what: "the group", signal: context.signal,
    load: (signal) => read(path`/console/api/groups/${group}`, signal),
    render: (found) => form(context, group, found),
  });
  const title = h("div", { class: "title" }, h("a", { class: "crumb", href: `${ROOT}/groups` }, "Groups"), h("span", { class: "muted" }, "/"),
    h("a", { class: "crumb mono-title", href: place`/groups/${group}` }, group), h("span", { class: "muted" }, "/"), h("h1", null, "Reset offsets"));
  return { title: `Reset ${group}`, node: h("div", { class: "page" }, title, holder.node) };
}

function form(context, group, found) {
  const topics = [...new Set(found.offsets.map((row) => row.topic))].sort();
  if (!topics.length) return panel("", h("p", { class: "state" }, "The group has not committed offsets, so there is nothing to reset."));
  const topic = select(topics, context.query.get("topic") ?? topics[0]);
  const target = select(TARGETS, context.query.get("to") ?? "earliest");
  const at = h("input", { type: "datetime-local", step: "1" });
  const shift = h("input", { type: "number", value: "-100" });
  const atField = field(`Time (${zoneName()})`, at, "The first record at or after this time is read next");
  const shiftField = field("Records", shift, "Negative goes back");
  const preview = h("div", null);
  const busy = found.members.length > 0 && h("div", { class: "verdict warn" }, `The group has ${plural(found.members.length, "member")}. Stop them first: the server refuses a reset while they read.`);

  const showFields = () => {
    atField.hidden = target.value !== "time";
    shiftField.hidden = target.value !== "shift";
    fill(preview);
  };
  const body = () => {
    const to = { time: () => ({ time: fromInputTime(at.value) }), shift: () => ({ shift: Number(shift.value) }) }[target.value];
    return { topic: topic.value, to: to ? to() : target.value };
  };
  const send = (dryRun) => put(`${path`/consumer-groups/${group}/offsets`}?reset=true${dryRun ? "&dry_run=true" : ""}`, body(), context.signal);
  for (const control of [topic, target, at, shift]) control.addEventListener("input", showFields);
  showFields();

  async function showPreview() {
    try {
      const answer = await send(true);
      const apply = h("button", { class: "primary danger", "data-changes": true, onclick: () => confirm(answer.offsets.length) }, "Reset these offsets");
      fill(preview, panel("Before and after", plainTable("Before and after", COLUMNS, answer.offsets), h("div", { class: "row actions-row" }, apply)));
    } catch (error) {
      if (context.signal.aborted) return;
      fill(preview, failed("The offsets cannot be reset.", error));
    }
  }

  function confirm(partitions) {
    confirmByName({
      title: `Reset ${group}`, name: group, action: "Reset offsets", text: `The next offsets of ${plural(partitions, "partition")} of ${topic.value} change.`,
      onSubmit: async () => {
        await send(false);
        toast(`Reset the offsets of ${group}.`);
        context.router.navigate(place`/groups/${group}`);
      },
    });
  }

  if (["earliest", "latest"].includes(context.query.get("to"))) showPreview(); // all that it needs is in the address
  const choose = panel("", busy, h("div", { class: "form-row" }, field("Topic", topic), field("Read next", target), atField, shiftField),
    h("button", { class: "primary", onclick: showPreview }, "Show before and after"));
  return h("div", { class: "stack" }, choose, preview);
}

const COLUMNS = [
  { label: "Topic", name: "topic", mono: true, cell: (row) => row.topic },
  { label: "Partition", name: "partition", right: true, cell: (row) => row.partition },
  { label: "Before", name: "before", right: true, cell: (row) => count(row.before) },
  { label: "After", name: "after", right: true, cell: (row) => count(row.after) },
  { label: "Effect", name: "records", right: true, cell: effect },
];

function effect({ before, after }) {
  if (before === null) return h("span", { class: "muted" }, "first offset of this partition");
  const number = BigInt(before) - BigInt(after);
  if (number === 0n) return h("span", { class: "muted" }, "no change");
  if (number < 0n) return h("span", { class: "warn-text" }, `${plural(-number, "record")} skipped`);
  return h("span", null, `${plural(number, "record")} read again`);
}
