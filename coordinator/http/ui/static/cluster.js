// The nodes, and who coordinates which shard.
import { html } from "./html.js";
import { get, pathOf } from "./api.js";
import { Ago, Text, count, number } from "./format.js";
import { Badge } from "./badges.js";
import { Failed, Figure, Loading } from "./notices.js";
import { useResource } from "./resource.js";
import { List } from "./table.js";

const STATES = { live: ["ok", "●"], draining: ["warn", "◐"], gone: ["err", "✕"] };

export function NodeState({ of: state }) {
  const [tone, mark] = STATES[state] ?? ["idle", "•"];
  return html`<${Badge} tone=${tone} mark=${mark}>${state}<//>`;
}

const nodeColumns = [
  { key: "node", head: "Node", kind: "id", cell: (node) => html`<${Text}>${node.node_id}<//>` },
  { key: "state", head: "State", width: "8rem", cell: (node) => html`<${NodeState} of=${node.state} />` },
  { key: "shards", head: "Shards", kind: "num", width: "6rem", cell: (node) => number(node.shards) },
  { key: "preferred", head: "Preferred for", kind: "num", width: "8rem", rank: 2, cell: (node) => number(node.preferred_shards) },
  { key: "url", head: "URL", kind: "id", rank: 2, cell: (node) => html`<${Text}>${node.url}<//>` },
  { key: "rack", head: "Rack", width: "7rem", rank: 3, cell: (node) => html`<${Text}>${node.rack}<//>` },
  { key: "release", head: "Release", width: "7rem", rank: 3, cell: (node) => html`<${Text}>${node.release}<//>` },
  { key: "started", head: "Started", kind: "num", width: "9rem", rank: 2, cell: (node) => html`<${Ago} at=${node.started_at_ms} />` },
];

const shardColumns = [
  { key: "shard", head: "Shard", kind: "num", width: "6rem", cell: (shard) => number(shard.shard) },
  { key: "owner", head: "Coordinated by", kind: "id", cell: (shard) => (shard.owner === null ? html`<${Badge} tone="err" mark="✕">no node<//>` : html`<${Text}>${shard.owner}<//>`) },
  { key: "nodes", head: "Preferred, then", kind: "wide", cell: (shard) => shard.nodes.map((node, i) => html`${i > 0 && ", "}<${Text}>${node}<//>`) },
];

export const useCluster = (everyMs = 5000) => useResource((aborted) => get(pathOf("cluster"), {}, aborted), [], { everyMs });

export function ClusterView() {
  const { data, error, reload } = useCluster();
  const orphans = data?.shards.filter((shard) => shard.owner === null).length;
  return html`<section>
    <div class="head"><h1 id="title">Cluster</h1></div>
    <${Failed} problem=${error} retry=${reload} stale=${data !== undefined} />
    ${!data && !error && html`<${Loading} what="the cluster" />`}
    ${data && html`<dl class="figures">
      <${Figure} name="Nodes" value=${data.nodes.length} note=${`${number(data.nodes.filter((node) => node.state === "live").length)} live`} />
      <${Figure} name="Shards" value=${data.shards.length} note=${orphans ? `${number(orphans)} without a node` : "all coordinated"} tone=${orphans ? "err" : ""} />
      <${Figure} name="This answer is from" value=${html`<${Text}>${data.node_id}<//>`} />
      <${Figure} name="Changes topics" value=${data.registry_owner === null ? "no node" : html`<${Text}>${data.registry_owner}<//>`} tone=${data.registry_owner === null ? "err" : ""} />
    </dl>
    <h2>${count(data.nodes.length, "node")}</h2>
    <${List} label="Nodes" rows=${data.nodes} columns=${nodeColumns} keyOf=${(node) => node.node_id} />
    <h2>${count(data.shards.length, "shard")}</h2>
    <${List} label="Shards" rows=${data.shards} columns=${shardColumns} keyOf=${(shard) => String(shard.shard)} />`}
  </section>`;
}
