// The members of a group: what each owns, its lag, and since when it has been there.
import { html, useState } from "./html.js";
import { Ago, Text, compact, count, duration, nameOf, number, rangesOf } from "./format.js";
import { List } from "./table.js";
import { open } from "./dialog.js";
import { RemoveMembers, missing } from "./actions.js";
import { Preview } from "./preview.js";
import { refine, route } from "./route.js";
import { useTyped } from "./groups.js";

/** What an assignment of a consumer gives, in a text: "clicks 0–3, 7; orders 1". Null if it is no consumer's. */
export function ownedText(assignment) {
  const topics = assignment?.partitions;
  if (!topics || typeof topics !== "object") return null;
  return Object.entries(topics)
    .filter(([, partitions]) => Array.isArray(partitions) && partitions.length)
    .map(([topic, partitions]) => `${topic} ${rangesOf(partitions)}`)
    .join("; ");
}

const CONNECTIONS = { channel: "WebSocket", http: "HTTP" };

export function Members({ group, groupId, reload }) {
  const { query } = route.value;
  const [chosen, setChosen] = useState(() => new Set());
  const typed = useTyped(query.member ?? "", (member) => refine({ member }));
  const sort = query.sort ?? "name";
  const descending = query.descending === "true";
  const words = (query.member ?? "").toLowerCase();
  const flapping = new Set(group.flapping.map((one) => `${one.client_id}\n${one.group_instance_id ?? ""}`));
  const rows = sorted(group.members.filter((member) => matches(member, words)), sort, descending);
  const here = [...chosen].filter((id) => group.members.some((member) => member.member_id === id));
  const not = missing(group, "operate");
  const toggle = (id) => {
    const next = new Set(here);
    if (!next.delete(id)) next.add(id);
    setChosen(next);
  };
  const columns = [
    { key: "name", head: "Member", kind: "id", sort: "name", cell: (member) => html`<label class="pick"><input type="checkbox" checked=${chosen.has(member.member_id)} onChange=${() => toggle(member.member_id)} aria-label=${`Choose ${nameOf(member)}`} />
        <span title=${member.member_id}><${Text}>${nameOf(member)}<//></span></label>` },
    { key: "what", head: "Notes", width: "10rem", rank: 2, cell: (member) => html`<${Notes} member=${member} group=${group} isFlapping=${flapping.has(`${member.client_id}\n${member.group_instance_id ?? ""}`)} />` },
    { key: "owned", head: "Owns", kind: "num", width: "5rem", narrow: "4rem", sort: "owned", cell: (member) => number(member.partition_count) },
    { key: "which", head: "Partitions", kind: "wide", rank: 2, cell: (member) => html`<${Owned} member=${member} />` },
    { key: "lag", head: "Lag", kind: "num", width: "6rem", narrow: "4.8rem", sort: "lag", cell: (member) => html`<span title=${number(member.lag)}>${compact(member.lag)}</span>` },
    { key: "joined", head: "Joined", kind: "num", width: "8rem", rank: 3, sort: "joined", cell: (member) => html`<${Ago} at=${member.joined_at_ms} />` },
    { key: "heard", head: "Heard of", kind: "num", width: "8rem", rank: 3, sort: "heard", cell: (member) => html`<${Ago} at=${member.heard_at_ms} />` },
    { key: "host", head: "Client, host", kind: "wide", width: "17rem", rank: 3, cell: (member) => html`<span title=${`session timeout ${duration(member.session_timeout_ms)}, rebalance timeout ${duration(member.rebalance_timeout_ms)}`}><${Text}>${member.client_id}<//>, <${Text}>${member.host}<//>${member.connection && html` <small class="faint">${CONNECTIONS[member.connection]}</small>`}</span>` },
  ];
  return html`<div class="toolbar">
      <label class="grow">Find<input type="search" data-key="/" placeholder="member, client, host or topic" value=${typed.text} onInput=${typed.onInput} /></label>
      <span class="faint">${count(rows.length, "member")}${here.length > 0 && `, ${number(here.length)} chosen`}</span>
      <button type="button" disabled=${Boolean(not) || !here.length} title=${not} onClick=${() => open(html`<${Preview} group=${group} leave=${here} />`)}>Preview without them…</button>
      <button type="button" class="danger" disabled=${Boolean(not) || !here.length} title=${not} onClick=${() => open(html`<${RemoveMembers} group=${group} members=${here} reload=${reload} />`)}>Remove…</button>
    </div>
    <${List} label="List of members" rows=${rows} columns=${columns} keyOf=${(member) => member.member_id} sort=${sort} descending=${descending}
      onSort=${(name, down) => refine({ sort: name, descending: down ? "true" : "" })} empty=${group.members.length ? "No member is like that." : "The group has no members."} />`;
}

function Notes({ member, group, isFlapping }) {
  const notes = [];
  if (member.is_leader) notes.push("leader");
  if (isFlapping) notes.push("flapping");
  if (group.state === "Stable" && member.partition_count === 0) notes.push("idle");
  if (member.group_instance_id !== null) notes.push("static");
  const awaited = group.awaited.find((one) => one.member_id === member.member_id);
  if (awaited) notes.unshift("awaited");
  return html`<span class=${awaited || isFlapping ? "" : "faint"}>${notes.join(", ") || "–"}</span>`;
}

function Owned({ member }) {
  const text = ownedText(member.assignment);
  if (text === null) return html`<span class="faint">${member.assignment === null ? "–" : "not a consumer's"}</span>`;
  if (text === "") return html`<span class="faint">nothing</span>`;
  return html`<span title=${text}><${Text}>${text}<//></span>`;
}

function matches(member, words) {
  if (!words) return true;
  const texts = [member.member_id, member.group_instance_id, member.client_id, member.host, ...Object.keys(member.assignment?.partitions ?? {})];
  return texts.some((text) => text?.toLowerCase().includes(words));
}

const KEYS = {
  name: (member) => nameOf(member),
  owned: (member) => member.partition_count,
  lag: (member) => member.lag,
  joined: (member) => member.joined_at_ms,
  heard: (member) => member.heard_at_ms,
};

const natural = new Intl.Collator("en", { numeric: true });

function sorted(members, sort, descending) {
  const key = KEYS[sort] ?? KEYS.name;
  const sign = descending ? -1 : 1;
  return [...members].sort((a, b) => {
    const [x, y] = [key(a), key(b)];
    if (x === y) return a.member_id < b.member_id ? -1 : 1;
    if (x === null || x === undefined) return 1; // what is not known stands last, either way
    if (y === null || y === undefined) return -1;
    return (typeof x === "string" ? natural.compare(x, y) : x - y) * sign;
  });
}
