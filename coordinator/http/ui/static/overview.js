// What somebody wants to know first: is all well, and if not, where.
import { html, useEffect } from "./html.js";
import { get, pathOf } from "./api.js";
import { Ago, Text, compact, count, number } from "./format.js";
import { Failed, Figure, Loading, say } from "./notices.js";
import { NodeState, useCluster } from "./cluster.js";
import { shortGroupColumns } from "./groups.js";
import { recent } from "./live.js";
import { useResource } from "./resource.js";
import { List } from "./table.js";
import { hrefOf } from "./route.js";

const TOP = 10;

async function load(aborted) {
  const ask = (more) => get(pathOf("groups"), { limit: TOP, ...more }, aborted);
  const [all, bad, slow, joining, syncing, frozen] = await Promise.all([
    ask({ limit: 1, totals: true }),
    ask({ status: "err", sort: "lag", descending: true }),
    ask({ status: "warn", sort: "lag", descending: true }),
    ask({ state: "PreparingRebalance" }),
    ask({ state: "CompletingRebalance" }),
    ask({ frozen: true }),
  ]);
  const seen = new Set();
  const once = (groups) => groups.filter((group) => !seen.has(group.group_id) && seen.add(group.group_id));
  const attention = once([...joining.groups, ...syncing.groups, ...bad.groups, ...slow.groups, ...frozen.groups]);
  return { totals: all.totals, unavailable: all.unavailable_shards, attention: attention.slice(0, 3 * TOP) };
}

export function Overview() {
  const { data, error, reload } = useResource(load, [], { everyMs: 6000, wants: () => true });
  const totals = data?.totals;
  const sentence = totals ? sentenceOf(totals, data) : "";
  useEffect(() => {
    if (sentence) say(sentence);
  }, [sentence]);
  return html`<section>
    <div class="head"><h1 id="title">Overview</h1></div>
    ${sentence && html`<p class="explanation">${sentence}</p>`}
    <${Failed} problem=${error} retry=${reload} stale=${data !== undefined} />
    ${!data && !error && html`<${Loading} what="the groups" />`}
    ${totals && html`<${Totals} totals=${totals} />
      <div class="columns"><div>
        <h2>What needs attention</h2>
        <${List} label="Groups that need attention" rows=${data.attention} columns=${shortGroupColumns} keyOf=${(row) => row.group_id} empty=${totals.group_count ? "Nothing: no group rebalances, lags behind or is frozen." : "There is no group yet. A group begins with its first member."} />
        <p><a class="button" href=${hrefOf(["groups"])}>All ${count(totals.group_count, "group")}</a></p>
        <${Nodes} />
      </div><${Feed} /></div>`}
  </section>`;
}

function sentenceOf(totals, { unavailable }) {
  const parts = [];
  const moving = (totals.by_state.PreparingRebalance ?? 0) + (totals.by_state.CompletingRebalance ?? 0);
  if (moving) parts.push(`${count(moving, "group")} ${moving === 1 ? "rebalances" : "rebalance"} now`);
  if (totals.by_status.ERR) parts.push(`${number(totals.by_status.ERR)} ${totals.by_status.ERR === 1 ? "does" : "do"} not get on (ERR)`);
  if (totals.by_status.WARN) parts.push(`${number(totals.by_status.WARN)} ${totals.by_status.WARN === 1 ? "falls" : "fall"} behind (WARN)`);
  if (unavailable.length) parts.push(`${count(unavailable.length, "shard")} cannot be listed`);
  const head = `${count(totals.group_count, "group")} with ${count(totals.member_count, "member")}`;
  return parts.length ? `${head}: ${parts.join(", ")}.` : `${head}; nothing stands out.`;
}

function Totals({ totals }) {
  const by = (table, key) => table[key] ?? 0;
  const to = (query) => hrefOf(["groups"], query);
  const moving = by(totals.by_state, "PreparingRebalance") + by(totals.by_state, "CompletingRebalance");
  return html`<dl class="figures">
    <${Figure} name="Groups" value=${totals.group_count} href=${to({})} />
    <${Figure} name="Stable" value=${by(totals.by_state, "Stable")} href=${to({ state: "Stable" })} />
    <${Figure} name="Rebalancing" value=${moving} tone=${moving ? "warn" : ""} href=${to({ state: by(totals.by_state, "CompletingRebalance") > by(totals.by_state, "PreparingRebalance") ? "CompletingRebalance" : "PreparingRebalance" })} />
    <${Figure} name="Empty" value=${by(totals.by_state, "Empty")} href=${to({ state: "Empty" })} />
    <${Figure} name="ERR" value=${by(totals.by_status, "ERR")} tone=${by(totals.by_status, "ERR") ? "err" : ""} href=${to({ status: "err", sort: "lag", descending: true })} />
    <${Figure} name="WARN" value=${by(totals.by_status, "WARN")} tone=${by(totals.by_status, "WARN") ? "warn" : ""} href=${to({ status: "warn", sort: "lag", descending: true })} />
    <${Figure} name="Lag" value=${compact(totals.lag)} note="records" href=${to({ sort: "lag", descending: true })} />
    <${Figure} name="Members" value=${totals.member_count} href=${to({ sort: "member_count", descending: true })} />
  </dl>`;
}

function Nodes() {
  const { data, error } = useCluster(15_000);
  return html`<h2>Nodes</h2><${Failed} problem=${error} />
    ${data && html`<ul class="nodes">${data.nodes.map((node) => html`<li><a href=${hrefOf(["cluster"])}><${Text}>${node.node_id}<//></a> <${NodeState} of=${node.state} /> <span class="faint">${count(node.shards, "shard")}</span></li>`)}</ul>`}`;
}

const KINDS = {
  group_created: () => "was created",
  group_changed: (event) => `is ${event.state} with ${count(event.member_count, "member")}`,
  group_removed: (event) => `is gone (${event.cause})`,
  group_unloaded: () => "is loaded again",
  member_replaced: () => "has a static member back",
  rebalance_began: (event) => `rebalances: ${event.reason}`,
  rebalance_held: (event) => `holds a rebalance: ${event.reason}`,
  group_frozen: () => "is frozen",
  group_thawed: () => "is no longer frozen",
  join_phase_ended: (event) => `has ${count(event.member_count, "member")} in generation ${event.generation_id}`,
  sync_phase_ended: (event) => (event.partitions_moved ? `is in order, ${count(event.partitions_moved, "partition")} moved` : "is in order"),
  session_expired: (event) => (event.pending ? "had an id that nobody used" : `lost ${event.member_id}`),
  offsets_removed: (event) => `lost offsets (${event.cause})`,
  offsets_reset: (event) => `had its offsets reset to ${event.to}`,
  partitions_moved: (event) => `gave ${count(event.move_count, "partition")} to others`,
};

/** What happens, as it happens. */
function Feed() {
  const events = recent.value;
  return html`<aside aria-labelledby="feed"><h2 id="feed">As it happens</h2>
    ${events.length === 0 ? html`<p class="faint">Nothing yet since this page was opened.</p>` : html`<ol class="feed">${events.slice(0, 30).map((event) => html`<li><span class="faint"><${Ago} at=${event.at_ms} /></span> <a href=${hrefOf(["groups", event.group_id])}><${Text}>${event.group_id}<//></a> <${Text} as="span">${(KINDS[event.kind] ?? (() => event.kind.replaceAll("_", " ")))(event)}<//></li>`)}</ol>`}
  </aside>`;
}
