// The frame around every view: header, navigation, the place of the view, keys, server state.

import { read } from "./api.js";
import { fill, h, setText } from "./dom.js";
import { icon } from "./icons.js";
import { live } from "./live.js";
import { openPalette } from "./palette.js";
import { nextTheme, onPreference, preferences, switchZone } from "./preferences.js";
import { ROOT, Router } from "./router.js";
import { failed, loading } from "./states.js";

const SECTIONS = [
  ["overview", "Overview", ""],
  ["topics", "Topics", "/topics"],
  ["groups", "Groups", "/groups"],
  ["schemas", "Schemas", "/schemas"],
  ["quarantine", "Quarantine", "/quarantine"],
  ["pipelines", "Pipelines", "/pipelines"],
  ["sql", "SQL", "/sql"],
];

/** The modules of a topic's tabs; each exports `show(context)`. */
const topicTab = (name, load) => async () => {
  const [{ topicPage }, tab] = await Promise.all([import("./views/topic.js"), load()]);
  return { show: (context) => topicPage(context, name, tab.show) };
};

const ROUTES = [
  ["", () => import("./views/overview.js")],
  ["/topics", () => import("./views/topics.js")],
  ["/topics/:topic", topicTab("records", () => import("./views/records.js"))],
  ["/topics/:topic/records", topicTab("records", () => import("./views/records.js"))],
  ["/topics/:topic/live", topicTab("live", () => import("./views/tail.js"))],
  ["/topics/:topic/partitions", topicTab("partitions", () => import("./views/partitions.js"))],
  ["/topics/:topic/config", topicTab("config", () => import("./views/configs.js"))],
  ["/topics/:topic/groups", topicTab("groups", () => import("./views/topic_groups.js"))],
  ["/topics/:topic/produce", topicTab("produce", () => import("./views/produce.js"))],
  ["/groups", () => import("./views/groups.js")],
  ["/groups/:group", () => import("./views/group.js")],
  ["/groups/:group/reset", () => import("./views/reset.js")],
  ["/schemas", () => import("./views/schemas.js")],
  ["/schemas/:subject", () => import("./views/schema.js")],
  ["/schemas/:subject/propose", () => import("./views/propose.js")],
  ["/quarantine", () => import("./views/quarantine.js")],
  ["/quarantine/:topic", () => import("./views/quarantined.js")],
  ["/pipelines", () => import("./views/pipelines.js")],
  ["/sql", () => import("./views/sql.js")],
];

const THEME_ICONS = { system: "auto", light: "sun", dark: "moon" };
const main = h("main", { id: "main", tabindex: "-1" });
const navigation = h("nav", { "aria-label": "Sections" });
const facts = h("div", { class: "facts" });
const connection = h("span", { class: "connection", role: "status" });
let leaving = new AbortController();
let shown = { key: "", view: null };

/** What the server said of itself; filled by `readInfo`. */
const info = { read_only: false, panels: {}, sql: true, kind: "", cluster_id: "", version: "" };

function header() {
  const zone = h("button", { class: "quiet", title: "Switch between UTC and local time" });
  const theme = h("button", { class: "quiet", title: "Switch theme" });
  const showChoices = () => {
    fill(zone, preferences.zone === "utc" ? "UTC" : "Local");
    zone.setAttribute("aria-label", `Time zone: ${preferences.zone === "utc" ? "UTC" : "local"}`);
    fill(theme, icon(THEME_ICONS[preferences.theme]));
    theme.setAttribute("aria-label", `Theme: ${preferences.theme}`);
  };
  zone.addEventListener("click", switchZone);
  theme.addEventListener("click", nextTheme);
  onPreference((name) => {
    showChoices();
    if (name === "zone") router.route(true);
  });
  showChoices();
  const search = h("button", { class: "search-button", onclick: () => openPalette(router) }, icon("search"), h("span", null, "Search"), h("kbd", null, "Ctrl K"));
  return h(
    "header",
    null,
    h("a", { class: "brand", href: ROOT }, h("img", { src: "/console/static/icon.svg", alt: "", width: "22", height: "22" }), "Penstock"),
    facts, h("span", { class: "space" }), connection, search, zone, theme,
  );
}

function showNavigation() {
  const here = location.pathname.slice(ROOT.length).split("/")[1] ?? "";
  const links = SECTIONS.filter(([name]) => name !== "sql" || info.sql).map(([name, label, path]) => {
    const current = path === `/${here}` || (path === "" && here === "");
    return h("a", { href: ROOT + path, "aria-current": current ? "page" : null }, icon(name), label);
  });
  const more = h("div", { class: "foot" }, h("a", { href: "/docs", target: "_blank" }, "API reference", icon("external")), info.version && h("span", { class: "muted" }, `Version ${info.version}`));
  fill(navigation, h("div", { class: "links" }, links), more);
}

async function readInfo() {
  try {
    Object.assign(info, await read("/console/api/info"));
  } catch (error) {
    if (error.status === undefined) throw error;
    setTimeout(readInfo, 3000);
    return;
  }
  document.documentElement.dataset.readOnly = String(info.read_only);
  fill(
    facts,
    h("span", { class: "muted", title: "The id of the cluster" }, `${info.kind === "kafka" ? "Apache Kafka" : "Cluster"} ${info.cluster_id}`),
    info.read_only && h("span", { class: "badge warn" }, "Read only"),
  );
  showNavigation();
}

/** Shows the view of an address; keeps it if only the query changed and the view can follow. */
async function onRoute(load, params, fresh) {
  const key = location.pathname;
  const query = new URLSearchParams(location.search);
  showNavigation();
  if (!fresh && shown.key === key && shown.view?.update) {
    shown.view.update(query);
    return;
  }
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  shown = { key, view: null };
  if (!load) {
    showMissing();
    return;
  }
  const wait = setTimeout(() => signal.aborted || fill(main, loading()), 200);
  try {
    const { show } = await load();
    if (signal.aborted) return;
    const context = {
      params, query, signal, info, router,
      setQuery: (changes, push) => signal.aborted || router.setQuery(changes, push),
    };
    const view = show(context);
    shown = { key, view };
    document.title = `${view.title} – Penstock`;
    fill(main, view.node);
    if (!document.activeElement || document.activeElement === document.body) main.focus({ preventScroll: true });
  } catch (error) {
    if (signal.aborted) return;
    fill(main, failed("This page cannot be shown.", error, () => location.reload()));
    throw error;
  } finally {
    clearTimeout(wait);
  }
}

function showMissing() {
  document.title = "Not found – Penstock";
  fill(main, h("div", { class: "page" }, h("h1", null, "There is no such page"), h("p", null, "The address may be mistyped. ", h("a", { href: ROOT }, "Go to the overview"))));
}

function onKey(event) {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    openPalette(router);
    return;
  }
  const typing = event.target instanceof Element && event.target.closest("input, textarea, select, dialog");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
    const filter = document.querySelector("[data-slash]");
    if (filter instanceof HTMLElement) {
      event.preventDefault();
      filter.focus();
    }
  }
}

function showLogin() {
  fill(main, h("div", { class: "page" }, h("h1", null, "Log in"), h("p", null, "This server requires a login, and the request had none. Log in with the address your operator gave you, then load this page again.")));
}

const router = new Router(ROUTES, onRoute);
const skip = h("a", { class: "skip", href: "#main" }, "Skip to content");
skip.addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
document.body.prepend(skip, header(), h("div", { class: "frame" }, navigation, main));
document.addEventListener("keydown", onKey);
document.addEventListener("penstock:login", showLogin);
live.listeners.add((state) => {
  connection.className = `connection ${state}`;
  setText(connection, { live: "Live", connecting: "Connecting…", idle: "" }[state] ?? "");
});
showNavigation();
readInfo();
router.route();
