// Spark queries that read or write topics: rates, watermark, lag, last error.

import { read } from "../api.js";
import { h } from "../dom.js";
import { count, duration, rate, short, time } from "../format.js";
import { badge, empty, loaded, panel } from "../states.js";
import { plainTable } from "../table.js";

const EVERY_MS = 5000;
const TONES = { running: "good", stale: "warn", stopped: "", failed: "bad" };

const COLUMNS = [
  { label: "Query", name: "name", mono: true, cell: (row) => [row.name ?? row.id, row.name && h("div", { class: "muted" }, row.id)] },
  { label: "State", name: "state", cell: (row) => badge(row.state, TONES[row.state] ?? "") },
  { label: "Batch", name: "batch", right: true, cell: (row) => count(row.batch) },
  { label: "In", name: "input_rate", right: true, cell: (row) => rate(row.input_rate) },
  { label: "Processed", name: "processed_rate", right: true, cell: (row) => rate(row.processed_rate) },
  { label: "Lag", name: "lag", right: true, cell: (row) => short(row.lag) },
  { label: "Watermark", name: "watermark", cell: (row) => watermark(row.watermark) },
  { label: "Last report", name: "updated", cell: (row) => `${duration((Date.now() - Number(row.updated)) / 1000)} ago` },
  { label: "Last error", name: "last_error", cell: (row) => (row.last_error ? h("span", { class: "bad-text" }, row.last_error) : "–") },
];

/** Spark's text in the chosen zone; the epoch is the watermark of a query that has none yet. */
function watermark(text) {
  const ms = Date.parse(text ?? "");
  if (Number.isNaN(ms)) return text ?? "–";
  return ms === 0 ? "none yet" : time(ms, { milliseconds: false });
}

export function show(context) {
  const holder = loaded({
    what: "the pipelines", signal: context.signal, every_ms: EVERY_MS,
    load: (signal) => read("/pipelines", signal),
    render: ({ pipelines }) => panel("", pipelines.length
      ? plainTable("Pipelines", COLUMNS, pipelines)
      : empty("No pipeline has reported.", "A Spark session reports its streaming queries if it is made so; your own session does by report_pipelines(spark, bootstrap):", 'penstock.spark.session("orders", report_to="HOST:PORT")' )),
  });
  const note = h("p", { class: "muted" }, "A query that is silent for three triggers is stale.");
  return { title: "Pipelines", node: h("div", { class: "page" }, h("div", { class: "title" }, h("h1", null, "Pipelines")), note, holder.node) };
}
