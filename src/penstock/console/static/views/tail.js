// New records of a topic as they arrive. Pausing keeps the list, and counts what arrives meanwhile.

import { path, read } from "../api.js";
import { append, fill, h, setText } from "../dom.js";
import { count, plural, rate } from "../format.js";
import { icon } from "../icons.js";
import { live } from "../live.js";
import { place } from "../router.js";
import { empty, failed } from "../states.js";
import { VirtualTable } from "../table.js";
import { RECORD_COLUMNS, recordId } from "./record_columns.js";

const ROWS_MAX = 1000;
const STATES = { live: "Waiting for records", connecting: "Connecting…", idle: "Not connected" };

/** Notes where the topic ends now, so that nothing is lost while the page is hidden or the server restarts. */
async function startAtEnd(topic, next, signal) {
  try {
    const { partitions } = await read(path`/console/api/topics/${topic}`, signal);
    for (const each of partitions) next[each.partition] = each.latest;
  } catch (error) {
    if (error.status === undefined && !signal.aborted) throw error; // else: follow what is new to the server
  }
}

export function show(context) {
  const { signal, router } = context;
  const { topic } = context.params;
  let rows = [];
  let waiting = [];
  let missed = 0; // arrived while paused, beyond what is kept
  let paused = false;
  let dropped = 0;
  let received = 0;
  let speed = null;
  const next = {}; // by partition: the offset after the last record received

  const problem = h("div", null);
  const status = h("span", { class: "muted" });
  const button = h("button", { onclick: () => setPaused(!paused) });
  const table = new VirtualTable({
    label: "New records",
    columns: RECORD_COLUMNS,
    rowAt: (index) => rows[index],
    onOpen: (row) => router.navigate(`${place`/topics/${topic}/records`}?partition=${row.partition}&offset=${row.offset}&open=${encodeURIComponent(recordId(row))}`),
    empty: () => empty("Waiting for new records.", "Records appear here as they are written.", `echo 'key:{"n": 1}' | penstock produce ${topic} -K :`),
  });

  function showStatus() {
    const parts = [received ? `${plural(received, "record")} received` : STATES[live.state], speed !== null && rate(speed), dropped && `${count(dropped)} left out, because this page was too slow`];
    setText(status, parts.filter(Boolean).join(" · "));
    const held = waiting.length + missed;
    fill(button, icon(paused ? "play" : "pause"), paused ? `Resume${held ? ` (${count(held)} new)` : ""}` : "Pause");
  }

  function add(records) {
    for (const record of records) next[record.partition] = String(BigInt(record.offset) + 1n);
    received += records.length;
    const newest = [...records].reverse();
    if (paused) {
      missed += Math.max(0, newest.length + waiting.length - ROWS_MAX);
      waiting = [...newest, ...waiting].slice(0, ROWS_MAX);
    } else {
      rows = [...newest, ...rows].slice(0, ROWS_MAX);
      table.setTotal(rows.length);
    }
  }

  function setPaused(value) {
    paused = value;
    if (!paused) {
      rows = [...waiting, ...rows].slice(0, ROWS_MAX);
      waiting = [];
      missed = 0;
      table.setTotal(rows.length);
    }
    showStatus();
  }

  const follow = () => live.subscribe("tail", {
    request: () => ({ topics: [topic], ...(Object.keys(next).length ? { from: { offsets: { [topic]: next } } } : {}) }),
    onMessage: (message) => {
      if (message.type === "tail") {
        dropped += message.dropped ?? 0;
        speed = message.rate ?? null;
        add(message.records);
      }
      fill(problem, message.type === "error" && failed("The records cannot be followed.", new Error(message.error.message)));
      showStatus();
    },
    onState: showStatus,
  }, signal);
  startAtEnd(topic, next, signal).then(() => signal.aborted || follow());
  table.setTotal(0);
  showStatus();
  const toolbar = h("div", { class: "toolbar" });
  append(toolbar, [button, status, h("span", { class: "space" }), h("span", { class: "muted count" }, `The last ${count(ROWS_MAX)} records are kept`)]);
  return { node: h("div", { class: "fills" }, toolbar, problem, table.node) };
}
