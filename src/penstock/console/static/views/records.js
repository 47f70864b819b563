// The records of a topic: histogram, list, filter, and one record beside the list.

import { path, post, read, withQuery } from "../api.js";
import { histogram } from "../chart.js";
import { select } from "../dialog.js";
import { fill, h } from "../dom.js";
import { fromInputTime, inputTime, plural, zoneName } from "../format.js";
import { icon } from "../icons.js";
import { failed, loaded } from "../states.js";
import { RecordBrowser } from "./record_browser.js";
import { recordId } from "./record_columns.js";
import { recordDetail } from "./record_detail.js";
import { RecordSearch } from "./record_search.js";

const BUCKETS = 60;
const NEW_EVERY_MS = 5000;

export function show(context) {
  const { topic } = context.params;
  const view = new RecordsView(context, topic);
  return { node: view.node, update: (query) => view.update(query) };
}

class RecordsView {
  constructor(context, topic) {
    this.context = context;
    this.topic = topic;
    this.query = context.query;
    this.list = null;
    this.detail = null;
    this.charted = null; // the partition that the histogram shows
    this.leaving = new AbortController(); // of the list
    this.problem = h("div", null);
    this.fresh = h("span", null);
    this.chart = h("div", { class: "records-chart" });
    this.place = h("div", { class: "fills" });
    this.split = h("div", { class: "split" }, this.place);
    this.toolbar = h("form", { class: "toolbar", novalidate: true });
    const holder = loaded({
      what: "the topic", signal: context.signal, fills: true,
      load: (signal) => read(path`/console/api/topics/${topic}`, signal),
      render: (found) => {
        this.partitions = found.partitions;
        this.showAll();
        return h("div", { class: "fills" }, this.toolbar, this.problem, this.chart, this.split);
      },
    });
    this.node = h("div", { class: "fills" }, holder.node);
    context.signal.addEventListener("abort", () => this.leaving.abort());
    const timer = setInterval(() => document.hidden || this.checkNew(), NEW_EVERY_MS);
    context.signal.addEventListener("abort", () => clearInterval(timer));
    document.addEventListener("keydown", (event) => event.key === "Escape" && !event.defaultPrevented && !document.querySelector("dialog[open]") && this.detail && this.open(null), { signal: context.signal });
  }

  update(query) {
    const before = this.query;
    this.query = query;
    const kept = ["partition", "order", "filter", "offset", "time"].every((name) => before.get(name) === query.get(name));
    if (!this.partitions) return;
    if (!kept) this.showAll();
    else this.showDetail();
  }

  get partition() {
    if (this.partitions.length === 1) return this.partitions[0].partition;
    const text = this.query.get("partition");
    return text === null ? null : Number(text);
  }

  showAll() {
    this.showToolbar();
    this.chart.classList.toggle("waits", this.charted === null && this.partitions.some((each) => each.latest !== each.earliest));
    this.showList();
    this.showDetail();
  }

  showToolbar() {
    const { query } = this;
    const choices = [["", "All partitions"], ...this.partitions.map((each) => [each.partition, `Partition ${each.partition}`])];
    const partition = select(choices, query.get("partition") ?? "", { "aria-label": "Partition" });
    const order = select([["", "Newest first"], ["oldest", "Oldest first"]], query.get("order") ?? "", { "aria-label": "Order" });
    const offset = h("input", { class: "offset", inputmode: "numeric", "aria-label": "Go to offset", placeholder: "Offset", value: query.get("offset") });
    const at = h("input", { type: "datetime-local", step: "0.001", value: query.get("time") ? inputTime(query.get("time")) : "" });
    const filter = h("input", {
      class: "filter wide", "aria-label": "Filter records", "data-slash": true, autocomplete: "off", spellcheck: "false", value: query.get("filter"),
      placeholder: 'Filter: value.total >= 100 and key startswith "de"   /',
    });
    const change = (changes) => this.context.setQuery({ cursor: null, ...changes }, true);
    partition.addEventListener("change", () => change({ partition: partition.value, offset: null, open: null }));
    order.addEventListener("change", () => change({ order: order.value }));
    at.addEventListener("change", () => change({ time: fromInputTime(at.value), offset: null }));
    fill(this.toolbar, h("div", { class: "line" }, filter, h("button", { type: "submit" }, icon("search"), "Filter")), this.partitions.length > 1 && partition, order, offset, h("label", { class: "checks" }, `From (${zoneName()})`, at), this.fresh,
      ["filter", "offset", "time"].some((name) => query.get(name)) && h("button", { type: "button", class: "quiet", onclick: () => change({ filter: null, offset: null, time: null }) }, "Clear"));
    this.toolbar.onsubmit = (event) => {
      event.preventDefault();
      const number = offset.value.replace(/[,\s]/g, "");
      if (number && !/^\d+$/.test(number)) {
        this.showProblem(new Error("An offset is a whole number."));
        return;
      }
      change({ filter: filter.value.trim(), offset: number, ...(number && number !== query.get("offset") ? { time: null } : {}) });
    };
  }

  /** After the list, which matters more: times are looked up in the log for each bar. */
  async showHistogram() {
    const chosen = this.partition;
    if (this.charted === String(chosen)) return;
    this.charted = String(chosen);
    const { signal } = this.context;
    try {
      const answer = await read(withQuery(path`/topics/${this.topic}/histogram`, { buckets: BUCKETS, partition: chosen }), signal);
      const any = answer.buckets.some((bucket) => Number(bucket.records) > 0);
      this.chart.classList.remove("waits");
      fill(this.chart, any && answer.buckets.length > 1 && histogram({
        label: `Records over time${answer.exact ? "" : ", approximate"}`, buckets: answer.buckets,
        onPick: (bucket) => this.context.setQuery({ time: bucket.from, offset: null, cursor: null, order: "oldest" }, true),
      }));
    } catch (error) {
      if (error.status === undefined && !signal.aborted) throw error;
      fill(this.chart); // the list does not need it
      this.chart.classList.remove("waits");
    }
  }

  showList() {
    this.leaving.abort();
    this.leaving = new AbortController();
    this.showProblem(null);
    fill(this.fresh);
    const { query, partition } = this;
    const filter = query.get("filter");
    if (partition !== null && !filter) this.browse(partition);
    else this.search(partition, filter);
    fill(this.place, this.list.node);
  }

  browse(partition) {
    const found = this.partitions.find((each) => each.partition === partition);
    if (!found) {
      this.list = { node: failed("Cannot show the records.", new Error(`There is no partition ${partition}.`)), mark: () => {}, neighbour: () => null };
      return;
    }
    const list = new RecordBrowser({
      topic: this.topic, partition, earliest: BigInt(found.earliest), latest: BigInt(found.latest), newestFirst: this.query.get("order") !== "oldest",
      signal: this.leaving.signal, onOpen: (row) => this.open(recordId(row)), onProblem: (error) => this.showProblem(error),
      onLoaded: () => this.showHistogram(),
    });
    this.list = list;
    const [offset, at] = ["offset", "time"].map((name) => this.query.get(name));
    if (offset !== null && /^\d+$/.test(offset)) requestAnimationFrame(() => list.seek(BigInt(offset)));
    else if (at !== null) this.seekTime(list, partition, at);
    else this.seekOpen(list, partition);
  }

  /** A link to a record shows it in the list, too. */
  seekOpen(list, partition) {
    const [of, offset] = (this.query.get("open") ?? "").split(":");
    if (offset && Number(of) === partition && /^\d+$/.test(offset)) requestAnimationFrame(() => list.seek(BigInt(offset)));
  }

  async seekTime(list, partition, at) {
    const { signal } = this.leaving;
    try {
      const answer = await post(path`/topics/${this.topic}/search`, { partitions: [partition], from: { time: at }, limit: 1 }, signal);
      const [first] = answer.records;
      list.seek(first ? BigInt(first.offset) : list.latest - 1n);
    } catch (error) {
      if (!signal.aborted) this.showProblem(error);
    }
  }

  search(partition, filter) {
    const oldest = this.query.get("order") === "oldest";
    const [offset, at] = ["offset", "time"].map((name) => this.query.get(name));
    const request = { direction: oldest ? "forward" : "backward", from: oldest ? "earliest" : "latest" };
    if (offset !== null && /^\d+$/.test(offset)) request.from = { offset };
    else if (at !== null) request.from = { time: at };
    if (partition !== null) request.partitions = [partition];
    if (filter) request.filter = filter;
    this.list = new RecordSearch({
      topic: this.topic, request, cursor: this.query.get("cursor"), signal: this.leaving.signal,
      onOpen: (row) => this.open(recordId(row)), onProblem: (error) => this.showProblem(error),
      onLoaded: () => this.showHistogram(), onCursor: (cursor) => this.context.setQuery({ cursor }),
    });
  }

  showProblem(error) {
    const input = this.toolbar.querySelector(".filter");
    const ofFilter = error?.status === 400 && this.query.get("filter");
    input?.setAttribute("aria-invalid", String(Boolean(ofFilter)));
    if (!error) fill(this.problem);
    else fill(this.problem, failed(ofFilter ? "The filter cannot be used." : "Cannot read the records.", error, ofFilter ? null : () => this.showList()));
  }

  open(id) {
    this.context.setQuery({ open: id }, true);
  }

  showDetail() {
    const id = this.query.get("open");
    this.detail?.close();
    this.detail?.node.remove();
    this.detail = null;
    this.list?.mark(id);
    if (!id || !/^\d+:\d+$/.test(id)) return;
    this.detail = recordDetail({
      context: this.context, topic: this.topic, id, tab: this.query.get("tab") ?? "value",
      onClose: () => this.open(null),
      onStep: (step) => {
        const next = this.list.neighbour(id, step);
        if (next) this.open(next);
      },
      onTab: (tab) => this.context.setQuery({ tab: tab === "value" ? null : tab }),
    });
    this.split.append(this.detail.node);
  }

  /** Offers records that were appended since the list was made; the list does not move by itself. */
  async checkNew() {
    if (!this.partitions || this.query.get("filter")) return;
    try {
      const found = await read(path`/console/api/topics/${this.topic}`, this.context.signal);
      const chosen = this.partition;
      const ends = (rows) => rows.filter((each) => chosen === null || each.partition === chosen).reduce((sum, each) => sum + BigInt(each.latest), 0n);
      const added = ends(found.partitions) - ends(this.partitions);
      fill(this.fresh, added > 0n && h("button", { type: "button", class: "small", onclick: () => {
        this.partitions = found.partitions;
        this.charted = null;
        this.showAll();
      } }, icon("refresh"), `${plural(added, "new record")}`));
    } catch (error) {
      if (error.status === undefined && !this.context.signal.aborted) throw error;
    }
  }
}
