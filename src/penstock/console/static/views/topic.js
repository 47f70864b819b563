// One topic: its name, its tabs, and the tab that the address names.

import { path, read, remove } from "../api.js";
import { confirmByName, toast } from "../dialog.js";
import { fill, h } from "../dom.js";
import { bytes, plural, short } from "../format.js";
import { ROOT, place } from "../router.js";

const TABS = [
  ["records", "Records"], ["live", "Live"], ["partitions", "Partitions"], ["config", "Config"],
  ["groups", "Groups"], ["produce", "Produce"],
];

/**
 * @param {import("../router.js").Context} context
 * @param {string} tab
 * @param {(context: any) => {node: Node, update?: (query: URLSearchParams) => void}} showTab
 */
export function topicPage(context, tab, showTab) {
  const { topic } = context.params;
  const facts = h("span", { class: "muted nowrap" });
  const tabs = TABS.filter(([name]) => name !== "produce" || !context.info.read_only);
  const links = tabs.map(([name, label]) =>
    h("a", { href: place`/topics/${topic}/${name}`, "aria-current": name === tab ? "page" : null }, label));
  const schemas = h("span", { class: "row" });
  const removal = h("button", { class: "danger", "data-changes": true, onclick: () => removeTopic(context, topic) }, "Delete topic");
  const title = h("div", { class: "title" },
    h("a", { class: "crumb", href: `${ROOT}/topics` }, "Topics"), h("span", { class: "muted" }, "/"), h("h1", { class: "mono-title" }, topic),
    facts, schemas, h("span", { class: "space" }), removal);
  showFacts(context, topic, facts, schemas);
  const view = showTab(context);
  const node = h("div", { class: "page whole" }, title, h("nav", { class: "tabs", "aria-label": "Parts of the topic" }, links), view.node);
  return { title: topic, node, update: view.update };
}

async function showFacts(context, topic, facts, schemas) {
  try {
    const found = await read(path`/console/api/topics/${topic}`, context.signal);
    const sizes = found.partitions.map((each) => each.bytes);
    const total = sizes.every((size) => size !== null) ? bytes(sizes.reduce((sum, size) => sum + Number(size), 0)) : null;
    const records = found.partitions.reduce((sum, each) => sum + BigInt(each.latest) - BigInt(each.earliest), 0n);
    fill(facts, [plural(found.partitions.length, "partition"), `${short(records)} records`, total].filter(Boolean).join(" · "));
    const subjects = Object.values(found.subjects ?? {}).filter(Boolean);
    fill(schemas, subjects.map((name) => h("a", { class: "badge", href: place`/schemas/${name}` }, name)));
  } catch (error) {
    if (error.status === undefined && !context.signal.aborted) throw error;
  }
}

function removeTopic({ router }, topic) {
  confirmByName({
    title: `Delete ${topic}`, name: topic, action: "Delete topic",
    text: "All its records are deleted on all brokers. This cannot be undone.",
    onSubmit: async () => {
      await remove(path`/topics/${topic}`);
      toast(`Deleted ${topic}.`);
      router.navigate(`${ROOT}/topics`);
    },
  });
}
