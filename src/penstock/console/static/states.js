// What a panel shows instead of its content: loading, empty, failed, stale, not available.

import { append, fill, h } from "./dom.js";
import { duration } from "./format.js";
import { icon } from "./icons.js";

const LOADING_AFTER_MS = 200;
const AGE_EVERY_MS = 1000;

/** A line that appears if loading takes long. */
export function loading(what = "Loading…") {
  const line = h("p", { class: "state loading", role: "status" });
  setTimeout(() => fill(line, h("span", { class: "spinner", "aria-hidden": "true" }), what), LOADING_AFTER_MS);
  return line;
}

/** What would be here, and the command that makes it. */
export function empty(title, text = "", command = "") {
  return h("div", { class: "state empty" }, h("strong", null, title), text && h("p", null, text), command && commandLine(command));
}

/** A command to copy. */
export function commandLine(command) {
  return h("div", { class: "command" }, h("code", null, command), copyButton(() => command));
}

/** What failed, why, and a way to try again. */
export function failed(what, error, retry = null) {
  return h(
    "div",
    { class: "state failed", role: "alert" },
    h("strong", null, what),
    h("p", null, error.message),
    retry && h("button", { onclick: retry }, "Try again"),
  );
}

export const unavailable = () => h("p", { class: "state" }, "Not available on this cluster.");

/** Copies a text, and says so on the button. */
export function copyButton(text, label = "Copy") {
  const word = h("span", null, label);
  const button = h("button", { class: "quiet", type: "button" }, icon("copy"), word);
  button.addEventListener("click", async () => {
    await copyText(text());
    word.textContent = "Copied";
    setTimeout(() => (word.textContent = label), 1500);
  });
  return button;
}

/** Copies a text; without permission for the clipboard, through a selection. */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = h("textarea", { class: "offscreen", "aria-hidden": "true", value: text });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

/**
 * A place that loads, shows, and keeps what it showed while a later load fails.
 *
 * `render(value)` returns a node, or null if it changed its node in place. Loads again every
 * `every_ms` while the page is visible.
 * @param {{what: string, load: (signal: AbortSignal) => Promise<any>, render: (value: any) => Node | null,
 *   signal: AbortSignal, every_ms?: number, fills?: boolean}} options
 */
export function loaded({ what, load, render, signal, every_ms = 0, fills = false }) {
  const content = h("div", { class: fills ? "content fills" : "content" }, loading());
  const notice = h("div", { class: "notice", role: "status" });
  const node = h("div", { class: fills ? "loaded fills" : "loaded" }, notice, content);
  let shownAt = 0;
  let error = null;
  let running = null;

  function showNotice() {
    if (!error || !shownAt) {
      if (notice.childNodes.length) fill(notice);
      node.classList.remove("stale");
      return;
    }
    node.classList.add("stale");
    const age = duration((Date.now() - shownAt) / 1000);
    fill(notice, h("span", null, `Not updated for ${age}. ${error.message}`), h("button", { class: "quiet", onclick: reload }, "Try again"));
  }

  async function reload() {
    running?.abort();
    const own = new AbortController();
    running = own;
    try {
      const value = await load(AbortSignal.any([signal, own.signal]));
      if (own.signal.aborted || signal.aborted) return;
      error = null;
      shownAt = Date.now();
      const shown = render(value);
      if (shown) fill(content, shown);
    } catch (failure) {
      if (own.signal.aborted || signal.aborted) return;
      if (failure.status === undefined) throw failure;
      error = failure;
      if (!shownAt) fill(content, failed(`Cannot load ${what}.`, failure, reload));
    } finally {
      if (running === own) running = null;
    }
    showNotice();
  }

  reload();
  const timers = [setInterval(showNotice, AGE_EVERY_MS)];
  if (every_ms) {
    timers.push(setInterval(() => document.hidden || running || reload(), every_ms));
  }
  signal.addEventListener("abort", () => timers.forEach(clearInterval));
  return { node, reload };
}

/** A panel with a heading. */
export function panel(title, ...children) {
  const section = h("section", { class: "panel" }, title && h("h2", null, title));
  append(section, children);
  return section;
}

/** A word in a coloured frame; the word says it, the colour helps. */
export const badge = (text, tone = "") => h("span", { class: `badge ${tone}` }, text);
