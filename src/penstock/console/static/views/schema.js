// One subject: two versions side by side with the differences in words, readers, usage.

import { path, read, withQuery } from "../api.js";
import { select } from "../dialog.js";
import { fill, h } from "../dom.js";
import { count, time } from "../format.js";
import { coloured } from "../json_view.js";
import { ROOT, place } from "../router.js";
import { badge, copyButton, empty, loaded, panel } from "../states.js";
import { plainTable } from "../table.js";

export function show(context) {
  const { subject } = context.params;
  let found = null;
  const content = h("div", { class: "stack" });
  const showVersions = (query) => fill(content, versions(context, found, query), readers(found), usage(found));
  const holder = loaded({
    what: "the subject", signal: context.signal,
    load: (signal) => read(path`/console/api/schemas/${subject}`, signal),
    render: (answer) => {
      found = answer;
      showVersions(context.query);
      return content;
    },
  });
  const propose = h("a", { class: "button", href: place`/schemas/${subject}/propose` }, "Check a change");
  const title = h("div", { class: "title" }, h("a", { class: "crumb", href: `${ROOT}/schemas` }, "Schemas"), h("span", { class: "muted" }, "/"), h("h1", { class: "mono-title" }, subject), h("span", { class: "space" }), propose);
  return { title: subject, node: h("div", { class: "page" }, title, holder.node), update: (query) => found && showVersions(query) };
}

/** A schema as it is read: indented if it is JSON. */
export function schemaText(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function versions(context, found, query) {
  const numbers = found.versions.map((each) => each.version);
  const to = Number(query.get("to")) || numbers.at(-1);
  const from = Number(query.get("from")) || (numbers[numbers.indexOf(to) - 1] ?? to);
  const [left, right] = [from, to].map((number) => found.versions.find((each) => each.version === number) ?? found.versions.at(-1));
  const choice = (name, value) => {
    const control = select(numbers.map((number) => [number, `Version ${number}`]), value, { "aria-label": name === "from" ? "Earlier version" : "Later version" });
    control.addEventListener("change", () => context.setQuery({ from, to, [name]: control.value }, true));
    return control;
  };
  const head = h("div", { class: "row" }, badge(found.type), badge(`compatibility ${found.compatibility}`), h("span", { class: "space" }), numbers.length > 1 && [choice("from", from), "to", choice("to", to)]);
  if (left === right) {
    return panel("Versions", head, h("div", { class: "stack tight" }, versionHead(right), h("pre", { tabindex: "0" }, coloured(schemaText(right.schema)))));
  }
  const [before, after] = [left, right].map((each) => schemaText(each.schema).split("\n"));
  return panel("Versions", head, changes(context, found.subject, from, to), h("div", { class: "diff" }, sideBySide(left, before, after), sideBySide(right, after, before)));
}

const versionHead = (version) => h("div", { class: "row" }, h("strong", null, `Version ${version.version}`), badge(`id ${version.id}`), h("span", { class: "space" }), copyButton(() => version.schema));

/** A version whose lines that the other one does not have are marked. */
function sideBySide(version, lines, others) {
  const known = new Set(others.map((line) => line.trim().replace(/,$/, "")));
  const shown = lines.map((line) => (known.has(line.trim().replace(/,$/, "")) ? [coloured(line), "\n"] : h("span", { class: "changed" }, coloured(line))));
  return h("div", { class: "stack tight" }, versionHead(version), h("pre", { tabindex: "0" }, shown));
}

function changes(context, subject, from, to) {
  const holder = loaded({
    what: "the differences", signal: context.signal,
    load: (signal) => read(withQuery(path`/console/api/schemas/${subject}/diff`, { from, to }), signal),
    render: (answer) => h("div", { class: "stack tight" }, changeList(answer.changes),
      answer.upgrade_order && h("p", null, h("strong", null, "Upgrade order: "), answer.upgrade_order), warnings(answer.warnings)),
  });
  return holder.node;
}

/** What is allowed, and still worth a look. */
export function warnings(rows) {
  if (!rows?.length) return null;
  const columns = [
    { label: "Where", name: "path", mono: true, cell: (row) => row.path },
    { label: "Worth a look", name: "message", cell: (row) => row.message },
    { label: "What to do", name: "remedy", cell: (row) => row.remedy ?? "" },
  ];
  return plainTable("Warnings", columns, rows);
}

function changeList(rows) {
  if (!rows.length) return h("div", { class: "verdict good" }, "Each version can read what the other one wrote.");
  const columns = [
    { label: "Where", name: "path", mono: true, cell: (row) => row.path },
    { label: "Change", name: "text", cell: (row) => row.text },
    { label: "Effect", name: "verdict", cell: (row) => h("span", { class: "bad-text" }, row.verdict) },
    { label: "What to do", name: "remedy", cell: (row) => row.remedy ?? "" },
  ];
  return plainTable("Differences", columns, rows);
}

function readers(found) {
  const rows = found.readers;
  if (!rows.length) return panel("Readers", empty("No reader is declared.", "The gate refuses changes that would break a declared reader."));
  const columns = [
    { label: "Reader", name: "name", mono: true, cell: (row) => row.name },
    { label: "Version", name: "version", right: true, cell: (row) => row.version ?? "–" },
    { label: "Fields", name: "fields", mono: true, cell: (row) => row.fields.join(", ") || "all" },
    { label: "Contact", name: "contact", cell: (row) => row.contact ?? "–" },
    { label: "Until", name: "until", cell: (row) => row.until ?? "–" },
  ];
  return panel("Readers", plainTable("Readers", columns, rows));
}

function usage(found) {
  const rows = found.versions.flatMap((version) => (version.usage ?? []).map((use) => ({ ...use, version: version.version })));
  if (!rows.length) return panel("Usage", empty("No use of this subject has been recorded.", "Clients are listed here with the versions they register and read."));
  const columns = [
    { label: "Client", name: "client", mono: true, cell: (row) => row.client },
    { label: "Role", name: "role", cell: (row) => row.role },
    { label: "Version", name: "version", right: true, cell: (row) => row.version },
    { label: "Requests", name: "count", right: true, cell: (row) => count(row.count) },
    { label: "Last seen", name: "last", cell: (row) => time(row.last_seen, { milliseconds: false }) },
  ];
  return panel("Usage", plainTable("Usage", columns, rows));
}
