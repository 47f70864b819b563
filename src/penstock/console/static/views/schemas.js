// All subjects of the registry.

import { asObjects, read } from "../api.js";
import { h } from "../dom.js";
import { count } from "../format.js";
import { listPage } from "../list.js";
import { place } from "../router.js";
import { badge, empty } from "../states.js";
import { byNumber, byText } from "../table.js";

const COLUMNS = [
  { name: "subject", label: "Subject", width: "minmax(220px, 1fr)", mono: true, compare: byText("subject"), cell: (row) => h("a", { href: place`/schemas/${row.subject}`, tabindex: "-1" }, row.subject) },
  { name: "type", label: "Type", width: "110px", compare: byText("type"), cell: (row) => badge(row.type) },
  { name: "versions", label: "Versions", width: "96px", right: true, compare: byNumber("versions"), cell: (row) => count(row.versions) },
  { name: "latest_id", label: "Latest id", width: "96px", right: true, compare: byNumber("latest_id"), cell: (row) => row.latest_id },
  { name: "compatibility", label: "Compatibility", width: "180px", compare: byText("compatibility"), cell: (row) => row.compatibility },
  { name: "readers", label: "Readers", width: "96px", right: true, compare: byNumber("readers"), cell: (row) => count(row.readers), hint: "Declared readers, which a change must not break" },
];

export function show(context) {
  const page = listPage({
    context, what: "subjects", word: "subject", columns: COLUMNS, sort: "subject", every_ms: 15_000,
    load: async (signal) => asObjects(await read("/console/api/schemas", signal)),
    text: (row) => row.subject,
    open: (row) => context.router.navigate(place`/schemas/${row.subject}`),
    empty: () => empty("The registry has no subjects.", "A subject holds the versions of one schema.", "penstock schema register orders-value order.avsc"),
  });
  const node = h("div", { class: "page whole" }, h("div", { class: "title" }, h("h1", null, "Schemas")), page.node);
  return { title: "Schemas", node, update: page.update };
}
