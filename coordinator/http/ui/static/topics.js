// The registered topics, and the groups of each.
import { html, useState } from "./html.js";
import { get, pathOf } from "./api.js";
import { Text, count, number } from "./format.js";
import { Failed, Figure, Loading } from "./notices.js";
import { useResource } from "./resource.js";
import { List, Table } from "./table.js";
import { shortGroupColumns, useTyped } from "./groups.js";
import { hrefOf, refine, route } from "./route.js";

const PAGE_ROWS = 500;

const columns = [
  { key: "topic", head: "Topic", kind: "id", cell: (row) => html`<a class="row-link" href=${hrefOf(["topics", row.topic])}><${Text}>${row.topic}<//></a>` },
  { key: "partitions", head: "Partitions", kind: "num", width: "7rem", cell: (row) => number(row.partitions) },
  { key: "ends", head: "Ends known", kind: "num", width: "8rem", rank: 2, cell: (row) => `${number(Object.keys(row.end_offsets).length)} of ${number(row.partitions)}` },
  { key: "racks", head: "Racks", width: "7rem", rank: 3, cell: (row) => (row.replica_racks.length ? "known" : html`<span class="faint">–</span>`) },
];

export function TopicsView() {
  const { query } = route.value;
  const typed = useTyped(query.prefix ?? "", (prefix) => refine({ prefix }));
  const [wanted, setWanted] = useState(PAGE_ROWS);
  const { data, error, reload, isLoading } = useResource(
    async (aborted) => {
      const topics = [];
      let cursor;
      do {
        const answer = await get(pathOf("topics"), { prefix: query.prefix, limit: PAGE_ROWS, cursor }, aborted);
        topics.push(...answer.topics);
        cursor = answer.next_cursor;
      } while (cursor !== null && topics.length < wanted);
      return { topics, more: cursor !== null };
    },
    [query.prefix, wanted],
  );
  const topics = data?.topics ?? [];
  return html`<section>
    <div class="head"><h1 id="title">Topics</h1><p class="faint">${data && `${count(topics.length, "registered topic")}${data.more ? " so far" : ""}`}</p></div>
    <form class="filters" role="search" aria-label="Search topics" onSubmit=${(event) => event.preventDefault()}>
      <label class="grow">Begins with<input type="search" data-key="/" value=${typed.text} onInput=${typed.onInput} /></label></form>
    <${Failed} problem=${error} retry=${reload} stale=${data !== undefined} />
    <${List} label="List of topics" rows=${topics} columns=${columns} keyOf=${(row) => row.topic} busy=${isLoading && !data} failed=${error !== null}
      onRange=${(_, last) => data?.more && last > topics.length - 50 && setWanted(topics.length + PAGE_ROWS)}
      empty=${query.prefix ? "No topic begins so." : "No topic is registered. Groups work without; where a topic is, its growth rebalances them and their lag is known."} />
  </section>`;
}

export function TopicView({ topic }) {
  const [wanted, setWanted] = useState(PAGE_ROWS);
  const { data, error, reload } = useResource(
    async (aborted) => {
      const groups = [];
      let answer;
      let cursor;
      do {
        answer = await get(pathOf("topics", topic), { limit: PAGE_ROWS, cursor }, aborted);
        groups.push(...answer.groups);
        cursor = answer.next_cursor;
      } while (cursor && groups.length < wanted);
      return { ...answer, groups, more: Boolean(cursor) };
    },
    [topic, wanted],
    { everyMs: 8000 },
  );
  const ends = Object.entries(data?.end_offsets ?? {});
  return html`<section>
    <p class="crumbs"><a href=${hrefOf(["topics"])}>Topics</a> ›</p>
    <div class="head"><h1 id="title"><${Text}>${topic}<//></h1>${data && !data.is_registered && html`<p class="faint">not registered</p>`}</div>
    <${Failed} problem=${error} retry=${reload} stale=${data !== undefined} />
    ${!data && !error && html`<${Loading} what="the topic" />`}
    ${data && html`<dl class="figures">
      <${Figure} name="Partitions" value=${data.partitions} />
      <${Figure} name="Groups" value=${data.group_count} />
      <${Figure} name="Ends known" value=${ends.length} note=${ends.length ? "as last reported" : "none reported"} />
    </dl>
    <h2>Groups that read it</h2>
    <${Table} label="Groups of the topic" columns=${shortGroupColumns} count=${data.groups.length} rowAt=${(i) => data.groups[i]} keyOf=${(row) => row.group_id}
      onRange=${(_, last) => data.more && last > data.groups.length - 50 && setWanted(data.groups.length + PAGE_ROWS)} empty="No group reads it." />
    ${ends.length > 0 && html`<details><summary>The ends of its partitions</summary><div class="scroll short" role="region" aria-label="Ends" tabindex="0"><table>
      <thead><tr><th scope="col" class="num">Partition</th><th scope="col" class="num">End</th></tr></thead>
      <tbody>${ends.slice(0, 1000).map(([partition, end]) => html`<tr><th scope="row" class="num">${partition}</th><td class="num">${number(end)}</td></tr>`)}</tbody></table></div></details>`}`}
  </section>`;
}
