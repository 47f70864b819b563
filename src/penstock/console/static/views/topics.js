// All topics: sizes, rates, lag; create.

import { asObjects, post, read } from "../api.js";
import { field, openDialog, toast } from "../dialog.js";
import { h } from "../dom.js";
import { bytes, compareCounts, count, rate, short } from "../format.js";
import { icon } from "../icons.js";
import { listPage } from "../list.js";
import { place } from "../router.js";
import { badge, empty } from "../states.js";
import { byNumber, byText } from "../table.js";

const byCount = (name) => (left, right) => compareCounts(left[name], right[name]);

const COLUMNS = [
  {
    name: "name", label: "Name", width: "minmax(200px, 1fr)", mono: true, compare: byText("name"),
    cell: (row) => [h("a", { href: place`/topics/${row.name}/records`, tabindex: "-1" }, row.name), row.internal && [" ", badge("internal")]],
  },
  { name: "partitions", label: "Partitions", width: "96px", right: true, compare: byNumber("partitions"), cell: (row) => count(row.partitions) },
  { name: "replication_factor", label: "Replicas", width: "88px", right: true, compare: byNumber("replication_factor"), cell: (row) => count(row.replication_factor) },
  { name: "records", label: "Records", width: "120px", right: true, compare: byCount("records"), cell: (row) => count(row.records), hint: "Offsets from the first to the last; compaction and transactions leave gaps" },
  { name: "bytes", label: "Size", width: "96px", right: true, compare: byCount("bytes"), cell: (row) => bytes(row.bytes) },
  { name: "rate_in", label: "In", width: "96px", right: true, compare: byNumber("rate_in"), cell: (row) => rate(row.rate_in) },
  { name: "groups", label: "Groups", width: "80px", right: true, compare: byNumber("groups"), cell: (row) => count(row.groups) },
  { name: "max_lag", label: "Largest lag", width: "108px", right: true, compare: byCount("max_lag"), cell: (row) => short(row.max_lag) },
  {
    name: "under_replicated", label: "Health", width: "140px", compare: byNumber("under_replicated"),
    cell: (row) => (row.under_replicated ? badge(`${row.under_replicated} under-replicated`, "warn") : badge("in sync", "good")),
  },
];

export function show(context) {
  const { router, query, setQuery } = context;
  const internal = h("input", { type: "checkbox", checked: query.get("internal") === "1" });
  const page = listPage({
    context, what: "topics", word: "topic", columns: COLUMNS, sort: "name",
    load: async (signal) => asObjects(await read("/console/api/topics", signal)),
    text: (row) => row.name,
    keep: (row) => internal.checked || !(row.internal || row.name.startsWith("_")),
    open: (row) => router.navigate(place`/topics/${row.name}/records`),
    empty: () => empty("There are no topics.", "A topic holds records. Create one here, or on the command line:", "penstock topic create orders --partitions 3"),
    controls: [h("label", { class: "checks" }, internal, "Internal topics")],
  });
  internal.addEventListener("change", () => {
    setQuery({ internal: internal.checked ? "1" : null });
    page.show();
  });
  const create = h("button", { class: "primary", "data-changes": true, onclick: () => createTopic(router) }, icon("plus"), "Create topic");
  const node = h("div", { class: "page whole" }, h("div", { class: "title" }, h("h1", null, "Topics"), h("span", { class: "space" }), create), page.node);
  return { title: "Topics", node, update: page.update };
}

function createTopic(router) {
  const name = h("input", { type: "text", class: "mono", autocomplete: "off", spellcheck: "false" });
  const partitions = h("input", { type: "number", min: "1", value: "3" });
  const replicas = h("input", { type: "number", min: "1", placeholder: "as the cluster is configured" });
  const configs = h("textarea", { rows: "3", placeholder: "cleanup.policy=compact", spellcheck: "false" });
  const body = [
    field("Name", name, "Letters, digits, dot, underscore and hyphen"),
    field("Partitions", partitions, "More can be added later, but keys then move to other partitions"),
    field("Replicas", replicas),
    field("Settings", configs, "One name=value per line; everything else has its default"),
  ];
  openDialog({
    title: "Create a topic", body, action: "Create", ready: () => name.value.trim() !== "" && Number(partitions.value) > 0,
    onSubmit: async () => {
      const topic = { name: name.value.trim(), partitions: Number(partitions.value), configs: readSettings(configs.value) };
      if (replicas.value) topic.replication_factor = Number(replicas.value);
      await post("/topics", topic);
      toast(`Created ${topic.name}.`);
      router.navigate(place`/topics/${topic.name}/records`);
    },
  });
}

/** Lines of name=value as an object. */
export function readSettings(text) {
  const settings = {};
  for (const line of text.split("\n").map((each) => each.trim()).filter(Boolean)) {
    const cut = line.indexOf("=");
    if (cut < 1) throw new Error(`"${line}" is not name=value.`);
    settings[line.slice(0, cut).trim()] = line.slice(cut + 1).trim();
  }
  return settings;
}
