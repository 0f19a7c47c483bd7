// Numbers, times and ids as a person reads them. Pure, but for the ticking clock.
import { html, signal } from "./html.js";
import { serviceNow } from "./api.js";

/** The service's time, a tick each second while somebody looks. */
export const now = signal(serviceNow());
setInterval(() => {
  if (!document.hidden) now.value = serviceNow();
}, 1000);

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const NONE = "–";
export const number = (value) => (value === null || value === undefined ? NONE : whole.format(value));
export const compact = (value) => (value === null || value === undefined ? NONE : Math.abs(value) < 100_000 ? whole.format(value) : short.format(value));
export const count = (value, one, many = `${one}s`) => `${number(value)} ${value === 1 ? one : many}`;
export const rate = (value) => (value === null || value === undefined ? NONE : `${whole.format(Math.abs(value) < 10 ? Math.round(value * 10) / 10 : Math.round(value))}/s`);

/** 850 ms, 3.2 s, 1 min 5 s, 2 h 10 min, 3 d 4 h. */
export function duration(ms) {
  if (ms === null || ms === undefined) return NONE;
  const value = Math.max(0, ms);
  if (value < 1000) return `${Math.round(value)} ms`;
  if (value < 9950) return `${(value / 1000).toFixed(1)} s`;
  const seconds = Math.round(value / 1000);
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return joined(minutes, "min", seconds % 60, "s");
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return joined(hours, "h", minutes % 60, "min");
  return joined(Math.floor(hours / 24), "d", hours % 24, "h");
}
const joined = (large, unit, small, smallUnit) => (small ? `${large} ${unit} ${small} ${smallUnit}` : `${large} ${unit}`);

/** "just now", "12 s ago", "in 3 min". */
export function relative(atMs, nowMs) {
  const ms = nowMs - atMs;
  if (Math.abs(ms) < 1500) return "just now";
  const text = rounded(Math.abs(ms) / 1000);
  return ms > 0 ? `${text} ago` : `in ${text}`;
}

/** In one unit, which is exact enough for something that is past. */
function rounded(seconds) {
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  return seconds < 172_800 ? `${Math.floor(seconds / 3600)} h` : `${Math.floor(seconds / 86_400)} d`;
}

/** 14:03:07, with the date if it is another day. */
export function clock(atMs, { seconds = true } = {}) {
  const at = new Date(atMs);
  const time = at.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", ...(seconds ? { second: "2-digit" } : {}) });
  const isToday = at.toDateString() === new Date(now.value).toDateString();
  return isToday ? time : `${at.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} ${time}`;
}

/** A time, relative to now, with the clock time to hover over. */
export function Ago({ at }) {
  if (at === null || at === undefined) return NONE;
  return html`<time datetime=${new Date(at).toISOString()} title=${clock(at)}>${relative(at, now.value)}</time>`;
}

/** Partitions as 0–3, 7. */
export function rangesOf(partitions) {
  const sorted = [...partitions].sort((a, b) => a - b);
  const ranges = [];
  for (const partition of sorted) {
    const last = ranges.at(-1);
    if (last && partition === last[1] + 1) last[1] = partition;
    else ranges.push([partition, partition]);
  }
  const shown = ranges.slice(0, 40).map(([from, to]) => (from === to ? `${from}` : `${from}–${to}`));
  return shown.join(", ") + (ranges.length > 40 ? ", …" : "");
}

const UNSEEN = /[\p{Cc}\p{Cf}\p{Co}\p{Cn}\p{Zl}\p{Zp}\u115f\u1160\u3164\u2800]|^\s|\s$|\s(?=\s)/gu;

/**
 * A stranger's text, such as an id, set apart so that it cannot turn what stands around it. Marks that nobody sees, as
 * those that turn the direction of reading, are shown by their number: two ids that differ look different.
 */
export function Text({ children: text, as = "bdi" }) {
  if (text === null || text === undefined) return NONE;
  if (text === "") return html`<span class="faint">(empty)</span>`;
  const parts = [];
  let end = 0;
  for (const found of String(text).matchAll(UNSEEN)) {
    parts.push(text.slice(end, found.index));
    const code = found[0].codePointAt(0);
    parts.push(code === 32 ? html`<span class="unseen">␣</span>` : html`<span class="unseen">U+${code.toString(16).toUpperCase().padStart(4, "0")}</span>`);
    end = found.index + found[0].length;
  }
  return html`<${as}>${parts}${text.slice(end)}</${as}>`;
}

/** A member id ends in 32 digits of chance; so much of it tells it apart. The whole id is there to hover over. */
export function shortMember(memberId) {
  const match = /^(.*)-([0-9a-f]{32})$/s.exec(memberId ?? "");
  return match ? `${match[1]}-${match[2].slice(0, 6)}…` : memberId;
}

/** A member by the name that a person gave it, if one did. */
export const nameOf = (member) => (member === null || member === undefined ? "nobody" : member.group_instance_id ?? shortMember(member.member_id));

export function Member({ of: member }) {
  if (member === null || member === undefined) return html`<span class="faint">nobody</span>`;
  return html`<span title=${`${member.member_id}\n${member.client_id ?? ""} at ${member.host ?? "an unknown host"}`}><${Text}>${nameOf(member)}<//></span>`;
}
