// The list of groups: searched, filtered and sorted by the service, so ten thousand of them are as quick as ten.
import { html, useEffect, useRef, useState } from "./html.js";
import { get, pathOf } from "./api.js";
import { onEvent } from "./live.js";
import { Ago, Text, compact, count, number } from "./format.js";
import { Frozen, State, Status } from "./badges.js";
import { Failed, say } from "./notices.js";
import { Table } from "./table.js";
import { hrefOf, refine, route } from "./route.js";

const PAGE_ROWS = 200;
const REFRESH_MS = 6000;
const STATES = ["Stable", "PreparingRebalance", "CompletingRebalance", "Empty"];
const STATUSES = ["ok", "warn", "err"];

/** How a group stands in a list. */
export const groupColumns = [
  { key: "id", head: "Group", kind: "id", sort: "group_id", cell: (row) => html`<a class="row-link" href=${hrefOf(["groups", row.group_id])}><${Text}>${row.group_id}<//></a>` },
  { key: "state", head: "State", kind: "state", width: "8.5rem", narrow: "2.9rem", sort: "state", cell: (row) => html`<${State} of=${row.state} />` },
  { key: "status", head: "Status", width: "7rem", narrow: "5.6rem", sort: "status", cell: (row) => html`<${Status} of=${row.status} />` },
  { key: "lag", head: "Lag", kind: "num", width: "6.5rem", narrow: "4.8rem", sort: "lag", cell: (row) => html`<span title=${number(row.lag)}>${compact(row.lag)}</span>` },
  { key: "members", head: "Members", kind: "num", width: "6.5rem", rank: 2, sort: "member_count", cell: (row) => html`${number(row.member_count)}` },
  { key: "notes", head: "What stands out", kind: "wide", width: "17rem", rank: 3, cell: (row) => html`<${Notes} row=${row} />` },
  { key: "commit", head: "Last commit", kind: "num", width: "8rem", rank: 2, sort: "last_commit", cell: (row) => html`<${Ago} at=${row.last_commit_at_ms} />` },
  { key: "rebalance", head: "Last rebalance", kind: "num", width: "9rem", rank: 3, sort: "last_rebalance", cell: (row) => html`<${Ago} at=${row.last_rebalance_at_ms} />` },
  { key: "topics", head: "Topics", kind: "wide", width: "12rem", rank: 4, cell: (row) => html`<${Topics} row=${row} />` },
];

/** The same where there is less room, and nothing to sort. */
export const shortGroupColumns = groupColumns
  .filter((column) => column.key !== "topics" && column.key !== "rebalance")
  .map((column) => ({ ...column, sort: undefined, rank: column.key === "commit" ? 4 : column.rank }));

function Notes({ row }) {
  const notes = [];
  if (row.frozen_until_ms) notes.push(html`<${Frozen} until=${row.frozen_until_ms} />`);
  if (row.awaited_count) notes.push(`waits for ${number(row.awaited_count)}`);
  if (row.flapping_member_count) notes.push(`${number(row.flapping_member_count)} flapping`);
  if (row.unowned_partition_count) notes.push(`${count(row.unowned_partition_count, "partition")} unowned`);
  if (row.idle_member_count) notes.push(`${number(row.idle_member_count)} idle`);
  if (!notes.length) return html`<span class="faint">–</span>`;
  return html`<span>${notes.map((note, i) => html`${i > 0 && ", "}${note}`)}</span>`;
}

function Topics({ row }) {
  const more = row.topic_count - row.topics.length;
  return html`<span title=${row.topics.join("\n")}>${row.topics.map((topic, i) => html`${i > 0 && ", "}<${Text}>${topic}<//>`)}${more > 0 && `, and ${number(more)} more`}</span>`;
}

export function askOf(query) {
  return {
    search: query.search,
    topic: query.topic,
    state: query.state,
    status: query.status,
    lag_above: query.lag_above,
    frozen: query.frozen,
    sort: query.sort,
    descending: query.descending,
  };
}

/** A list that is read page by page as it comes into sight; pages in sight are read again as things happen. */
export function useGroupPages(ask) {
  const [, redraw] = useState(0);
  const pages = useRef(null);
  const key = JSON.stringify(ask);
  if (pages.current?.key !== key) {
    pages.current?.stop();
    pages.current = new GroupPages(key, ask, () => redraw((n) => n + 1));
  }
  const mine = pages.current;
  useEffect(() => mine.start(), [mine]);
  return mine;
}

class GroupPages {
  constructor(key, ask, onChange) {
    Object.assign(this, { key, ask, onChange, cursors: [undefined], rows: [], totals: null, error: null, isBusy: true, unavailable: [], damaged: [] });
    this.range = [0, 40];
    this.loading = new Map();
    this.aborted = new AbortController();
  }

  start() {
    this.unlisten = onEvent(() => this.later(800));
    this.timer = 0;
    this.need(0);
    this.clock = setInterval(() => !document.hidden && this.refresh(), REFRESH_MS);
    return () => this.stop();
  }

  stop() {
    this.aborted.abort();
    this.unlisten?.();
    clearInterval(this.clock);
    clearTimeout(this.timer);
  }

  later(ms) {
    this.timer ||= setTimeout(() => {
      this.timer = 0;
      if (!document.hidden) this.refresh();
    }, ms);
  }

  get count() {
    const known = this.totals?.matching_count;
    const loaded = this.rows.reduce((sum, page) => sum + (page?.length ?? 0), 0);
    return this.cursors[this.rows.length] === null ? loaded : Math.max(loaded, known ?? 0);
  }

  rowAt = (i) => {
    const page = Math.floor(i / PAGE_ROWS);
    return this.rows[page]?.[i - page * PAGE_ROWS];
  };

  see = (first, last) => {
    this.range = [first, last];
    this.need(Math.floor(Math.max(0, last - 1) / PAGE_ROWS));
  };

  /** Read up to that page; each has its cursor from the one before. */
  async need(page) {
    for (let at = 0; at <= page && !this.aborted.signal.aborted; at++) {
      if (this.rows[at] || this.cursors[at] === null) continue;
      if (!(await this.read(at))) return;
    }
  }

  refresh() {
    const from = Math.floor(this.range[0] / PAGE_ROWS);
    const to = Math.floor(Math.max(0, this.range[1] - 1) / PAGE_ROWS);
    for (let at = from; at <= to; at++) if (this.rows[at]) this.read(at);
    this.need(to);
  }

  read(at) {
    if (this.loading.has(at)) return this.loading.get(at);
    const reading = this.fetch(at).finally(() => this.loading.delete(at));
    this.loading.set(at, reading);
    return reading;
  }

  async fetch(at) {
    try {
      const query = { ...this.ask, limit: PAGE_ROWS, cursor: this.cursors[at], totals: true };
      const answer = await get(pathOf("groups"), query, this.aborted.signal);
      this.rows[at] = answer.groups;
      this.cursors[at + 1] = answer.next_cursor;
      if (answer.next_cursor === null) {
        this.rows.length = at + 1;
        this.cursors.length = at + 2;
      }
      this.totals = answer.totals;
      this.unavailable = answer.unavailable_shards;
      this.damaged = answer.damaged_groups;
      this.error = null;
      return true;
    } catch (error) {
      if (error.name === "AbortError") return false;
      this.error = error;
      return false;
    } finally {
      this.isBusy = false;
      if (!this.aborted.signal.aborted) this.onChange();
    }
  }
}

export function GroupsView() {
  const { query } = route.value;
  const pages = useGroupPages(askOf(query));
  const total = pages.totals;
  const summary = total ? `${count(total.matching_count, "group")}${total.matching_count === total.group_count ? "" : ` of ${number(total.group_count)}`}` : "";
  useEffect(() => {
    if (summary) say(`${summary} in the list.`);
  }, [summary]);
  return html`<section>
    <div class="head"><h1 id="title">Groups</h1><p class="faint">${summary}</p></div>
    <${Filters} query=${query} />
    <${Failed} problem=${pages.error} retry=${() => pages.refresh()} stale=${pages.rows.length > 0} />
    <${Incomplete} pages=${pages} />
    <${Table}
      label="List of groups"
      columns=${groupColumns}
      count=${pages.count}
      rowAt=${pages.rowAt}
      keyOf=${(row) => row.group_id}
      onRange=${pages.see}
      busy=${pages.isBusy}
      failed=${pages.error !== null}
      sort=${query.sort ?? "group_id"}
      descending=${query.descending === "true"}
      onSort=${(sort, descending) => refine({ sort, descending: descending ? "true" : "" })}
      empty=${Object.keys(askOf(query)).some((name) => query[name]) ? "No group is like that." : html`No group yet. A group begins with its first member: <a href="./docs">the reference</a> says how to join.`}
    />
  </section>`;
}

export function Incomplete({ pages }) {
  if (!pages.unavailable?.length && !pages.damaged?.length) return null;
  return html`<div class="notice warn">
    ${pages.unavailable.length > 0 && html`<details><summary>The list is not complete: ${count(pages.unavailable.length, "shard")} cannot be listed now.</summary>
      <ul>${pages.unavailable.slice(0, 50).map((shard) => html`<li>Shard ${shard.shard}: <${Text} as="span">${shard.detail}<//></li>`)}</ul></details>`}
    ${pages.damaged.map((group) => html`<p>The group <b><${Text}>${group.group_id}<//></b> is shut off: <${Text} as="span">${group.detail}<//></p>`)}
  </div>`;
}

function Filters({ query }) {
  const set = (name) => (event) => refine({ [name]: event.target.type === "checkbox" ? (event.target.checked ? "true" : "") : event.target.value.trim() });
  const typed = useTyped(query.search ?? "", (search) => refine({ search }));
  return html`<form class="filters" role="search" aria-label="Search groups" onSubmit=${(event) => event.preventDefault()}>
    <label class="grow">Search<input type="search" data-key="/" placeholder="part of the group id" value=${typed.text} onInput=${typed.onInput} /></label>
    <label>Topic<input type="text" value=${query.topic ?? ""} onChange=${set("topic")} /></label>
    <label>State<select value=${query.state ?? ""} onChange=${set("state")}>
      <option value="">any</option>${STATES.map((state) => html`<option value=${state}>${state}</option>`)}</select></label>
    <label>Status<select value=${query.status ?? ""} onChange=${set("status")}>
      <option value="">any</option>${STATUSES.map((status) => html`<option value=${status}>${status.toUpperCase()}</option>`)}</select></label>
    <label>Lag above<input type="number" min="0" step="1" value=${query.lag_above ?? ""} onChange=${set("lag_above")} /></label>
    <label class="check"><input type="checkbox" checked=${query.frozen === "true"} onChange=${set("frozen")} /> frozen</label>
  </form>`;
}

/** A text that is handed on when the typing pauses. */
export function useTyped(value, onText) {
  const [text, setText] = useState(value);
  const timer = useRef(0);
  const handed = useRef(value);
  useEffect(() => {
    if (value !== handed.current) {
      handed.current = value;
      setText(value);
    }
  }, [value]);
  const onInput = (event) => {
    const next = event.target.value;
    setText(next);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => {
      handed.current = next;
      onText(next);
    }, 250);
  };
  return { text, onInput };
}
