// What a person chose for this browser: theme and time zone.

const THEMES = ["system", "light", "dark"];
const ZONES = ["utc", "local"];
const listeners = new Set();

const stored = (name, values) => {
  const value = localStorage.getItem(`penstock.${name}`);
  return values.includes(value) ? value : values[0];
};

export const preferences = {
  theme: stored("theme", THEMES),
  zone: stored("zone", ZONES),
};

function choose(name, value) {
  preferences[name] = value;
  localStorage.setItem(`penstock.${name}`, value);
  for (const listener of listeners) listener(name);
}

/** The next theme: as the system, light, dark. */
export function nextTheme() {
  const theme = THEMES[(THEMES.indexOf(preferences.theme) + 1) % THEMES.length];
  document.documentElement.style.colorScheme = theme === "system" ? "" : theme;
  choose("theme", theme);
}

export const switchZone = () => choose("zone", preferences.zone === "utc" ? "local" : "utc");

/** Calls `listener(name)` on a change, until the signal. */
export function onPreference(listener, signal) {
  listeners.add(listener);
  signal?.addEventListener("abort", () => listeners.delete(listener));
}
