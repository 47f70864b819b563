// Builds the document from values. Children become text nodes, so nothing in a record is ever markup.

const SVG = "http://www.w3.org/2000/svg";

/**
 * An element. `props`: `class`, `onclick` and other listeners (functions only), attributes by their
 * names; true is an empty attribute, false and null are left out.
 * @param {string} tag
 * @param {Record<string, unknown> | null} [props]
 * @param {...unknown} children
 * @returns {any}
 */
export function h(tag, props, ...children) {
  return filled(document.createElement(tag), props, children);
}

/**
 * An element of SVG.
 * @param {string} tag
 * @param {Record<string, unknown> | null} [props]
 * @param {...unknown} children
 * @returns {any}
 */
export function svg(tag, props, ...children) {
  return filled(document.createElementNS(SVG, tag), props, children);
}

function filled(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (name.startsWith("on")) {
      if (typeof value !== "function") throw new TypeError(`${name} takes a function`);
      element.addEventListener(name.slice(2), value);
    } else if (name === "value") {
      element.value = value ?? "";
    } else if (value === true) {
      element.setAttribute(name, "");
    } else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, String(value));
    }
  }
  append(element, children);
  return element;
}

/** Adds nodes and texts; lists are flattened, null and false are left out. */
export function append(element, children) {
  for (const child of [children].flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

/** Replaces everything in an element. */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

/** Sets a text only if it is another one: live numbers cause no needless layout. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Calls `run` once, `wait_ms` after the last call. */
export function debounced(run, wait_ms) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => run(...values), wait_ms);
  };
}
