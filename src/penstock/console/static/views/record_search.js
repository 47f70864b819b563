// Records of several partitions, or those that a filter matches: a list that grows page by page.
//
// The server reports how far it scanned. A search that stopped before the end goes on by itself
// until its page is full; it can be stopped, and its address continues where it was.

import { path, post } from "../api.js";
import { fill, h } from "../dom.js";
import { count, plural, time } from "../format.js";
import { empty } from "../states.js";
import { VirtualTable } from "../table.js";
import { RECORD_COLUMNS, recordId } from "./record_columns.js";

const PAGE = 100;
const ROWS_MAX = 20_000;
const NEAR_ROWS = 20;
// Why the server ended a request; the list asks again by itself until its page is full.
const REASONS = { limit: "with a full page", time: "at its time limit", scan_max: "at its limit of offsets" };

export class RecordSearch {
  /**
   * @param {{topic: string, request: any, cursor: string | null, signal: AbortSignal, onOpen: (row: any) => void,
   *   onProblem: (error: Error | null) => void, onLoaded: () => void, onCursor: (cursor: string | null) => void}} options
   */
  constructor({ topic, request, cursor, signal, onOpen, onProblem, onLoaded, onCursor }) {
    this.topic = topic;
    this.request = request;
    this.cursor = cursor;
    this.signal = signal;
    this.onProblem = onProblem;
    this.onLoaded = onLoaded;
    this.onCursor = onCursor;
    this.records = [];
    this.running = null;
    this.ended = false;
    this.paused = false;
    this.status = h("div", { class: "row search-status", role: "status" });
    this.table = new VirtualTable({
      label: request.filter ? "Matching records" : "Records",
      columns: RECORD_COLUMNS,
      rowAt: (index) => this.records[index],
      onOpen,
      onRange: (_, end) => this.onRange(end),
      empty: () => this.message(),
    });
    this.node = h("div", { class: "fills" }, this.status, this.table.node);
    this.table.setTotal(0);
    this.more();
  }

  message() {
    if (!this.ended) return h("p", { class: "state" }, this.paused ? "The search was stopped." : "Searching…");
    if (this.request.filter) return h("p", { class: "state empty" }, "No record in this range matches the filter.");
    return empty("There are no records here.", "Produce one in the tab Produce, or on the command line:", `echo 'key:{"n": 1}' | penstock produce ${this.topic} -K :`);
  }

  onRange(end) {
    const wants = end >= this.records.length - NEAR_ROWS && this.records.length > 0;
    if (wants && !this.running && !this.ended && !this.paused && this.records.length < ROWS_MAX) this.more();
  }

  async more() {
    const controller = new AbortController();
    this.running = controller;
    this.paused = false;
    this.showStatus();
    const wanted = this.records.length + PAGE;
    try {
      while (this.records.length < wanted && !this.ended && !controller.signal.aborted) await this.page(controller.signal);
      this.onProblem(null);
    } catch (error) {
      if (this.signal.aborted) return;
      if (!controller.signal.aborted) {
        this.paused = true;
        this.onProblem(error);
      }
    } finally {
      if (this.running === controller) this.running = null;
    }
    if (this.signal.aborted) return;
    this.showStatus();
    this.table.setTotal(this.records.length);
  }

  async page(signal) {
    const from = this.cursor ? { cursor: this.cursor } : this.request.from;
    const asked = this.cursor;
    const answer = await post(path`/topics/${this.topic}/search`, { ...this.request, from, limit: PAGE }, AbortSignal.any([this.signal, signal]));
    this.records.push(...answer.records);
    this.onLoaded();
    this.last = answer;
    this.cursor = answer.cursor;
    this.ended = answer.stopped === "end" || answer.cursor === null;
    if (this.request.filter) this.onCursor(asked);
    this.showStatus();
    this.table.setTotal(this.records.length);
  }

  stop() {
    this.paused = true;
    this.running?.abort();
  }

  showStatus() {
    const { last } = this;
    const parts = [];
    if (last) {
      const share = Number(last.total) ? Math.floor((100 * Number(last.scanned)) / Number(last.total)) : 100;
      parts.push(`Scanned ${count(last.scanned)} of ${plural(last.total, "offset")} (${share} %)`);
      if (this.request.filter) parts.push(`${count(last.matched)} matched`);
      if (this.ended) parts.push("everything in the range was scanned");
      else {
        if (last.reached) parts.push(`at partition ${last.reached.partition}, offset ${count(last.reached.offset)} of ${time(last.reached.timestamp)}`);
        if (!this.running) parts.push(this.paused ? "stopped" : "more below", `the last request ended ${REASONS[last.stopped] ?? last.stopped}`);
      }
    }
    const button = this.running
      ? h("button", { class: "small", onclick: () => this.stop() }, "Stop")
      : !this.ended && h("button", { class: "small", onclick: () => this.more() }, "Search further");
    fill(this.status, h("span", { class: "muted" }, parts.join(" · ")), button);
  }

  mark(id) {
    const index = this.records.findIndex((row) => recordId(row) === id);
    this.table.opened = index < 0 ? null : index;
    this.table.render();
  }

  neighbour(id, step) {
    const index = this.records.findIndex((row) => recordId(row) === id) + step;
    if (index < 0 || index >= this.records.length) return null;
    this.table.reveal(index);
    return recordId(this.records[index]);
  }
}
