// Why a group rebalanced, in the API's own sentence, and how: a waterfall of who joined when, and who is awaited still.
import { html, useState } from "./html.js";
import { get, pathOf } from "./api.js";
import { Ago, Member, Text, clock, count, duration, now, number } from "./format.js";
import { Badge, Outcome } from "./badges.js";
import { Failed, Loading } from "./notices.js";
import { useResource } from "./resource.js";
import { hrefOf } from "./route.js";

const ROWS = 40;

/** As the group itself: while the sentence of the last one says for how long somebody is awaited, it is read each second. */
const paceOf = (data) => (data?.rebalances[0]?.awaited_count ? 1000 : 5000);

export const useRebalances = (groupId, wants) => useResource((aborted) => get(pathOf("groups", groupId, "rebalances"), {}, aborted), [groupId], { everyMs: paceOf, wants });

export function Rebalances({ groupId, rest }) {
  const wants = (event) => event.group_id === groupId && event.kind !== "offsets_committed";
  const { data, error, reload } = useRebalances(groupId, wants);
  if (!data) return error ? html`<${Failed} problem=${error} retry=${reload} />` : html`<${Loading} what="the rebalances" />`;
  const rows = data.rebalances;
  const chosen = rest[0] ? rows.find((row) => String(row.rebalance_id) === rest[0]) : rows[0];
  return html`<${Failed} problem=${error} stale />
    ${rest[0] && !chosen && html`<div class="notice warn"><p>Rebalance <${Text}>${rest[0]}<//> is not among the last ones any more.</p></div>`}
    ${chosen && html`<${Waterfall} key=${chosen.rebalance_id} rebalance=${chosen} />`}
    ${rows.length === 0 && html`<p class="empty">No rebalance is known.</p>`}
    ${rows.length > 0 && html`<h2>The last ${count(rows.length, "rebalance")}</h2>
    <div class="scroll" role="region" aria-label="Rebalances" tabindex="0"><table class="rebalances">
      <thead><tr><th scope="col" class="num">No.</th><th scope="col">Began</th><th scope="col">What happened</th><th scope="col">Outcome</th><th scope="col" class="num rank2">Joining</th><th scope="col" class="num rank2">Syncing</th><th scope="col" class="num rank3">Members</th><th scope="col" class="num rank2">Moved</th></tr></thead>
      <tbody>${rows.map((row) => html`<tr key=${row.rebalance_id} class=${row === chosen ? "chosen" : ""}>
        <th scope="row" class="num"><a class="row-link" href=${hrefOf(["groups", groupId, "rebalances", String(row.rebalance_id)])} aria-current=${row === chosen ? "true" : undefined}>${row.rebalance_id}</a></th>
        <td class="nowrap"><${Ago} at=${row.began_at_ms} /></td><td class="sentence"><${Text} as="span">${row.sentence}<//></td><td><${Outcome} of=${row.outcome} /></td>
        <td class="num rank2">${duration(row.join_phase_ms)}</td><td class="num rank2">${duration(row.sync_phase_ms)}</td><td class="num rank3">${number(row.member_count)}</td><td class="num rank2">${number(row.partitions_moved)}</td></tr>`)}</tbody>
    </table></div>`}`;
}

const FOR = { join: "has not joined", sync: "has not asked for its assignment", assignment: "has not brought the assignment" };

function Waterfall({ rebalance }) {
  const [all, setAll] = useState(false);
  const isRunning = rebalance.outcome === "in_progress";
  const lastedMs = isRunning ? Math.max(0, now.value - rebalance.began_at_ms) : (rebalance.join_phase_ms ?? 0) + (rebalance.sync_phase_ms ?? 0);
  const joinMs = rebalance.join_phase_ms ?? lastedMs;
  const joined = rebalance.joined ?? [];
  const latest = joined.reduce((most, member) => Math.max(most, member.after_ms), 0);
  const spanMs = Math.max(lastedMs, joinMs, latest, 1);
  const awaited = rebalance.awaited.map((member) => ({ ...member, isAwaited: true }));
  const waiting = new Set(awaited.map((member) => member.member_id));
  const arrived = joined.filter((member) => !waiting.has(member.member_id)).sort((a, b) => b.after_ms - a.after_ms);
  const rows = [...awaited, ...arrived];
  const shown = all ? rows : rows.slice(0, ROWS);
  return html`<article class="card waterfall" aria-labelledby="waterfall">
    <h2 id="waterfall">Rebalance ${rebalance.rebalance_id} <${Outcome} of=${rebalance.outcome} /></h2>
    <p class="lead"><${Text} as="span">${rebalance.sentence}<//></p>
    <dl class="facts">
      <div><dt>Began</dt><dd>${clock(rebalance.began_at_ms)} (<${Ago} at=${rebalance.began_at_ms} />)</dd></div>
      <div><dt>Trigger</dt><dd>${rebalance.trigger.replaceAll("_", " ")}</dd></div>
      <div><dt>Reason</dt><dd><${Text} as="span">${rebalance.reason}<//></dd></div>
      <div><dt>Generation</dt><dd>${rebalance.previous_generation_id} → ${rebalance.generation_id ?? "not made yet"}</dd></div>
      <div><dt>Lasted</dt><dd>${isRunning ? `${duration(Math.floor(lastedMs / 1000) * 1000)} so far` : duration(lastedMs)}</dd></div>
    </dl>
    ${rebalance.further_count > 0 && html`<details><summary>${count(rebalance.further_count, "further cause")}</summary><ul>${rebalance.further.map((cause) => html`<li><${Ago} at=${cause.at_ms} />: <${Text} as="span">${cause.reason}<//></li>`)}</ul></details>`}
    ${rebalance.joined === null && html`<p class="faint">Who joined when is not known: the rebalance was before this node took the group over.</p>`}
    ${rows.length > 0 && html`<div class="scroll" role="region" aria-label="Who joined when" tabindex="0"><table class="bars">
      <caption class="unseen-text">Who joined how long after the beginning of rebalance ${rebalance.rebalance_id}</caption>
      <thead><tr><th scope="col">Member</th><th scope="col" class="axis"><span class="scale"><span>0</span><span>${phases(rebalance, joinMs)}</span><span>${duration(spanMs)}</span></span></th><th scope="col" class="num">Joined</th></tr></thead>
      <tbody>${shown.map((member) => html`<tr key=${member.member_id} class=${member.isAwaited ? "awaited" : ""}>
        <th scope="row"><${Member} of=${member} />${member.is_new && html` <small class="faint">new</small>`}</th>
        <td class="bar"><${Bar} ...${{ member, joinMs, spanMs, lastedMs, synced: rebalance.sync_phase_ms !== null }} /></td>
        <td class="num">${member.isAwaited ? html`<${Badge} tone="warn" mark="…">${FOR[member.awaited_for] ?? member.awaited_for}<//>` : `+${duration(member.after_ms)}`}</td></tr>`)}</tbody>
    </table></div>
    ${awaited.length > 0 && html`<ul class="faint">${awaited.slice(0, 5).map((member) => html`<li><${Member} of=${member} /> is awaited since <${Ago} at=${member.since_ms} />${member.heard_at_ms ? html`, and was heard of <${Ago} at=${member.heard_at_ms} />` : ""}.</li>`)}</ul>`}
    ${rebalance.awaited_count > awaited.length && html`<p class="faint">${number(rebalance.awaited_count - awaited.length)} more are awaited.</p>`}
    ${rows.length > ROWS && html`<p><button type="button" onClick=${() => setAll(!all)}>${all ? "Show fewer" : `Show all ${number(rows.length)}, the slowest first`}</button></p>`}`}
  </article>`;
}

function phases(rebalance, joinMs) {
  const join = rebalance.join_phase_ms === null ? "joining" : `joining ${duration(joinMs)}`;
  if (rebalance.join_phase_ms === null) return join;
  const sync = rebalance.sync_phase_ms === null ? "syncing" : `syncing ${duration(rebalance.sync_phase_ms)}`;
  return `${join}, ${sync}`;
}

/** From the beginning to the join a bar; from there to the end a line; what is awaited goes on, hatched, to now. */
function Bar({ member, joinMs, spanMs, lastedMs, synced }) {
  const share = (ms) => `${Math.min(100, (ms / spanMs) * 100)}%`;
  const part = (name, from, to) => html`<span class=${name} style=${{ left: share(from), width: `calc(${share(to)} - ${share(from)})` }}></span>`;
  if (member.isAwaited) {
    return html`<span class="track">${member.awaited_for !== "join" && part("joining", 0, joinMs)}${part("waiting", member.awaited_for === "join" ? 0 : joinMs, lastedMs)}</span>`;
  }
  return html`<span class="track">${part("joining", 0, member.after_ms)}${part("held", member.after_ms, joinMs)}${synced && part("syncing", joinMs, lastedMs)}<span class="dot" style=${{ left: share(member.after_ms) }}></span></span>`;
}
