// Addresses and views. A view is chosen by the path; its filters, sort order and open record are the query.

import { path } from "./api.js";

export const ROOT = "/console";

/**
 * @typedef {object} Context
 * @property {Record<string, string>} params names from the path
 * @property {URLSearchParams} query
 * @property {AbortSignal} signal aborted when the view is left
 * @property {(changes: Record<string, unknown>, push?: boolean) => void} setQuery changes the address; with
 *   `push` it makes an entry in the history, and calls the view's `update`
 * @property {any} info what the server reports of itself
 * @property {Router} router
 */

/** The address of a place in the console; values are encoded segments. */
export const place = (strings, ...values) => ROOT + path(strings, ...values);

export class Router {
  /**
   * @param {Array<[string, () => Promise<any>]>} routes pattern and loader of the view's module
   * @param {(load: (() => Promise<any>) | null, params: Record<string, string>, fresh: boolean) => void} onRoute
   *   `fresh`: build the view again, although its address is the same
   */
  constructor(routes, onRoute) {
    this.routes = routes.map(([pattern, load]) => ({ parts: pattern.split("/"), load }));
    this.onRoute = onRoute;
    addEventListener("popstate", () => this.route());
    document.addEventListener("click", (event) => this.onClick(event));
  }

  navigate(address) {
    history.pushState(null, "", address);
    this.route();
  }

  route(fresh = false) {
    const segments = location.pathname.slice(ROOT.length).replace(/\/$/, "").split("/");
    for (const { parts, load } of this.routes) {
      const params = matched(parts, segments);
      if (params !== null) {
        this.onRoute(load, params, fresh);
        return;
      }
    }
    this.onRoute(null, {}, fresh);
  }

  /** Changes the query; null removes a name. */
  setQuery(changes, push = false) {
    const query = new URLSearchParams(location.search);
    for (const [name, value] of Object.entries(changes)) {
      if (value === null || value === undefined || value === "") query.delete(name);
      else query.set(name, String(value));
    }
    const text = query.toString();
    const address = location.pathname + (text ? `?${text}` : "");
    if (address === location.pathname + location.search) return;
    if (push) this.navigate(address);
    else history.replaceState(null, "", address);
  }

  /** Links to places of the console change the view without loading the page again. */
  onClick(event) {
    if (event.defaultPrevented || event.button !== 0) return;
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    const link = event.target instanceof Element ? event.target.closest("a[href]") : null;
    if (!link || link.target || link.hasAttribute("download")) return;
    const address = new URL(link.href);
    const isPlace = address.pathname === ROOT || address.pathname.startsWith(`${ROOT}/`);
    if (address.origin !== location.origin || !isPlace) return;
    event.preventDefault();
    this.navigate(address.pathname + address.search);
  }
}

/** The names of a pattern's parameters with their values, or null. */
export function matched(parts, segments) {
  if (parts.length !== segments.length) return null;
  const params = {};
  for (const [i, part] of parts.entries()) {
    if (part.startsWith(":")) {
      const value = decoded(segments[i]);
      if (!value) return null;
      params[part.slice(1)] = value;
    } else if (part !== segments[i]) {
      return null;
    }
  }
  return params;
}

function decoded(segment) {
  try {
    return decodeURIComponent(segment);
  } catch {
    return "";
  }
}
