// The quarantined records of one topic: inspect them, and send them again.

import { path, post, read, withQuery } from "../api.js";
import { field, select, toast } from "../dialog.js";
import { fill, h } from "../dom.js";
import { count, plural, time } from "../format.js";
import { jsonView } from "../json_view.js";
import { live } from "../live.js";
import { ROOT, place } from "../router.js";
import { badge, failed, loaded, panel } from "../states.js";

export function show(context) {
  const { topic } = context.params;
  let reasons = [];
  const content = h("div", { class: "stack" });
  const showAll = (query) => {
    const reason = query.get("reason") ?? "";
    const list = h("div", null);
    const showEvents = () => fill(list, events(context, topic, reasons, reason));
    showEvents();
    fill(content, redrive(context, topic, reasons, reason, showEvents), list);
  };
  const holder = loaded({
    what: "the quarantine", signal: context.signal,
    load: (signal) => read("/quarantine", signal),
    render: ({ topics }) => {
      reasons = topics.find((each) => each.topic === topic)?.reasons ?? [];
      showAll(context.query);
      return content;
    },
  });
  const title = h("div", { class: "title" }, h("a", { class: "crumb", href: `${ROOT}/quarantine` }, "Quarantine"), h("span", { class: "muted" }, "/"), h("h1", { class: "mono-title" }, topic));
  return { title: `Quarantine of ${topic}`, node: h("div", { class: "page" }, title, holder.node), update: showAll };
}

/** What is sent was counted before: another choice is counted first. */
function redrive(context, topic, reasons, reason, onSent) {
  const group = h("input", { type: "text", class: "mono", placeholder: "all groups", autocomplete: "off" });
  const to = h("input", { type: "text", class: "mono", placeholder: topic, autocomplete: "off" });
  const result = h("div", { class: "verdict", role: "status" });
  const showResult = (tone, text) => {
    result.className = `verdict ${tone}`;
    fill(result, text);
  };
  const body = (id) => Object.fromEntries(Object.entries({ group: group.value.trim(), to: to.value.trim(), reason, id }).filter(([, value]) => value));
  const notes = (answer) => [answer.newer_key && `${count(answer.newer_key)} left out: their key has a newer record`, answer.already_sent && `${count(answer.already_sent)} left out: sent before`, answer.unreadable && `${count(answer.unreadable)} left out: still unreadable`, ...(answer.errors ?? [])].filter(Boolean).join("; ");

  async function run(dryRun) {
    const id = `${Date.now()}-${Math.random().toString(36).slice(2)}`;
    const finished = new AbortController();
    if (!dryRun) {
      live.subscribe("redrive", { request: () => ({ id }), onMessage: (message) => message.type === "redrive" && showResult("", `Sending: ${count(message.sent)} of ${count(message.total)}`) }, AbortSignal.any([context.signal, finished.signal]));
    }
    try {
      const answer = await post(`${path`/quarantine/${topic}/redrive`}${dryRun ? "?dry_run=true" : ""}`, body(id), context.signal);
      const sentence = dryRun ? `${plural(answer.would_send, "record")} would be sent.` : `${plural(answer.sent, "record")} sent.`;
      showResult("good", [sentence, notes(answer)].filter(Boolean).join(" "));
      send.disabled = !dryRun || answer.would_send === 0;
      if (!dryRun) {
        toast(sentence);
        onSent();
      }
    } catch (error) {
      if (!context.signal.aborted) showResult("bad", error.message);
    } finally {
      finished.abort();
    }
  }

  const send = h("button", { class: "primary", "data-changes": true, disabled: true, onclick: () => run(false) }, "Send again");
  for (const control of [group, to]) control.addEventListener("input", () => (send.disabled = true));
  const total = reasons.reduce((sum, each) => sum + Number(each.count), 0);
  const chosen = reason ? `Records with the reason ${reason}.` : `All ${plural(total, "record")}.`;
  return panel("Send again", h("p", { class: "muted" }, `${chosen} Records whose key has a newer record in the topic are left out.`),
    h("div", { class: "form-row" }, field("Of group", group), field("To topic", to)), result,
    h("div", { class: "row" }, h("button", { onclick: () => run(true) }, "Show what would be sent"), send));
}

function events(context, topic, reasons, reason) {
  const list = h("div", { class: "stack tight" });
  const more = h("div", null);
  const choice = select([["", "All reasons"], ...reasons.map((each) => [each.reason, `${each.reason} (${count(each.count)})`])], reason, { "aria-label": "Reason" });
  choice.addEventListener("change", () => context.setQuery({ reason: choice.value }, true));
  async function load(cursor) {
    try {
      const answer = await read(withQuery(path`/quarantine/${topic}`, { reason, cursor }), context.signal);
      list.append(...answer.events.map(event));
      const rest = answer.cursor && h("button", { onclick: () => load(answer.cursor) }, "Show more");
      fill(more, rest || (!list.childNodes.length && h("p", { class: "state empty" }, "No record here.")));
    } catch (error) {
      if (!context.signal.aborted) fill(more, failed("Cannot load the records.", error, () => load(cursor)));
    }
  }
  load(null);
  return panel("Records", h("div", { class: "row toolbar" }, choice), list, more);
}

function event(row) {
  const { origin } = row;
  const address = `${place`/topics/${origin.topic}/records`}?partition=${origin.partition}&offset=${origin.offset}&open=${origin.partition}%3A${origin.offset}`;
  return h("details", { class: "event" },
    h("summary", null, h("span", { class: "mono muted nowrap" }, time(row.at)), badge(row.reason, "warn"), h("span", { class: "preview" }, row.message)),
    h("dl", { class: "facts-list" },
      h("dt", null, "Why"), h("dd", null, row.message),
      h("dt", null, "From"), h("dd", null, h("a", { href: address }, `${origin.topic}, partition ${origin.partition}, offset ${count(origin.offset)}`)),
      h("dt", null, "Group"), h("dd", { class: "mono" }, row.group ?? "–")),
    row.value && (typeof row.value.data === "string" ? h("pre", { tabindex: "0" }, row.value.data) : jsonView(row.value.data)));
}
