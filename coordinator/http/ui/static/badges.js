// Words with a mark of their own shape beside them: what a colour says here is never said by it alone.
import { html } from "./html.js";
import { connection } from "./live.js";
import { duration, now } from "./format.js";

const STATES = {
  Stable: ["ok", "●", "Stable", "Every member has its assignment."],
  PreparingRebalance: ["warn", "◐", "Joining", "PreparingRebalance: the members are joining again."],
  CompletingRebalance: ["warn", "◑", "Syncing", "CompletingRebalance: the leader's assignment is awaited."],
  Empty: ["idle", "○", "Empty", "The group has no members."],
  Dead: ["idle", "✕", "Dead", "The group is gone."],
};

const STATUSES = {
  OK: ["ok", "✓", "OK"],
  WARN: ["warn", "▲", "WARN"],
  ERR: ["err", "✖", "ERR"],
  STOP: ["err", "■", "STOP"],
  STALL: ["err", "‖", "STALL"],
  REWIND: ["err", "↶", "REWIND"],
};

const OUTCOMES = {
  in_progress: ["warn", "◐", "in progress"],
  completed: ["ok", "✓", "completed"],
  emptied: ["idle", "○", "nobody left"],
  interrupted: ["warn", "↯", "interrupted"],
  lost: ["err", "✕", "lost"],
};

export function Badge({ tone, mark, title, children }) {
  return html`<span class=${`badge ${tone}`} title=${title}><span class="mark" aria-hidden="true">${mark}</span><span>${children}</span></span>`;
}

function of(table, key, fallback = key) {
  const [tone, mark, text, title] = table[key] ?? ["idle", "•", fallback];
  return html`<${Badge} tone=${tone} mark=${mark} title=${title}>${text}<//>`;
}

export const State = ({ of: state }) => of(STATES, state);
export const Status = ({ of: status }) => (status ? of(STATUSES, status) : html`<span class="faint">–</span>`);
export const Outcome = ({ of: outcome }) => of(OUTCOMES, outcome);
export const Frozen = ({ until }) =>
  html`<${Badge} tone="cold" mark="❄" title="No rebalance begins until then, or until the freeze is ended.">frozen, ${duration(Math.max(0, until - now.value))} left<//>`;

const CONNECTIONS = {
  connecting: ["idle", "◌", "Connecting"],
  live: ["ok", "●", "Live"],
  resting: ["idle", "◌", "Resting"],
};

/** Whether what is shown is live; if not, for how long it has not been. */
export function Connection() {
  const { state, why, sinceMs } = connection.value;
  if (state === "lost") {
    now.value; // a tick
    return html`<${Badge} tone="err" mark="✕" title=${why}>Not live for ${duration(Math.floor((Date.now() - sinceMs) / 1000) * 1000)}, trying again<//>`;
  }
  return of(CONNECTIONS, state);
}
