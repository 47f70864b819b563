// Small line icons, 16 by 16. Decorative: the text beside them carries the meaning.

import { svg } from "./dom.js";

const PATHS = {
  overview: "M2.5 2.5h4.5v6H2.5zM9 2.5h4.5v3.5H9zM9 8h4.5v5.5H9zM2.5 10.5H7v3H2.5z",
  topics: "M2.5 4.5h11M2.5 8h11M2.5 11.5h7",
  groups: "M5.5 7.5a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM2 13c0-2 1.5-3.5 3.5-3.5S9 11 9 13M10.5 7.5a1.7 1.7 0 1 0 0-3.4M10.8 9.6c1.8.2 3.2 1.5 3.2 3.4",
  schemas: "M9 2.5H4.5v11h7V5zM9 2.5V5h2.5M6.5 8h3M6.5 10.5h3",
  quarantine: "M8 2.5l5.5 10.5h-11zM8 6.5v3M8 11.3v.2",
  pipelines: "M2.5 5h3l4 6h4M2.5 11h3l1.3-2M9 7l1.5-2h3M12 3.5L13.5 5 12 6.5M12 9.5l1.5 1.5-1.5 1.5",
  sql: "M2.5 3h11v10h-11zM5 6.5L7 8.2 5 10M8.5 10.5h2.5",
  search: "M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9zM10.3 10.3l3.2 3.2",
  plus: "M8 3v10M3 8h10",
  close: "M4 4l8 8M12 4l-8 8",
  copy: "M5.5 5.5h8v8h-8zM3 10.5h-.5v-8h8V3",
  refresh: "M13 8a5 5 0 1 1-1.5-3.5M13 2.5v2.5h-2.5",
  pause: "M5.5 3.5v9M10.5 3.5v9",
  play: "M5 3.5l7.5 4.5L5 12.5z",
  sun: "M8 10.8a2.8 2.8 0 1 0 0-5.6 2.8 2.8 0 0 0 0 5.6zM8 1.5v1.3M8 13.2v1.3M1.5 8h1.3M13.2 8h1.3M3.4 3.4l.9.9M11.7 11.7l.9.9M12.6 3.4l-.9.9M4.3 11.7l-.9.9",
  moon: "M13 9.5A5.5 5.5 0 0 1 6.5 3a5.5 5.5 0 1 0 6.5 6.5z",
  auto: "M8 2.5a5.5 5.5 0 1 0 0 11zM8 2.5a5.5 5.5 0 0 1 0 11z",
  left: "M10 3.5L5.5 8l4.5 4.5",
  right: "M6 3.5L10.5 8 6 12.5",
  external: "M6.5 3.5h-3v9h9v-3M9 3h4v4M13 3L7.5 8.5",
};

/** @param {keyof typeof PATHS} name */
export function icon(name) {
  const shape = svg("path", { d: PATHS[name] });
  return svg("svg", { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true" }, shape);
}
