// Requests to the JSON routes of this server. Every failure is an `ApiError` that a page can show.

export class ApiError extends Error {
  /**
   * @param {number} status 0: the server was not reached
   * @param {string} code
   * @param {string} message
   * @param {any} [body]
   */
  constructor(status, code, message, body = null) {
    super(message);
    this.status = status;
    this.code = code;
    this.body = body;
  }
}

/** A path whose values are encoded segments: path`/topics/${name}`. Names may contain / ? # and spaces. */
export function path(strings, ...values) {
  return strings.reduce((text, part, i) => text + encodeURIComponent(values[i - 1]) + part);
}

/** A path with a query; values that are null or empty are left out. */
export function withQuery(target, query) {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") parameters.set(name, String(value));
  }
  const text = parameters.toString();
  return text ? `${target}?${text}` : target;
}

/**
 * @param {string} method
 * @param {string} target
 * @param {{body?: unknown, json?: string, signal?: AbortSignal}} [options] `json` is a body that is text already
 * @returns {Promise<any>}
 */
export async function request(method, target, { body, json, signal } = {}) {
  const headers = { Accept: "application/json" };
  const sent = body === undefined ? json : JSON.stringify(body);
  if (sent !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(target, sent === undefined ? { method, headers, signal } : { method, headers, body: sent, signal });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, "unreachable", "The server does not answer. It may be restarting.");
  }
  const text = await response.text();
  const parsed = parsedJson(text);
  if (response.ok) return parsed;
  if (response.status === 401) document.dispatchEvent(new CustomEvent("penstock:login"));
  throw failure(response.status, parsed);
}

function parsedJson(text) {
  try {
    return text ? JSON.parse(text) : null;
  } catch {
    return null;
  }
}

/** The gateway's errors, or those of the registry. */
function failure(status, body) {
  const error = body?.error;
  if (error?.message) return new ApiError(status, error.code, error.message, body);
  const code = String(body?.error_code ?? status);
  return new ApiError(status, code, body?.message ?? `The server answered with status ${status}.`, body);
}

export const read = (target, signal) => request("GET", target, { signal });
export const post = (target, body, signal) => request("POST", target, { body, signal });
export const put = (target, body, signal) => request("PUT", target, { body, signal });
export const patch = (target, body, signal) => request("PATCH", target, { body, signal });
export const remove = (target) => request("DELETE", target);

/** The rows of a `{columns, rows}` answer as objects. */
export function asObjects({ columns, rows }) {
  return rows.map((row) => Object.fromEntries(columns.map((name, i) => [name, row[i]])));
}
