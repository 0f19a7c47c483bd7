// Calls of the HTTP API, and the token for them. No URL is ever made with a token in it.
import { signal } from "./html.js";

const TOKEN_KEY = "rallypoint-token";
const READ_TIMEOUT_MS = 20_000;
const ACT_TIMEOUT_MS = 60_000;

/** The token that is sent, or "". It is kept for this tab alone, and goes when the tab is closed. */
export const token = signal(sessionStorage.getItem(TOKEN_KEY) ?? "");

/** Why the service wants another token, or null. */
export const tokenWanted = signal(null);

/** How far the service's clock is ahead of the browser's, in milliseconds. */
let clockAheadMs = 0;

/** The service's time. Whoever looks from a machine whose clock is wrong still sees right durations. */
export const serviceNow = () => Date.now() + clockAheadMs;

export function keepToken(text) {
  token.value = text;
  tokenWanted.value = null;
  if (text) sessionStorage.setItem(TOKEN_KEY, text);
  else sessionStorage.removeItem(TOKEN_KEY);
}

/** A call that did not succeed: the API's problem document, or that the service could not be reached (status 0). */
export class Problem extends Error {
  constructor(status, answer, retryAfterSeconds = 0) {
    super(answer.detail || answer.title || "The call failed.");
    this.status = status;
    this.errorName = answer.error_name ?? "";
    this.field = answer.field ?? "";
    this.url = answer.url ?? "";
    this.nodeId = answer.node_id ?? "";
    this.type = answer.type ?? "";
    this.retryAfterSeconds = retryAfterSeconds;
  }
}

export const unreachable = () => new Problem(0, { detail: "The service cannot be reached.", error_name: "UNREACHABLE" });

function silent(isRead) {
  const seconds = (isRead ? READ_TIMEOUT_MS : ACT_TIMEOUT_MS) / 1000;
  const more = isRead ? "" : " Whether it has done what was asked is not known: look before you ask again.";
  return new Problem(0, { detail: `The service has not answered for ${seconds} s.${more}`, error_name: "UNREACHABLE" });
}

/** A path relative to the page, so that it holds behind a proxy's prefix. Each part is encoded once. */
export const pathOf = (...parts) => ["v1", ...parts.map(encodeURIComponent)].join("/");

export function headersOf(more = {}) {
  return token.value ? { ...more, Authorization: `Bearer ${token.value}` } : more;
}

function queryOf(query) {
  const pairs = [];
  for (const [name, value] of Object.entries(query)) {
    if (value === null || value === undefined || value === "" || value === false) continue;
    for (const one of Array.isArray(value) ? value : [value]) pairs.push([name, String(one)]);
  }
  return pairs.length ? `?${new URLSearchParams(pairs)}` : "";
}

/** The answer's JSON. Throws Problem; a call that `signal` aborts throws the browser's AbortError.
 *  A service that stands still keeps its connections, so each call has an end of its own. */
export async function call(method, path, { query = {}, body, signal: aborted } = {}) {
  const sent = { method, headers: headersOf(body === undefined ? {} : { "Content-Type": "application/json" }) };
  if (body !== undefined) sent.body = JSON.stringify(body);
  const isRead = method === "GET";
  const late = AbortSignal.timeout(isRead ? READ_TIMEOUT_MS : ACT_TIMEOUT_MS);
  const ended = aborted ? AbortSignal.any([aborted, late]) : late;
  let response;
  let answer;
  try {
    response = await fetch(path + queryOf(query), { ...sent, signal: ended, cache: "no-store", redirect: "error" });
    answer = await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    if (error.name === "TimeoutError") throw silent(isRead);
    if (response === undefined) throw unreachable();
    const detail = `The answer is no JSON (status ${response.status}); is something else in front of the service?`;
    throw new Problem(response.status, { detail });
  }
  noteClock(response);
  if (response.ok) return answer;
  const problem = new Problem(response.status, answer, Number(response.headers.get("Retry-After") ?? 0));
  if (response.status === 401) tokenWanted.value = problem.message;
  throw problem;
}

export const get = (path, query, aborted) => call("GET", path, { query, signal: aborted });

function noteClock(response) {
  const said = Date.parse(response.headers.get("Date") ?? "");
  if (Number.isNaN(said)) return;
  const ahead = said + 500 - Date.now(); // the header has whole seconds
  if (Math.abs(ahead - clockAheadMs) > 1500) clockAheadMs = Math.abs(ahead) < 1500 ? 0 : ahead;
}
