// Ctrl K: search over topics, groups and subjects, and go there.

import { read, withQuery } from "./api.js";
import { debounced, fill, h } from "./dom.js";
import { icon } from "./icons.js";
import { ROOT, place } from "./router.js";

const LIMIT = 30;
const PLACES = {
  topic: (name) => place`/topics/${name}/records`,
  group: (name) => place`/groups/${name}`,
  subject: (name) => place`/schemas/${name}`,
};
const ICONS = { topic: "topics", group: "groups", subject: "schemas", page: "overview" };
const PAGES = ["Overview", "Topics", "Groups", "Schemas", "Quarantine", "Pipelines", "SQL"];

/** Pages whose name has the text in it. */
function pages(text) {
  const wanted = text.toLowerCase();
  return PAGES.filter((name) => name.toLowerCase().includes(wanted)).map((name) => ({
    kind: "page", name, address: ROOT + (name === "Overview" ? "" : `/${name.toLowerCase()}`),
  }));
}

/** Opens the search, unless it is open. */
export function openPalette(router) {
  if (document.querySelector("dialog[open]")) return;
  let results = [];
  let chosen = 0;
  let running = new AbortController();
  const input = h("input", {
    type: "text", role: "combobox", "aria-expanded": "true", "aria-controls": "palette-results", "aria-autocomplete": "list",
    "aria-label": "Search topics, groups and subjects", placeholder: "Search topics, groups, subjects", autocomplete: "off", spellcheck: "false",
  });
  const list = h("div", { id: "palette-results", role: "listbox", "aria-label": "Results" });
  const note = h("p", { class: "note muted", role: "status" });
  const dialog = h("dialog", { class: "palette", "aria-label": "Search" }, h("div", { class: "line" }, icon("search"), input), list, note);

  function choose(index) {
    chosen = Math.min(Math.max(0, index), Math.max(0, results.length - 1));
    for (const [i, option] of [...list.children].entries()) option.setAttribute("aria-selected", String(i === chosen));
    const option = list.children[chosen];
    if (option) {
      input.setAttribute("aria-activedescendant", option.id);
      option.scrollIntoView({ block: "nearest" });
    } else {
      input.removeAttribute("aria-activedescendant");
    }
  }

  function go(result) {
    dialog.close();
    router.navigate(result.address);
  }

  function show(next, text) {
    results = next;
    fill(list, results.map((result, i) =>
      h("div", { role: "option", id: `palette-${i}`, "aria-selected": "false", onclick: () => go(result), onpointermove: () => i !== chosen && choose(i) },
        icon(ICONS[result.kind]), h("span", { class: "mono name" }, result.name), h("span", { class: "muted" }, result.kind))));
    fill(note, text);
    choose(0);
  }

  async function search() {
    running.abort();
    running = new AbortController();
    const { signal } = running;
    const text = input.value.trim();
    const own = pages(text);
    if (!text) {
      show(own, "");
      return;
    }
    try {
      const answer = await read(withQuery("/search", { q: text, limit: LIMIT }), signal);
      const found = answer.results.map(({ kind, name }) => ({ kind, name, address: PLACES[kind](name) }));
      show([...found, ...own], found.length + own.length ? "" : "Nothing has this text in its name.");
    } catch (error) {
      if (!signal.aborted) show(own, `Cannot search: ${error.message}`);
    }
  }

  input.addEventListener("input", debounced(search, 80));
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") choose(chosen + 1);
    else if (event.key === "ArrowUp") choose(chosen - 1);
    else if (event.key === "Enter" && results[chosen]) go(results[chosen]);
    else return;
    event.preventDefault();
  });
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  dialog.addEventListener("close", () => {
    running.abort();
    dialog.remove();
  });
  document.body.append(dialog);
  dialog.showModal();
  search();
}
