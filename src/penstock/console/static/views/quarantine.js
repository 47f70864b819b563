// Topics with records in quarantine, by reason.

import { read } from "../api.js";
import { h } from "../dom.js";
import { count } from "../format.js";
import { place } from "../router.js";
import { empty, loaded, panel } from "../states.js";
import { plainTable } from "../table.js";

const EVERY_MS = 10_000;

const COLUMNS = [
  { label: "Topic", name: "topic", mono: true, cell: (row) => h("a", { href: place`/quarantine/${row.topic}` }, row.topic) },
  { label: "Records", name: "total", right: true, cell: (row) => count(row.total) },
  { label: "Reasons", name: "reasons", cell: (row) => h("div", { class: "row" }, row.reasons.map(({ reason, count: number }) =>
    h("a", { class: "badge warn", href: `${place`/quarantine/${row.topic}`}?reason=${encodeURIComponent(reason)}` }, `${reason} ${count(number)}`))) },
  { label: "Kept in", name: "quarantine_topic", mono: true, cell: (row) => h("a", { href: place`/topics/${row.quarantine_topic}/records` }, row.quarantine_topic) },
];

export function show(context) {
  const holder = loaded({
    what: "the quarantine", signal: context.signal, every_ms: EVERY_MS,
    load: (signal) => read("/quarantine", signal),
    render: ({ topics }) => panel("", topics.length
      ? plainTable("Quarantine", COLUMNS, topics)
      : empty("Nothing is in quarantine.", "A consumer with a quarantine sets aside records that it cannot decode or process, and goes on. They are listed here by reason, and can be sent again.")),
  });
  return { title: "Quarantine", node: h("div", { class: "page" }, h("div", { class: "title" }, h("h1", null, "Quarantine")), holder.node) };
}
