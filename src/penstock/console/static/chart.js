// Charts as SVG paths: a line over time, and a histogram whose bars can be chosen.

import { fill, h, svg } from "./dom.js";
import { time } from "./format.js";

const WIDTH = 600;

/**
 * A line over time, with its largest value. `points` have `time` (ms text) and a member `name`.
 * @param {{label: string, points: any[], name: string, format: (value: number) => string, height?: number}} options
 */
export function lineChart({ label, points, name, format, height = 120 }) {
  const known = points.filter((point) => point[name] !== null && point[name] !== undefined);
  if (known.length < 2) {
    return h("p", { class: "state" }, "Collecting: the line appears after two samples.");
  }
  const values = known.map((point) => Number(point[name]));
  const times = known.map((point) => Number(point.time));
  const [from, until] = [times[0], times.at(-1)];
  const top = Math.max(...values) || 1;
  const x = (i) => (WIDTH * (times[i] - from)) / Math.max(1, until - from);
  const y = (value) => height - 2 - ((height - 12) * value) / top;
  const line = values.map((value, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  const picture = svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${height}`, preserveAspectRatio: "none", class: "line", role: "img", "aria-label": `${label}: ${format(values.at(-1))}, at most ${format(top)}` },
    svg("path", { class: "rule", d: `M0 ${height - 2}H${WIDTH}M0 ${y(top / 2)}H${WIDTH}M0 ${y(top)}H${WIDTH}` }),
    svg("path", { class: "area", d: `${line}L${WIDTH} ${height - 2}L0 ${height - 2}Z` }),
    svg("path", { class: "stroke", d: line }),
  );
  picture.style.height = `${height}px`;
  const readout = h("span", { class: "readout muted" });
  const showAt = (event) => {
    const box = picture.getBoundingClientRect();
    const share = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    const wanted = from + share * (until - from);
    let nearest = 0;
    for (const [i, at] of times.entries()) if (Math.abs(at - wanted) < Math.abs(times[nearest] - wanted)) nearest = i;
    fill(readout, `${format(values[nearest])} at ${time(times[nearest], { milliseconds: false })}`);
  };
  picture.addEventListener("pointermove", showAt);
  picture.addEventListener("pointerleave", () => fill(readout));
  return h(
    "figure",
    { class: "chart" },
    h("div", { class: "top muted" }, format(top)),
    picture,
    h("figcaption", { class: "muted" }, h("span", null, time(from, { milliseconds: false })), readout, h("span", null, time(until, { milliseconds: false }))),
  );
}

/**
 * Bars over time. Choosing one calls `onPick(bucket)`.
 * @param {{label: string, buckets: any[], onPick: (bucket: any) => void, height?: number}} options
 */
export function histogram({ label, buckets, onPick, height = 56 }) {
  const counts = buckets.map((bucket) => Number(bucket.records));
  const top = Math.max(...counts, 1);
  const width = WIDTH / Math.max(1, buckets.length);
  const bars = buckets.map((bucket, i) => {
    const tall = counts[i] ? Math.max(2, ((height - 2) * counts[i]) / top) : 0;
    const bar = svg("path", { class: "bar", d: `M${i * width + 0.5} ${height}v${-tall}h${Math.max(0.5, width - 1)}v${tall}z` });
    const hit = svg("rect", { class: "hit", x: i * width, y: 0, width, height });
    hit.append(svg("title", null, `${time(bucket.from, { milliseconds: false })}: ${bucket.records} records`));
    hit.addEventListener("click", () => onPick(bucket));
    return [bar, hit];
  });
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, preserveAspectRatio: "none", class: "bars", role: "img", "aria-label": label }, bars.flat());
  picture.style.height = `${height}px`;
  const [from, until] = [buckets[0]?.from, buckets.at(-1)?.until];
  const ends = [from, until].map((at) => h("span", null, time(at, { milliseconds: false })));
  return h("figure", { class: "chart" }, picture, h("figcaption", { class: "muted" }, ends));
}

/** A share of a whole as a bar; the text beside it says the same. */
export function meter(share, tone = "") {
  const bar = h("span", { class: `meter ${tone}`, "aria-hidden": "true" }, h("span", null));
  bar.firstChild.style.width = `${Math.min(100, Math.max(0, share * 100))}%`;
  return bar;
}
