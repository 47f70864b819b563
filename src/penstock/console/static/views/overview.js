// The overview: brokers, partitions, throughput, disk, groups by lag, quarantine.

import { read } from "../api.js";
import { lineChart, meter } from "../chart.js";
import { fill, h, setText } from "../dom.js";
import { bytes, count, duration, plural, rate, short } from "../format.js";
import { live } from "../live.js";
import { place } from "../router.js";
import { badge, empty, loaded, panel, unavailable } from "../states.js";
import { plainTable } from "../table.js";

const EVERY_MS = 15_000; // the socket brings what is newer
const POINTS_MAX = 720;
const FULL_SHARE = 0.85;

export function show({ signal, info }) {
  const tiles = makeTiles(info);
  const brokers = panel("Brokers");
  const throughput = panel("Throughput");
  const groups = panel("Groups by lag");
  const quarantine = panel("Quarantine");
  let history = [];
  let shownTables = "";

  function apply(state) {
    tiles.update(state);
    setText(stale, state.stale ? `The cluster does not answer; these are the last values. ${state.stale}` : "");
    if (state.history) history = state.history;
    else history = [...history, { time: state.time, ...state.rates }].slice(-POINTS_MAX);
    showThroughput(throughput, history, info);
    const tables = JSON.stringify([state.brokers, state.controller, state.groups, state.quarantine]);
    if (tables === shownTables) return;
    shownTables = tables;
    showBrokers(brokers, state, info);
    showGroups(groups, state.groups);
    showQuarantine(quarantine, state.quarantine);
  }

  const stale = h("div", { class: "verdict warn", role: "status" });
  const page = h("div", { class: "stack" }, stale, tiles.node, h("div", { class: "columns" }, throughput, brokers, groups, quarantine));
  const holder = loaded({
    what: "the overview", signal, every_ms: EVERY_MS,
    load: (aborted) => read("/console/api/overview", aborted),
    render: (state) => {
      apply(state);
      return page.isConnected ? null : page;
    },
  });
  live.subscribe("overview", { request: () => ({}), onMessage: (message) => message.type === "overview" && page.isConnected && apply(message) }, signal);
  const node = h("div", { class: "page" }, h("div", { class: "title" }, h("h1", null, "Overview")), holder.node);
  return { title: "Overview", node };
}

function makeTiles(info) {
  const figures = {};
  const tile = (name, label) => {
    const figure = h("div", { class: "figure" });
    const more = h("div", { class: "more" });
    const node = h("div", { class: "tile" }, h("div", { class: "name" }, label), figure, more);
    figures[name] = (text, note, tone = "") => {
      setText(figure, text);
      setText(more, note);
      node.className = `tile ${tone}`;
    };
    return node;
  };
  const node = h("div", { class: "tiles" },
    tile("brokers", "Brokers"), tile("offline", "Offline partitions"), tile("under", "Under-replicated"),
    tile("records", "Records in"), tile("bytes", "Bytes in"), tile("topics", "Topics"));
  const update = (state) => {
    const hidden = info.panels.controller === "unavailable";
    const noted = hidden ? "controller: not available" : state.controller === null ? "no controller" : `controller ${state.controller}`;
    figures.brokers(count(state.brokers.length), noted, state.controller === null && !hidden ? "bad" : "");
    figures.offline(count(state.offline), state.offline ? "cannot be read or written" : "all have a leader", state.offline ? "bad" : "good");
    figures.under(count(state.under_replicated), state.under_replicated ? "replicas are missing" : "all replicas in sync", state.under_replicated ? "warn" : "good");
    figures.records(rate(state.rates.records_in), "records per second");
    figures.bytes(state.rates.bytes_in === null ? "–" : `${bytes(state.rates.bytes_in)}/s`, state.rates.bytes_out === null ? "out: not available" : `${bytes(state.rates.bytes_out)}/s out`);
    figures.topics(count(state.topics), plural(state.partitions, "partition"));
  };
  return { node, update };
}

function showThroughput(section, history, info) {
  const source = info.panels.throughput;
  if (source === "unavailable") {
    fill(section, h("h2", null, "Throughput"), unavailable());
    return;
  }
  const note = source === "derived" ? h("p", { class: "muted" }, "Derived from the offsets of all partitions.") : null;
  fill(section, h("h2", null, "Throughput"), note, lineChart({ label: "Records in per second", points: history, name: "records_in", format: rate, height: 140 }));
}

function showBrokers(section, state, info) {
  const columns = [
    {
      label: "Broker", name: "id",
      cell: (broker) => h("div", { class: "nowrap" }, broker.id, " ", h("span", { class: "mono muted" }, `${broker.host}:${broker.port}`),
        broker.fenced ? [" ", badge("fenced", "bad")] : broker.id === state.controller && [" ", badge("controller", "good")]),
    },
    { label: "Leads", name: "leaders", right: true, cell: (broker) => count(broker.leaders) },
    { label: "Log", name: "bytes", right: true, cell: (broker) => bytes(broker.bytes) },
    { label: "Disk free", name: "disk", right: true, cell: diskCell },
  ];
  const note = info.panels.disk === "unavailable" ? h("p", { class: "muted" }, "Sizes are not available on this cluster.") : null;
  fill(section, h("h2", null, "Brokers"), plainTable("Brokers", columns, state.brokers), note);
}

function diskCell(broker) {
  if (!broker.disk_total || !broker.disk_free) return "–";
  const used = 1 - Number(broker.disk_free) / Number(broker.disk_total);
  const tone = used > 0.95 ? "bad" : used > FULL_SHARE ? "warn" : "";
  return h("span", { class: "nowrap" }, meter(used, tone), bytes(broker.disk_free));
}

function showGroups(section, groups) {
  const columns = [
    { label: "Group", name: "group", mono: true, cell: (row) => h("a", { href: place`/groups/${row.group}` }, row.group) },
    { label: "State", name: "state", cell: (row) => row.state },
    { label: "Lag", name: "lag", right: true, cell: (row) => short(row.lag) },
    { label: "Behind", name: "lag_seconds", right: true, cell: (row) => duration(row.lag_seconds) },
  ];
  const content = groups.length
    ? plainTable("Groups by lag", columns, groups)
    : empty("No group has committed offsets.", "Groups appear here with the records they have not read yet.", "penstock consume orders --group billing");
  fill(section, h("h2", null, "Groups by lag"), content);
}

function showQuarantine(section, topics) {
  const columns = [
    { label: "Topic", name: "topic", mono: true, cell: (row) => h("a", { href: place`/quarantine/${row.topic}` }, row.topic) },
    { label: "Records", name: "total", right: true, cell: (row) => count(row.total) },
  ];
  const content = topics.length
    ? plainTable("Quarantine", columns, topics)
    : empty("Nothing is in quarantine.", "Records that a consumer could not decode or process are listed here, with the reason.");
  fill(section, h("h2", null, "Quarantine"), content);
}
