// Every partition of a group, committed or not: who owns it and who did before, how far it is behind, and the rule that says how it does.
import { html, useEffect, useRef, useState } from "./html.js";
import { get, pathOf } from "./api.js";
import { Ago, Member, Text, compact, count, duration, number, rate } from "./format.js";
import { Status } from "./badges.js";
import { Failed } from "./notices.js";
import { onEvent } from "./live.js";
import { Table } from "./table.js";
import { refine, route } from "./route.js";

const PAGE_ROWS = 500;
const REFRESH_MS = 5000;

const columns = [
  { key: "partition", head: "Partition", kind: "id", width: "13rem", narrow: "6.5rem", cell: (row) => html`<span><${Text}>${row.topic}<//> <b>${row.partition}</b></span>` },
  { key: "owner", head: "Owner", kind: "id", cell: (row) => html`<${Member} of=${row.owner} />` },
  { key: "since", head: "Since", kind: "num", width: "8rem", rank: 2, cell: (row) => (row.owner ? html`<${Ago} at=${row.owner_since_ms} />` : "–") },
  { key: "before", head: "Owner before", kind: "id", rank: 2, cell: (row) => (row.previous_owner ? html`<${Member} of=${row.previous_owner} />` : html`<span class="faint">not known</span>`) },
  { key: "offset", head: "Committed", kind: "num", width: "7.5rem", rank: 3, cell: (row) => (row.offset === null ? html`<span class="faint">nothing</span>` : number(row.offset)) },
  { key: "end", head: "End", kind: "num", width: "7.5rem", rank: 3, cell: (row) => number(row.end_offset) },
  { key: "lag", head: "Lag", kind: "num", width: "6rem", narrow: "4.6rem", cell: (row) => html`<span title=${number(row.lag)}>${compact(row.lag)}</span>` },
  { key: "commit", head: "Last commit", kind: "num", width: "7rem", rank: 3, cell: (row) => html`<${Ago} at=${row.commit_at_ms} />` },
  { key: "rate", head: "Rate, of ends", kind: "num", width: "8rem", rank: 4, cell: (row) => html`<span title="commits, and ends, in records per second">${rate(row.commit_rate)}, ${rate(row.end_rate)}</span>` },
  { key: "eta", head: "Gone in", kind: "num", width: "6rem", rank: 4, cell: (row) => duration(row.eta_ms) },
  { key: "status", head: "Status", width: "7rem", narrow: "5.9rem", cell: (row) => html`<span title=${row.status_rule}><${Status} of=${row.status} /></span>` },
  { key: "rule", head: "Because", kind: "wide", rank: 4, cell: (row) => html`<span class="faint" title=${row.status_rule}>${row.status_rule ?? "–"}</span>` },
];

/** The group's partitions, read page by page up to where somebody looks. */
function usePartitions(groupId, ask, needsAll) {
  const [state, setState] = useState({ rows: [], next: undefined, error: null, isBusy: true, sinceMs: null });
  const mine = useRef(null);
  const key = JSON.stringify([groupId, ask, needsAll]);
  useEffect(() => {
    const aborted = new AbortController();
    let wanted = needsAll ? Infinity : PAGE_ROWS;
    let isFirst = true;
    let running = false;
    let timer = 0;
    const read = async () => {
      if (running || document.hidden) return;
      running = true;
      try {
        const rows = [];
        let cursor;
        do {
          const answer = await get(pathOf("groups", groupId, "partitions"), { ...ask, limit: PAGE_ROWS, cursor }, aborted.signal);
          rows.push(...answer.partitions);
          cursor = answer.next_cursor;
          // What is read anew replaces the old at its end, so that the table does not shrink meanwhile.
          const isDone = cursor === null || rows.length >= wanted;
          if (isFirst || isDone) setState({ rows: [...rows], next: cursor, error: null, isBusy: false, sinceMs: answer.since_ms });
        } while (cursor !== null && rows.length < wanted);
        isFirst = false;
      } catch (error) {
        if (error.name !== "AbortError") setState((was) => ({ ...was, error, isBusy: false }));
      } finally {
        running = false;
      }
    };
    const later = (ms) => (timer ||= setTimeout(() => ((timer = 0), read()), ms));
    mine.current = (last, loaded) => {
      if (last > loaded - 50 && wanted <= loaded) {
        wanted = loaded + PAGE_ROWS;
        read();
      }
    };
    setState({ rows: [], next: undefined, error: null, isBusy: true, sinceMs: null });
    read();
    const clock = setInterval(read, REFRESH_MS);
    const unlisten = onEvent((event) => (event.group_id === undefined || event.group_id === groupId) && later(500));
    return () => {
      aborted.abort();
      clearInterval(clock);
      clearTimeout(timer);
      unlisten();
    };
  }, [key]);
  return { ...state, see: (first, last) => state.next && mine.current?.(last, state.rows.length) };
}

export function Partitions({ group, groupId }) {
  const { query } = route.value;
  const ask = { topic: query.topic, status: query.status, owned: query.owned };
  const partition = (query.partition ?? "").trim();
  const topics = [...new Set([...group.topics, ...Object.keys(group.offsets)])];
  const { rows, next, error, isBusy, sinceMs, see } = usePartitions(groupId, ask, partition !== "");
  const set = (name) => (event) => refine({ [name]: event.target.value });
  const shown = partition === "" ? rows : rows.filter((row) => String(row.partition) === partition);
  return html`<form class="filters" aria-label="Partitions" onSubmit=${(event) => event.preventDefault()}>
      <label>Topic<select value=${query.topic ?? ""} onChange=${set("topic")}><option value="">all</option>${topics.map((topic) => html`<option value=${topic}>${topic}</option>`)}</select></label>
      <label>Partition<input type="number" min="0" data-key="/" value=${partition} onInput=${set("partition")} /></label>
      <label>Status<select value=${query.status ?? ""} onChange=${set("status")}><option value="">any</option>${["OK", "WARN", "STOP", "STALL", "REWIND"].map((status) => html`<option value=${status}>${status}</option>`)}</select></label>
      <label>Owner<select value=${query.owned ?? ""} onChange=${set("owned")}><option value="">any</option><option value="true">owned</option><option value="false">nobody's</option></select></label>
      <span class="faint">${count(shown.length, "partition")}${next ? " so far" : ""}${sinceMs ? html`; owners before are known from <${Ago} at=${sinceMs} /> on` : ""}</span>
    </form>
    <${Failed} problem=${error} stale=${rows.length > 0} />
    <${Table} label="List of partitions" columns=${columns} count=${shown.length} rowAt=${(i) => shown[i]} keyOf=${(row) => `${row.partition} ${row.topic}`} onRange=${see} busy=${isBusy} failed=${error !== null}
      empty=${Object.values(ask).some(Boolean) || partition ? "No partition is like that." : "The group has neither subscribed to a topic nor committed one."} />`;
}
