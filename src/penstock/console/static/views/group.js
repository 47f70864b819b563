// One group: members with their partitions, lag of each partition, an hour of lag.

import { path, read } from "../api.js";
import { lineChart } from "../chart.js";
import { fill, h } from "../dom.js";
import { count, duration, plural, short } from "../format.js";
import { ROOT, place } from "../router.js";
import { empty, loaded, panel } from "../states.js";
import { plainTable } from "../table.js";
import { stateBadge } from "./groups.js";

const EVERY_MS = 5000;
const SHOWN_PARTITIONS = 12;

export function show(context) {
  const { group } = context.params;
  const state = h("span", { class: "row" });
  const reset = h("a", { class: "button", "data-changes": true, href: place`/groups/${group}/reset` }, "Reset offsets");
  const holder = loaded({
    what: "the group", signal: context.signal, every_ms: EVERY_MS,
    load: (signal) => read(path`/console/api/groups/${group}`, signal),
    render: (found) => {
      fill(state, stateBadge(found.state), found.coordinator && h("span", { class: "muted nowrap" }, `  coordinator ${found.coordinator}`));
      return h("div", { class: "stack" }, tiles(found), h("div", { class: "columns" }, history(found), members(found)), offsets(found));
    },
  });
  const title = h("div", { class: "title" }, h("a", { class: "crumb", href: `${ROOT}/groups` }, "Groups"), h("span", { class: "muted" }, "/"), h("h1", { class: "mono-title" }, group), state, h("span", { class: "space" }), reset);
  return { title: group, node: h("div", { class: "page" }, title, holder.node) };
}

const tile = (name, figure, more) => h("div", { class: "tile" }, h("div", { class: "name" }, name), h("div", { class: "figure" }, figure), h("div", { class: "more" }, more));

function tiles(found) {
  const known = found.offsets.filter((row) => row.lag !== null);
  const lag = known.reduce((sum, row) => sum + BigInt(row.lag), 0n);
  const seconds = Math.max(-1, ...found.offsets.map((row) => row.lag_seconds ?? -1));
  return h("div", { class: "tiles" },
    tile("Lag", short(lag), "records not read yet"),
    tile("Behind", seconds < 0 ? "–" : duration(seconds), "age of the oldest of them"),
    tile("Members", count(found.members.length), `${found.protocol || "no"} protocol`),
    tile("Partitions", count(found.offsets.length), plural(new Set(found.offsets.map((row) => row.topic)).size, "topic")));
}

function history(found) {
  const points = found.history;
  return panel("Lag in the last hour",
    h("h3", null, "Records"), lineChart({ label: "Lag in records", points, name: "lag", format: (value) => short(value) }),
    points.some((point) => point.lag_seconds !== null) && [h("h3", null, "Time behind"), lineChart({ label: "Lag in seconds", points, name: "lag_seconds", format: duration, height: 72 })]);
}

function members(found) {
  if (!found.members.length) return panel("Members", empty("The group has no members.", "Its offsets are kept, and can be reset."));
  const columns = [
    { label: "Member", name: "member", mono: true, cell: (row) => row.member },
    { label: "Client", name: "client", cell: (row) => [row.client_id, h("div", { class: "muted" }, row.host)] },
    { label: "Partitions", name: "assignment", mono: true, cell: (row) => assignment(row.assignment) },
  ];
  return panel("Members", plainTable("Members", columns, found.members));
}

function assignment(places) {
  const topics = new Map();
  for (const { topic, partition } of places) topics.set(topic, [...(topics.get(topic) ?? []), partition]);
  return [...topics].map(([topic, partitions]) => {
    const rest = partitions.length - SHOWN_PARTITIONS;
    return h("div", null, `${topic}: ${partitions.slice(0, SHOWN_PARTITIONS).join(", ")}${rest > 0 ? ` and ${rest} more` : ""}`);
  });
}

function offsets(found) {
  if (!found.offsets.length) return panel("Offsets", empty("The group has not committed offsets."));
  const columns = [
    { label: "Topic", name: "topic", mono: true, cell: (row) => h("a", { href: `${place`/topics/${row.topic}/records`}?partition=${row.partition}${row.committed === null ? "" : `&offset=${row.committed}&order=oldest`}` }, row.topic) },
    { label: "Partition", name: "partition", right: true, cell: (row) => row.partition },
    { label: "Committed", name: "committed", right: true, cell: (row) => count(row.committed) },
    { label: "End", name: "latest", right: true, cell: (row) => count(row.latest) },
    { label: "Lag", name: "lag", right: true, cell: (row) => count(row.lag) },
    { label: "Behind", name: "lag_seconds", right: true, cell: (row) => duration(row.lag_seconds) },
    { label: "Member", name: "member", mono: true, cell: (row) => row.member ?? "–" },
  ];
  return panel("Offsets", plainTable("Offsets", columns, found.offsets));
}
