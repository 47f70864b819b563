// Numbers, sizes, times and durations as people read them. int64 values are text; null is a dash.

import { preferences } from "./preferences.js";

export const DASH = "–";
const UNITS = ["", "k", "M", "G", "T", "P"];

/** All digits, in groups of three: 1,234,567. */
export function count(value) {
  if (value === null || value === undefined) return DASH;
  return String(value).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
}

/** At most four digits: 1.23 M. */
export function short(value, unit = "") {
  if (value === null || value === undefined) return DASH;
  let number = Number(value);
  let power = 0;
  while (Math.abs(number) >= 999.5 && power < UNITS.length - 1) {
    number /= 1000;
    power += 1;
  }
  const digits = power === 0 && Number.isInteger(number) ? 0 : number < 10 ? 2 : number < 100 ? 1 : 0;
  const symbol = UNITS[power] + unit;
  return symbol ? `${number.toFixed(digits)} ${symbol}` : number.toFixed(digits);
}

export const bytes = (value) => short(value, "B");
export const rate = (value) => (value === null || value === undefined ? DASH : `${short(value)}/s`);

/** A duration: 4.2 s, 3 min, 2 h 5 min. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return DASH;
  const total = Number(seconds);
  if (total < 60) return `${total < 10 ? Math.round(total * 10) / 10 : Math.round(total)} s`;
  const minutes = Math.floor(total / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  return `${Math.floor(hours / 24)} d`;
}

const pad = (value, size = 2) => String(value).padStart(size, "0");

/** A time in ms (text or number) in the chosen zone: 2026-01-31 14:05:09.120. */
export function time(ms, { milliseconds = true } = {}) {
  if (ms === null || ms === undefined || Number(ms) < 0) return DASH;
  const date = new Date(Number(ms));
  if (Number.isNaN(date.getTime())) return String(ms);
  const utc = preferences.zone === "utc";
  const part = (name) => date[`get${utc ? "UTC" : ""}${name}`]();
  const day = `${part("FullYear")}-${pad(part("Month") + 1)}-${pad(part("Date"))}`;
  const clock = `${pad(part("Hours"))}:${pad(part("Minutes"))}:${pad(part("Seconds"))}`;
  return `${day} ${clock}${milliseconds ? `.${pad(part("Milliseconds"), 3)}` : ""}`;
}

/** The name of the chosen zone. */
export const zoneName = () => (preferences.zone === "utc" ? "UTC" : "local time");

/** A time for an input of type `datetime-local`, and back. Both in the chosen zone. */
export const inputTime = (ms) => time(ms).replace(" ", "T");
export const fromInputTime = (text) => {
  const utc = preferences.zone === "utc";
  return text ? String(new Date(utc ? `${text}Z` : text).getTime()) : "";
};

/** Compares int64 texts. */
export function compareCounts(left, right) {
  const [a, b] = [left, right].map((value) => BigInt(value ?? -1));
  return a < b ? -1 : a > b ? 1 : 0;
}

/** "1 record", "2 records". */
export const plural = (number, word) => `${count(number)} ${word}${String(number) === "1" ? "" : "s"}`;
