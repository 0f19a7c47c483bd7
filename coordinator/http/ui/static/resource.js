// What a view reads from the service, kept fresh: again when an event says that it changed, and every few seconds.
import { useEffect, useRef, useState } from "./html.js";
import { onEvent } from "./live.js";
import { tokenWanted } from "./api.js";

const GAP_MS = 400; // between two reads that events ask for; four times the length of the last one if that is more

/** Whether an event is of the group. */
export const isOf = (groupId) => (event) => event.group_id === groupId;

/**
 * `load(signal)` makes the value; `deps` say of what, so that a change of them drops the old value. `wants(event)`: whether
 * the event makes a read worth while. A value outlives a failed read, whose error then stands beside it.
 * `everyMs` may be a function of the value. Gives { data, error, isLoading, atMs, reload }.
 */
export function useResource(load, deps, { everyMs = 10_000, wants = () => false } = {}) {
  const [state, setState] = useState({ data: undefined, error: null, isLoading: true, atMs: 0 });
  const loader = useRef(null);
  const latest = useRef({});
  latest.current = { load, wants };
  useEffect(() => {
    const run = keepFresh({
      load: (signal) => latest.current.load(signal),
      wants: (event) => latest.current.wants(event),
      everyMs,
      onChange: (change) => setState((was) => ({ ...was, ...change })),
    });
    setState({ data: undefined, error: null, isLoading: true, atMs: 0 });
    loader.current = run.reload;
    return run.stop;
  }, deps);
  return { ...state, reload: () => loader.current?.() };
}

function keepFresh({ load, wants, everyMs, onChange }) {
  let timer = 0;
  let dueMs = 0;
  let running = null;
  let lastedMs = 0;
  let again = false;
  const paceOf = (data) => (typeof everyMs === "function" ? everyMs(data) : everyMs);
  const schedule = (inMs) => {
    const at = Date.now() + inMs;
    if (timer && at >= dueMs) return;
    clearTimeout(timer);
    dueMs = at;
    timer = setTimeout(read, inMs);
  };
  async function read() {
    timer = 0;
    if (running) {
      again = true;
      return;
    }
    if (document.hidden || tokenWanted.value !== null) {
      schedule(paceOf());
      return;
    }
    running = new AbortController();
    const mine = running;
    const began = performance.now();
    onChange({ isLoading: true });
    let next = paceOf();
    let failed = false;
    try {
      const data = await load(mine.signal);
      next = paceOf(data);
      if (!mine.signal.aborted) onChange({ data, error: null, isLoading: false, atMs: Date.now() });
    } catch (error) {
      if (error.name !== "AbortError" && !mine.signal.aborted) onChange({ error, isLoading: false });
      if (error.retryAfterSeconds) next = Math.max(next, error.retryAfterSeconds * 1000);
      failed = true;
    }
    if (mine.signal.aborted) return;
    // A failure that took long, as of a service that stood still, is no work of the service to be spared.
    lastedMs = failed ? 0 : performance.now() - began;
    running = null;
    schedule(again ? Math.max(GAP_MS, 4 * lastedMs) : Math.max(next, 10 * lastedMs));
    again = false;
  }
  const unlisten = onEvent((event) => {
    if (event.kind === "gap" || event.kind === "returned" || wants(event)) {
      if (running) again = true;
      else schedule(Math.max(GAP_MS, 4 * lastedMs));
    }
  });
  const shown = () => !document.hidden && schedule(0);
  document.addEventListener("visibilitychange", shown);
  const unwatch = tokenWanted.subscribe((wanted) => wanted === null && !running && dueMs && schedule(0));
  read();
  return {
    reload: () => (running ? (again = true) : schedule(0)),
    stop: () => {
      clearTimeout(timer);
      running?.abort();
      unlisten();
      unwatch();
      document.removeEventListener("visibilitychange", shown);
    },
  };
}
