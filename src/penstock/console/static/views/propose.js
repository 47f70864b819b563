// The verdict on a proposed version: what breaks, an event that shows it, who must upgrade first.

import { path, post, read } from "../api.js";
import { field, select } from "../dialog.js";
import { fill, h } from "../dom.js";
import { coloured } from "../json_view.js";
import { ROOT, place } from "../router.js";
import { badge, failed, loaded, panel } from "../states.js";
import { schemaText, warnings } from "./schema.js";

const VERDICTS = {
  ok: ["good", "Compatible. The registry would accept this version."],
  breaking: ["bad", "Breaking. The registry would refuse this version."],
  invalid: ["bad", "This is not a valid schema."],
};

export function show(context) {
  const { subject } = context.params;
  const holder = loaded({
    what: "the subject", signal: context.signal,
    load: (signal) => read(path`/console/api/schemas/${subject}`, signal),
    render: (found) => form(context, subject, found),
  });
  const title = h("div", { class: "title" }, h("a", { class: "crumb", href: `${ROOT}/schemas` }, "Schemas"), h("span", { class: "muted" }, "/"),
    h("a", { class: "crumb mono-title", href: place`/schemas/${subject}` }, subject), h("span", { class: "muted" }, "/"), h("h1", null, "Check a change"));
  return { title: `Check ${subject}`, node: h("div", { class: "page" }, title, holder.node) };
}

function form(context, subject, found) {
  const latest = found.versions.at(-1);
  const text = h("textarea", { rows: "22", spellcheck: "false", value: schemaText(latest.schema) });
  const type = select(["AVRO", "JSON", "PROTOBUF"], found.type);
  const result = h("div", { role: "status" }, h("p", { class: "state" }, "Change the schema, then check it. Nothing is registered."));
  const check = h("button", { class: "primary" }, "Check");
  check.addEventListener("click", async () => {
    check.disabled = true;
    try {
      const references = latest.references?.length ? { references: latest.references } : {};
      fill(result, verdict(await post(path`/console/api/schemas/${subject}/propose`, { schema: text.value, schemaType: type.value, ...references }, context.signal)));
    } catch (error) {
      if (!context.signal.aborted) fill(result, failed("The schema cannot be checked.", error));
    } finally {
      check.disabled = false;
    }
  });
  return h("div", { class: "columns" },
    panel("Proposed version", field("Type", type), field("Schema", text, `Starts as version ${latest.version}`), check),
    panel("Verdict", result));
}

function verdict(answer) {
  const [tone, summary] = VERDICTS[answer.verdict] ?? ["warn", answer.verdict];
  const findings = answer.findings.map((finding) => h("li", null,
    h("div", null, finding.text, " ", finding.rule && badge(finding.rule)),
    finding.breaks && h("p", { class: "bad-text" }, sentence(finding.breaks)),
    finding.remedy && h("p", { class: "muted" }, sentence(finding.remedy)),
    counterExample(finding.counter_example)));
  return h("div", { class: "stack tight" },
    h("div", { class: `verdict ${tone}` }, answer.known ? "This schema is registered already." : summary),
    answer.mode && h("p", { class: "muted" }, `Checked under ${answer.mode}.`),
    findings.length > 0 && h("ul", { class: "findings" }, findings),
    answer.upgrade_order && [h("h3", null, "Upgrade order"), h("p", null, answer.upgrade_order)], warnings(answer.warnings));
}

/** An event that one side writes and the other cannot read. */
function counterExample(example) {
  if (!example) return null;
  return [
    h("p", { class: "muted" }, `An event of ${example.writer} that ${example.reader} cannot read${example.failure ? `: ${example.failure}` : ""}`),
    h("pre", { tabindex: "0" }, coloured(schemaText(String(example.event)))),
  ];
}

const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}${text.endsWith(".") ? "" : "."}`;
