// The groups that read a topic, with their lag.

import { path, read } from "../api.js";
import { h } from "../dom.js";
import { count, duration } from "../format.js";
import { place } from "../router.js";
import { empty, loaded, panel } from "../states.js";
import { plainTable } from "../table.js";

const EVERY_MS = 5000;

const COLUMNS = [
  { label: "Group", name: "group", mono: true, cell: (row) => h("a", { href: place`/groups/${row.group}` }, row.group) },
  { label: "Members", name: "members", right: true, cell: (row) => count(row.members) },
  { label: "Lag", name: "lag", right: true, cell: (row) => count(row.lag) },
  { label: "Behind", name: "lag_seconds", right: true, cell: (row) => duration(row.lag_seconds), hint: "The age of the oldest record that is not read" },
];

export function show(context) {
  const { topic } = context.params;
  const holder = loaded({
    what: "the groups", signal: context.signal, every_ms: EVERY_MS,
    load: (signal) => read(path`/console/api/topics/${topic}`, signal),
    render: (found) => panel("", found.groups.length
      ? plainTable("Groups", COLUMNS, found.groups)
      : empty("No group reads this topic.", "A group appears here when it commits an offset.", `penstock consume ${topic} --group billing`)),
  });
  return { node: holder.node };
}
