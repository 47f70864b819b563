// The partitions of a topic: leader, replicas, offsets, size, skew; adding partitions.

import { path, patch, read } from "../api.js";
import { meter } from "../chart.js";
import { field, openDialog, toast } from "../dialog.js";
import { h } from "../dom.js";
import { bytes, count } from "../format.js";
import { badge, loaded, panel } from "../states.js";
import { plainTable } from "../table.js";

const EVERY_MS = 5000;

export function show(context) {
  const { topic } = context.params;
  const holder = loaded({
    what: "the partitions", signal: context.signal, every_ms: EVERY_MS,
    load: (signal) => read(path`/console/api/topics/${topic}`, signal),
    render: (found) => {
      const add = h("button", { "data-changes": true, onclick: () => addPartitions(topic, found.partitions.length, holder.reload) }, "Add partitions");
      const skew = `The largest partition has ${Number(found.skew).toFixed(2)} times the records of an average one.`;
      return panel("", h("div", { class: "row" }, h("span", { class: "muted" }, skew), h("span", { class: "space" }), add), table(found));
    },
  });
  return { node: holder.node };
}

function table(found) {
  const records = (row) => BigInt(row.latest) - BigInt(row.earliest);
  const most = found.partitions.reduce((top, row) => (records(row) > top ? records(row) : top), 1n);
  const columns = [
    { label: "Partition", name: "partition", right: true, cell: (row) => row.partition },
    { label: "Leader", name: "leader", right: true, cell: (row) => (row.leader === null || row.leader < 0 ? badge("none", "bad") : row.leader) },
    { label: "Epoch", name: "leader_epoch", right: true, cell: (row) => row.leader_epoch },
    { label: "Replicas", name: "replicas", cell: (row) => row.replicas.join(", ") },
    { label: "In sync", name: "in_sync", cell: (row) => (row.in_sync.length < row.replicas.length ? badge(row.in_sync.join(", ") || "none", "warn") : row.in_sync.join(", ")) },
    { label: "Offline", name: "offline", cell: (row) => (row.offline.length ? badge(row.offline.join(", "), "bad") : "–") },
    { label: "First offset", name: "earliest", right: true, cell: (row) => count(row.earliest) },
    { label: "End offset", name: "latest", right: true, cell: (row) => count(row.latest) },
    { label: "Records", name: "records", right: true, cell: (row) => [meter(Number(records(row)) / Number(most)), count(records(row))] },
    { label: "Size", name: "bytes", right: true, cell: (row) => bytes(row.bytes) },
  ];
  return plainTable("Partitions", columns, found.partitions);
}

function addPartitions(topic, now, reload) {
  const number = h("input", { type: "number", min: String(now + 1), value: String(now + 1) });
  openDialog({
    title: "Add partitions", action: "Add", ready: () => Number(number.value) > now,
    body: [h("p", null, `${topic} has ${now}. New records of a key may go to another partition than earlier ones; partitions cannot be removed.`), field("Partitions in total", number)],
    onSubmit: async () => {
      await patch(path`/topics/${topic}`, { partitions: Number(number.value) });
      toast(`${topic} has ${number.value} partitions.`);
      reload();
    },
  });
}
