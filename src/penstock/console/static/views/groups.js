// All consumer groups, with their lag.

import { asObjects, read } from "../api.js";
import { h } from "../dom.js";
import { compareCounts, count, duration } from "../format.js";
import { listPage } from "../list.js";
import { place } from "../router.js";
import { badge, empty } from "../states.js";
import { byNumber, byText } from "../table.js";

const TONES = { stable: "good", empty: "", dead: "bad", preparingrebalance: "warn", completingrebalance: "warn", assigning: "warn", reconciling: "warn" };

/** The state of a group; the colour helps, the word says it. */
export const stateBadge = (state) => badge(state, TONES[String(state).toLowerCase().replace(/[^a-z]/g, "")] ?? "");

const COLUMNS = [
  { name: "group", label: "Group", width: "minmax(200px, 1fr)", mono: true, compare: byText("group"), cell: (row) => h("a", { href: place`/groups/${row.group}`, tabindex: "-1" }, row.group) },
  { name: "state", label: "State", width: "168px", compare: byText("state"), cell: (row) => stateBadge(row.state) },
  { name: "protocol", label: "Protocol", width: "110px", compare: byText("protocol"), cell: (row) => row.protocol },
  { name: "members", label: "Members", width: "96px", right: true, compare: byNumber("members"), cell: (row) => count(row.members) },
  { name: "topics", label: "Topics", width: "80px", right: true, compare: byNumber("topics"), cell: (row) => count(row.topics) },
  { name: "lag", label: "Lag", width: "120px", right: true, compare: (a, b) => compareCounts(a.lag, b.lag), cell: (row) => count(row.lag) },
  { name: "lag_seconds", label: "Behind", width: "110px", right: true, compare: byNumber("lag_seconds"), cell: (row) => duration(row.lag_seconds), hint: "The age of the oldest record that is not read" },
];

export function show(context) {
  const page = listPage({
    context, what: "groups", word: "group", columns: COLUMNS, sort: "-lag",
    load: async (signal) => asObjects(await read("/console/api/groups", signal)),
    text: (row) => row.group,
    open: (row) => context.router.navigate(place`/groups/${row.group}`),
    empty: () => empty("There are no consumer groups.", "A group appears when a member joins or commits an offset.", "penstock consume orders --group billing"),
  });
  const node = h("div", { class: "page whole" }, h("div", { class: "title" }, h("h1", null, "Groups")), page.node);
  return { title: "Groups", node, update: page.update };
}
