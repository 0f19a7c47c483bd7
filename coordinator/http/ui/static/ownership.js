// Who owned what, and when: one row a partition, or a member, from the history of ownership and from who owns it now.
import { html, useState } from "./html.js";
import { get, pathOf } from "./api.js";
import { Ago, Member, Text, clock, count, nameOf, now, number } from "./format.js";
import { Failed, Loading } from "./notices.js";
import { isOf, useResource } from "./resource.js";
import { hrefOf, refine, route } from "./route.js";

const PARTITIONS = 500;
const CHANGES = 1000;
const COLOURS = 10;
const HOUR_MS = 3_600_000;
const SECONDS_BELOW_MS = 300_000;
const SPANS = [[600_000, "10 minutes"], [HOUR_MS, "1 hour"], [6 * HOUR_MS, "6 hours"], [24 * HOUR_MS, "a day"]];

export function Ownership({ group, groupId }) {
  const { query } = route.value;
  const topics = [...new Set([...group.topics, ...Object.keys(group.offsets)])];
  const topic = query.topic ?? (topics.length === 1 ? topics[0] : "");
  const partition = (query.partition ?? "").trim();
  const { data, error, reload } = useResource(
    async (aborted) => {
      const [partitions, history] = await Promise.all([
        get(pathOf("groups", groupId, "partitions"), { topic, limit: PARTITIONS }, aborted),
        get(pathOf("groups", groupId, "ownership"), { topic, partition: topic ? partition : "", limit: CHANGES }, aborted),
      ]);
      return { partitions, history };
    },
    [groupId, topic, partition],
    { everyMs: 15_000, wants: (event) => isOf(groupId)(event) && event.kind !== "offsets_committed" },
  );
  const set = (name) => (event) => refine({ [name]: event.target.value });
  return html`<form class="filters" aria-label="Ownership" onSubmit=${(event) => event.preventDefault()}>
      <label>Topic<select value=${topic} onChange=${set("topic")}><option value="">all</option>${topics.map((name) => html`<option value=${name}>${name}</option>`)}</select></label>
      <label>Partition<input type="number" min="0" data-key="/" disabled=${!topic} value=${partition} onInput=${set("partition")} /></label>
      <label>Rows<select value=${query.by ?? ""} onChange=${set("by")}><option value="">partitions</option><option value="member">members</option></select></label>
      <label>Span<select value=${query.span ?? ""} onChange=${set("span")}><option value="">all that is known</option>${SPANS.map(([ms, text]) => html`<option value=${ms}>${text}</option>`)}</select></label>
    </form>
    <${Failed} problem=${error} retry=${reload} stale=${data !== undefined} />
    ${data ? html`<${History} ...${{ data, partition: topic ? partition : "", query, groupId }} />` : !error && html`<${Loading} what="the history" />`}`;
}

function History({ data, partition, query, groupId }) {
  const { changes, since_ms: knownSinceMs, next_cursor: more } = data.history;
  const oldest = more && changes.length ? changes.at(-1).at_ms : knownSinceMs;
  const until = now.value;
  const span = Number(query.span) || Infinity;
  const from = Math.max(oldest ?? until - HOUR_MS, until - span, until - 7 * 24 * HOUR_MS);
  const rows = data.partitions.partitions.filter((row) => partition === "" || String(row.partition) === partition);
  const lines = rows.map((row) => ({ row, segments: segmentsOf(row, changes, from, until) }));
  const owners = coloursOf(lines);
  if (!rows.length) return html`<p class="empty">No partition is like that.</p>`;
  return html`<p class="faint">From ${clock(from)} to now, ${count(changes.length, "change")}.${more ? " What was before is not read." : ""} The history is that of the node that coordinates the group, since <${Ago} at=${knownSinceMs} />.</p>
    ${query.by === "member" ? html`<${ByMember} ...${{ lines, owners, from, until }} />` : html`<${ByPartition} ...${{ lines, owners, from, until }} />`}
    ${data.partitions.next_cursor && html`<p class="faint">The first ${number(PARTITIONS)} partitions; choose a topic to see others.</p>`}
    <${Changes} changes=${changes} groupId=${groupId} />`;
}

const keyOf = (member) => (member ? member.group_instance_id ?? member.member_id : "");

/** The row's owners between two times: back from who owns it now, change by change. */
export function segmentsOf(row, changes, from, until) {
  const segments = [];
  let owner = row.owner;
  let end = until;
  for (const change of changes) {
    if (change.topic !== row.topic || change.partition !== row.partition) continue;
    if (change.at_ms < from) break;
    segments.unshift({ owner, from: change.at_ms, to: end });
    owner = change.from_member;
    end = change.at_ms;
  }
  segments.unshift({ owner, from, to: end });
  return segments.filter((segment) => segment.to > segment.from);
}

function coloursOf(lines) {
  const colours = new Map();
  for (const { segments } of lines) for (const { owner } of segments) if (owner && !colours.has(keyOf(owner))) colours.set(keyOf(owner), { colour: colours.size % COLOURS, owner });
  return colours;
}

function Axis({ from, until }) {
  const middle = from + (until - from) / 2;
  const seconds = until - from < SECONDS_BELOW_MS; // there is no room for three times with seconds
  return html`<th scope="col" class="axis"><span class="scale"><span>${clock(from, { seconds })}</span><span>${seconds ? "" : clock(middle, { seconds })}</span><span>now</span></span></th>`;
}

function ByPartition({ lines, owners, from, until }) {
  const [all, setAll] = useState(false);
  const shown = all ? lines : lines.slice(0, 60);
  return html`<div class="scroll" role="region" aria-label="Owners of each partition over time" tabindex="0"><table class="bars history">
      <thead><tr><th scope="col">Partition</th><${Axis} ...${{ from, until }} /><th scope="col">Owner now</th><th scope="col" class="rank2">Before</th></tr></thead>
      <tbody>${shown.map(({ row, segments }) => html`<tr key=${`${row.partition} ${row.topic}`}>
        <th scope="row"><${Text}>${row.topic}<//> ${row.partition}</th>
        <td class="bar"><span class="track tall">${segments.map((segment) => html`<${Segment} ...${{ segment, owners, from, until }} />`)}</span></td>
        <td><${Member} of=${row.owner} /></td><td class="rank2">${row.previous_owner ? html`<${Member} of=${row.previous_owner} />` : html`<span class="faint">not known</span>`}</td></tr>`)}</tbody>
    </table></div>
    ${lines.length > 60 && html`<p><button type="button" onClick=${() => setAll(!all)}>${all ? "Show fewer" : `Show all ${number(lines.length)}`}</button></p>`}`;
}

function Segment({ segment, owners, from, until, text }) {
  const share = (at) => ((at - from) / (until - from)) * 100;
  const width = share(segment.to) - share(segment.from);
  const name = text ?? nameOf(segment.owner);
  const tone = segment.owner ? `c${owners.get(keyOf(segment.owner))?.colour ?? 0}` : "nobody";
  return html`<span class=${`segment ${tone}`} style=${{ left: `${share(segment.from)}%`, width: `${width}%` }} title=${`${name}\n${clock(segment.from)} – ${clock(segment.to)}`}>${width > 4 && html`<${Text}>${name}<//>`}</span>`;
}

/** One row a member: how many partitions it had, in each stretch of time in which that stayed the same. */
function ByMember({ lines, owners, from, until }) {
  const rows = [...owners.values()].map(({ owner }) => ({ owner, steps: stepsOf(keyOf(owner), lines, from, until) }));
  return html`<div class="scroll" role="region" aria-label="Partitions of each member over time" tabindex="0"><table class="bars history">
    <thead><tr><th scope="col">Member</th><${Axis} ...${{ from, until }} /><th scope="col" class="num">Now</th></tr></thead>
    <tbody>${rows.slice(0, 200).map(({ owner, steps }) => html`<tr key=${keyOf(owner)}><th scope="row"><${Member} of=${owner} /></th>
      <td class="bar"><span class="track tall">${steps.filter((step) => step.count > 0).map((step) => html`<${Segment} ...${{ segment: { ...step, owner }, owners, from, until, text: number(step.count) }} />`)}</span></td>
      <td class="num">${number(steps.at(-1)?.count ?? 0)}</td></tr>`)}</tbody>
  </table></div>`;
}

function stepsOf(key, lines, from, until) {
  const changes = new Map();
  for (const { segments } of lines) {
    for (const segment of segments) {
      if (keyOf(segment.owner) !== key) continue;
      changes.set(segment.from, (changes.get(segment.from) ?? 0) + 1);
      changes.set(segment.to, (changes.get(segment.to) ?? 0) - 1);
    }
  }
  const times = [...new Set([from, ...changes.keys(), until])].sort((a, b) => a - b);
  const steps = [];
  let held = 0;
  for (let i = 0; i < times.length - 1; i++) {
    held += changes.get(times[i]) ?? 0;
    if (steps.length && steps.at(-1).count === held) steps.at(-1).to = times[i + 1];
    else steps.push({ count: held, from: times[i], to: times[i + 1] });
  }
  return steps;
}

function Changes({ changes, groupId }) {
  const [all, setAll] = useState(false);
  if (!changes.length) return html`<p class="faint">No partition has changed hands since then.</p>`;
  const shown = changes.slice(0, all ? CHANGES : 50);
  return html`<h2>Changes</h2><div class="scroll" role="region" aria-label="Changes of owners" tabindex="0"><table>
    <thead><tr><th scope="col">When</th><th scope="col">Partition</th><th scope="col">From</th><th scope="col">To</th><th scope="col" class="num">Rebalance</th></tr></thead>
    <tbody>${shown.map((change) => html`<tr><td class="nowrap">${clock(change.at_ms)}</td><th scope="row"><${Text}>${change.topic}<//> ${change.partition}</th><td><${Member} of=${change.from_member} /></td><td><${Member} of=${change.to_member} /></td><td class="num"><a href=${hrefOf(["groups", groupId, "rebalances", String(change.rebalance_id)])}>${change.rebalance_id}</a></td></tr>`)}</tbody>
  </table></div>
  ${changes.length > 50 && html`<p><button type="button" onClick=${() => setAll(!all)}>${all ? "Show fewer" : `Show all ${number(changes.length)}`}</button></p>`}`;
}
