// The event stream: one connection for the page, mended when it breaks, given back while nobody looks.
//
// The cursor of the last event is kept, so a reader that comes back misses nothing; where the service no longer has what
// came since, it says so (`gap`), and every view reads anew. A hidden tab closes its stream after a while: browsers open
// six connections to a host, and six forgotten tabs would stop the seventh.
import { signal } from "./html.js";
import { headersOf, tokenWanted } from "./api.js";

const QUIET_MS = 40_000; // the service says something every 15 s
const HIDDEN_MS = 20_000;
const PAUSES_MS = [500, 1000, 2000, 4000, 8000];
const RECENT_MAX = 60;

/** state: "connecting", "live", "lost" or "resting"; since when; and what the last failure was. */
export const connection = signal({ state: "connecting", sinceMs: Date.now(), why: "" });

/** The last events, the newest first. */
export const recent = signal([]);

const listeners = new Set();
let cursor = "";
let wake = () => {};
let current = null;

/** Hear of every event, of gaps (`kind` "gap") and of the return of a lost connection ("returned"). Call what it gives to stop. */
export function onEvent(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function tell(event) {
  for (const listener of listeners) listener(event);
}

function become(state, why = "") {
  const was = connection.value;
  if (was.state !== state || was.why !== why) {
    connection.value = { state, why, sinceMs: was.state === state ? was.sinceMs : Date.now() };
  }
}

/** Begin; the page calls it once. */
export async function follow() {
  let failures = 0;
  document.addEventListener("visibilitychange", rest);
  addEventListener("online", () => wake());
  for (;;) {
    if (document.hidden && connection.value.state === "resting") {
      await pause(3_600_000);
      continue;
    }
    const began = Date.now();
    const why = await read(() => {
      if (failures) tell({ kind: "returned" });
      failures = 0;
    });
    if (connection.value.state === "resting") continue;
    if (Date.now() - began > 5000) failures = 0;
    become("lost", why);
    await pause(PAUSES_MS[Math.min(failures++, PAUSES_MS.length - 1)] * (0.8 + 0.4 * Math.random()));
    while (tokenWanted.value !== null) await pause(500);
  }
}

/** Connect again now, as after a new token. */
export const reconnect = () => wake();

function pause(ms) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    wake = () => {
      clearTimeout(timer);
      resolve();
    };
  });
}

let hiddenTimer = 0;
function rest() {
  clearTimeout(hiddenTimer);
  if (document.hidden) {
    hiddenTimer = setTimeout(() => {
      become("resting");
      current?.abort();
    }, HIDDEN_MS);
  } else {
    if (connection.value.state === "resting") become("connecting");
    wake();
  }
}

/** Read one connection to its end; why it ended. */
async function read(onOpened) {
  current = new AbortController();
  let watch = 0;
  const heard = () => {
    clearTimeout(watch);
    watch = setTimeout(() => current.abort(), QUIET_MS);
  };
  heard();
  try {
    const headers = headersOf({ Accept: "text/event-stream", ...(cursor ? { "Last-Event-ID": cursor } : {}) });
    const response = await fetch("v1/events", { headers, signal: current.signal, cache: "no-store", redirect: "error" });
    if (!response.ok) {
      const problem = await response.json().catch(() => ({}));
      if (response.status === 401) tokenWanted.value = problem.detail ?? "A token is needed.";
      return problem.detail ?? `The service answered ${response.status}.`;
    }
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return "The service has closed the stream.";
      heard();
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      take(blocks, onOpened);
    }
  } catch {
    return "The service cannot be reached.";
  } finally {
    clearTimeout(watch);
  }
}

function take(blocks, onOpened) {
  const events = [];
  for (const block of blocks) {
    let data = "";
    for (const line of block.split("\n")) {
      if (line.startsWith("id: ")) cursor = line.slice(4);
      else if (line.startsWith("data: ")) data += line.slice(6);
    }
    if (!data) continue;
    const event = JSON.parse(data);
    if (event.kind === "opened") {
      become("live");
      onOpened();
    } else {
      events.push(event);
    }
  }
  if (!events.length) return;
  recent.value = [...events.filter((event) => event.group_id !== undefined).reverse(), ...recent.value].slice(0, RECENT_MAX);
  events.forEach(tell);
}
