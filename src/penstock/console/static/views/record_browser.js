// The records of one partition as a virtual list by offset: any offset is one request away.

import { path, post } from "../api.js";
import { h } from "../dom.js";
import { empty } from "../states.js";
import { VirtualTable } from "../table.js";
import { PARTITION_COLUMNS, recordId } from "./record_columns.js";

const BLOCK = 100;
const BLOCKS_MAX = 60;
const LOADING_MAX = 3;

export class RecordBrowser {
  /**
   * @param {{topic: string, partition: number, earliest: bigint, latest: bigint, newestFirst: boolean, signal: AbortSignal,
   *   onOpen: (row: any) => void, onProblem: (error: Error | null) => void, onLoaded: () => void}} options
   */
  constructor({ topic, partition, earliest, latest, newestFirst, signal, onOpen, onProblem, onLoaded }) {
    this.topic = topic;
    this.partition = partition;
    this.earliest = earliest;
    this.latest = latest;
    this.newestFirst = newestFirst;
    this.signal = signal;
    this.onProblem = onProblem;
    this.onLoaded = onLoaded;
    this.blocks = new Map(); // block number as text: records by offset; the least used comes first
    this.running = new Map(); // block number as text: AbortController
    this.table = new VirtualTable({
      label: `Records of partition ${partition}`,
      columns: PARTITION_COLUMNS,
      rowAt: (index) => this.rowAt(index),
      onOpen: (row) => row.gap || onOpen(row),
      onRange: (first, end) => this.load(first, end),
      empty: () => empty("This partition has no records.", "Produce one in the tab Produce, or on the command line:", `echo 'key:{"n": 1}' | penstock produce ${topic} -K :`),
    });
    this.node = h("div", { class: "fills" }, this.table.node);
    this.table.setTotal(Number(latest - earliest));
  }

  offsetAt(index) {
    return this.newestFirst ? this.latest - 1n - BigInt(index) : this.earliest + BigInt(index);
  }

  indexOf(offset) {
    return Number(this.newestFirst ? this.latest - 1n - offset : offset - this.earliest);
  }

  rowAt(index) {
    const offset = this.offsetAt(index);
    const block = this.blocks.get(String(offset / BigInt(BLOCK)));
    if (!block) return undefined;
    return block.get(String(offset)) ?? { gap: true, partition: this.partition, offset: String(offset) };
  }

  /** Loads the blocks in sight, and stops loading those that are not. */
  load(first, end) {
    if (end <= first || !this.node.isConnected) return;
    const ends = [this.offsetAt(first), this.offsetAt(end - 1)];
    const [low, high] = (this.newestFirst ? ends.reverse() : ends).map((offset) => offset / BigInt(BLOCK));
    for (const [name, controller] of this.running) {
      if (BigInt(name) < low || BigInt(name) > high) {
        controller.abort();
        this.running.delete(name);
      }
    }
    for (let number = low; number <= high && this.running.size < LOADING_MAX; number += 1n) {
      const name = String(number);
      if (!this.blocks.has(name) && !this.running.has(name)) this.loadBlock(name, number);
    }
  }

  async loadBlock(name, number) {
    const controller = new AbortController();
    this.running.set(name, controller);
    const from = number * BigInt(BLOCK) < this.earliest ? this.earliest : number * BigInt(BLOCK);
    const until = (number + 1n) * BigInt(BLOCK);
    const body = {
      partitions: [this.partition], from: { offset: String(from) }, until: { offset: String(until < this.latest ? until : this.latest) },
      direction: "forward", limit: BLOCK,
    };
    try {
      const answer = await post(path`/topics/${this.topic}/search`, body, AbortSignal.any([this.signal, controller.signal]));
      this.blocks.set(name, new Map(answer.records.map((record) => [record.offset, record])));
      if (this.blocks.size > BLOCKS_MAX) this.blocks.delete(this.blocks.keys().next().value);
      this.onProblem(null);
      this.onLoaded();
    } catch (error) {
      if (this.signal.aborted || controller.signal.aborted) return;
      this.onProblem(error);
      return;
    } finally {
      if (this.running.get(name) === controller) this.running.delete(name);
    }
    this.table.render();
  }

  /** Shows an offset at the top; one outside the partition shows its nearest end. */
  seek(offset) {
    const last = this.latest - 1n;
    const near = offset < this.earliest ? this.earliest : offset > last ? last : offset;
    this.table.cursor = this.indexOf(near);
    this.table.reveal(this.indexOf(near), true);
  }

  /** Marks the record that is shown beside the list. */
  mark(id) {
    const [partition, offset] = (id ?? "").split(":");
    this.table.opened = id && Number(partition) === this.partition ? this.indexOf(BigInt(offset)) : null;
    this.table.render();
  }

  /** The record after or before one that is shown; `step` is 1 or -1 in the order of the list. */
  neighbour(id, step) {
    const index = this.indexOf(BigInt(id.split(":")[1])) + step;
    const row = index >= 0 && index < this.table.total ? this.rowAt(index) : undefined;
    this.table.reveal(Math.min(Math.max(0, index), this.table.total - 1));
    return row && !row.gap ? recordId(row) : null;
  }
}
