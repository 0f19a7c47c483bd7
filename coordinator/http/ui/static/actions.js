// What an operator can do to a group, each with what it would do shown first.
import { html, useState } from "./html.js";
import { call, pathOf } from "./api.js";
import { Ago, Member, Text, clock, count, duration, nameOf, now, number } from "./format.js";
import { Action, open } from "./dialog.js";
import { Preview, Previewed, askPreview } from "./preview.js";
import { go } from "./route.js";

const ROWS_MAX = 200;
const PARTITIONS_MAX = 10_000; // the service takes no more in one request
const post = (groupId, parts, body) => call("POST", pathOf("groups", groupId, ...parts), { body });

/** Why the viewer may not do what needs this right on the group; "" if that is allowed. */
export const missing = (group, right) => (group.authorized_operations.includes(right) ? "" : `You do not have the right “${right}” on this group.`);

/** Those that are wanted in a hurry, beside the group's name. */
export function QuickActions({ group, reload }) {
  const not = missing(group, "operate");
  const show = (Dialog) => () => open(html`<${Dialog} group=${group} reload=${reload} />`);
  return html`<div class="quick">
    ${group.awaited_count > 0 && html`<button type="button" class="primary" disabled=${Boolean(not)} title=${not} onClick=${show(Proceed)}>Go on without ${number(group.awaited_count)}…</button>`}
    ${group.frozen_until_ms ? html`<button type="button" disabled=${Boolean(not)} title=${not} onClick=${show(Thaw)}>End the freeze…</button>` : html`<button type="button" disabled=${Boolean(not)} title=${not} onClick=${show(FreezeGroup)}>Freeze…</button>`}
    ${group.members.length > 0 && html`<button type="button" disabled=${Boolean(not)} title=${not} onClick=${show(Rebalance)}>Rebalance now…</button>`}
  </div>`;
}

const ALL = [
  ["operate", "Preview", "See what the assignment would be if members left or joined, or topics grew, as before a deploy.", "Preview…", (props) => html`<${Preview} ...${props} />`],
  ["operate", "Freeze", "Hold rebalances for a deploy; one follows for all of it.", "Freeze…", (props) => html`<${FreezeGroup} ...${props} />`],
  ["operate", "End the freeze", "Let what was held begin at once.", "End the freeze…", (props) => html`<${Thaw} ...${props} />`, (group) => (group.frozen_until_ms ? "" : "The group is not frozen.")],
  ["operate", "Rebalance now", "Begin a rebalance, also of a group that is frozen or cools down.", "Rebalance now…", (props) => html`<${Rebalance} ...${props} />`, (group) => (group.members.length ? "" : "The group has no members.")],
  ["operate", "Go on without the awaited", "End the wait now; who is awaited is left out, and comes back as a newcomer.", "Go on without them…", (props) => html`<${Proceed} ...${props} />`, (group) => (group.awaited_count ? "" : "Nobody is awaited.")],
  ["operate", "Cool-down", "Set how long after a rebalance the next one is held.", "Cool-down…", (props) => html`<${Cooldown} ...${props} />`],
  ["operate", "Longest wait", "Set for how long a rebalance waits for members before it goes on without them.", "Longest wait…", (props) => html`<${JoinWait} ...${props} />`],
  ["offsets", "Reset offsets", "Set the committed offsets of a group without members elsewhere.", "Reset offsets…", (props) => html`<${ResetOffsets} ...${props} />`],
  ["offsets", "Delete offsets", "Delete the committed offsets of topics that no member subscribes to.", "Delete offsets…", (props) => html`<${DeleteOffsets} ...${props} />`],
  ["delete", "Delete the group", "Delete a group without members, with its offsets.", "Delete the group…", (props) => html`<${DeleteGroup} ...${props} />`],
];

export function Actions({ group, reload }) {
  return html`<p class="faint">Each shows what it would do first. To remove members, choose them in <b>Members</b>.</p>
    <ul class="actions">${ALL.map(([right, title, about, label, dialog, why]) => {
      const not = missing(group, right) || why?.(group);
      return html`<li><div><h2>${title}</h2><p>${about}${not && html` <span class="faint">${not}</span>`}</p></div>
        <button type="button" disabled=${Boolean(not)} onClick=${() => open(dialog({ group, reload }))}>${label}</button></li>`;
    })}</ul>`;
}

function Reason({ value, onInput }) {
  return html`<label class="wide">Reason, for others to read<input type="text" maxlength="255" value=${value} onInput=${(event) => onInput(event.target.value)} /></label>`;
}

const orNull = (text) => text.trim() || null;

// --- holding and starting -------------------------------------------------------------------------------------------------

const ENDS = [
  ["time", "when the time is over"],
  ["members_present", "when all members of now are there again"],
  ["members_replaced", "when each member has gone and come back"],
];

function FreezeGroup({ group, reload }) {
  const [minutes, setMinutes] = useState(5);
  const [until, setUntil] = useState("members_replaced");
  const [reason, setReason] = useState("");
  const ms = Math.round(minutes * 60_000);
  const body = { duration_ms: ms, until, reason: orNull(reason) };
  return html`<${Action} title="Freeze the group" inputs=${[body]} label="Freeze" reload=${reload}
    about="No rebalance begins meanwhile: who leaves keeps others waiting for its partitions, who comes waits for its share. In the end one rebalance follows for all of it."
    preview=${async () => html`<p>Until <b>${clock(now.value + ms)}</b> at the latest (${duration(ms)}) no rebalance of ${count(group.members.length, "member")} begins; it ends ${ENDS.find(([name]) => name === until)[1]}.</p>
      ${until !== "time" && html`<p>Who has to be there: ${group.members.slice(0, 30).map((member, i) => html`${i > 0 && ", "}<${Text}>${member.group_instance_id ?? member.client_id}<//>`)}${group.members.length > 30 && ", …"}</p>`}
      ${group.frozen_until_ms && html`<p>It takes the place of the freeze until ${clock(group.frozen_until_ms)}.</p>`}`}
    execute=${async () => {
      const done = await call("PUT", pathOf("groups", group.group_id, "freeze"), { body });
      return done.frozen_until_ms ? `The group is frozen until ${clock(done.frozen_until_ms)} at the latest.` : "The group is not frozen.";
    }}>
    <div class="fields">
      <label>Minutes, at most<input type="number" min="0.1" max="15" step="any" required value=${minutes} onInput=${(event) => setMinutes(Number(event.target.value))} /></label>
      <label>It ends<select value=${until} onChange=${(event) => setUntil(event.target.value)}>${ENDS.map(([name, text]) => html`<option value=${name}>${text}</option>`)}</select></label>
      <${Reason} value=${reason} onInput=${setReason} />
    </div>
  <//>`;
}

function Thaw({ group, reload }) {
  return html`<${Action} title="End the freeze" label="End it" reload=${reload} about="What was held back begins at once."
    preview=${async () => html`<p>${group.held_count ? html`A rebalance begins, for ${count(group.held_count, "cause")}:` : "Nothing was held back, so nothing begins."}</p>
      ${group.held_count > 0 && html`<ul>${group.held.map((cause) => html`<li><${Ago} at=${cause.at_ms} />: <${Text} as="span">${cause.reason}<//></li>`)}</ul>`}`}
    execute=${async () => {
      await call("DELETE", pathOf("groups", group.group_id, "freeze"));
      return "The freeze is over.";
    }} />`;
}

function Rebalance({ group, reload }) {
  const [reason, setReason] = useState("");
  return html`<${Action} title="Rebalance now" inputs=${[reason]} label="Rebalance" reload=${reload} about="Every member joins again, and the assignment is made anew. A freeze or a cool-down does not hold it."
    preview=${async () => html`<${Previewed} group=${group} answer=${await askPreview(group.group_id, {})} />`}
    execute=${async () => {
      const done = await post(group.group_id, ["rebalance"], { reason: orNull(reason) });
      return done.started ? `Rebalance ${done.rebalance_id} has begun.` : done.rebalance_id === null ? "The group has no members, so there is nothing to rebalance." : `Rebalance ${done.rebalance_id} was under way already.`;
    }}>
    <div class="fields"><${Reason} value=${reason} onInput=${setReason} /></div>
  <//>`;
}

function Proceed({ group, reload }) {
  const [reason, setReason] = useState("");
  const body = { reason: orNull(reason) };
  return html`<${Action} title="Go on without the awaited" inputs=${[body]} label="Go on without them" danger reload=${reload}
    about="The rebalance ends its wait now. Who is awaited is left out of this generation, and comes back as a newcomer, which is another rebalance."
    preview=${async () => html`<${LeftOut} answer=${await post(group.group_id, ["rebalance", "proceed"], { ...body, dry_run: true })} />`}
    execute=${async () => {
      const done = await post(group.group_id, ["rebalance", "proceed"], { ...body, dry_run: false });
      return `${count(done.left_out_count, "member")} left out.`;
    }}>
    <div class="fields"><${Reason} value=${reason} onInput=${setReason} /></div>
  <//>`;
}

function LeftOut({ answer }) {
  if (!answer.left_out_count) return html`<p>Nobody is awaited any more, so nothing would change.</p>`;
  return html`<p>${count(answer.left_out_count, "member")} would be left out:</p><ul>${answer.left_out.slice(0, ROWS_MAX).map((member) => html`<li><${Member} of=${member} />, awaited since <${Ago} at=${member.since_ms} />, heard of <${Ago} at=${member.heard_at_ms} /></li>`)}</ul>`;
}

/** A length of time that may be left to the service: cool-down and longest wait have the same form. */
function Period({ group, reload, title, about, present, path, field, none = "" }) {
  const [seconds, setSeconds] = useState("");
  const ms = seconds === "" ? null : Math.round(Number(seconds) * 1000);
  const say = (value) => (value === null ? none : duration(value));
  return html`<${Action} title=${title} about=${about} inputs=${[ms]} label="Set" reload=${reload}
    preview=${async () => html`<p>Now: ${say(present)}. Then: <b>${ms === null ? "as the service's settings say" : duration(ms)}</b>.</p>`}
    execute=${async () => {
      const done = await call("PUT", pathOf("groups", group.group_id, path), { body: { [field]: ms } });
      return `It is ${say(done[field])} now${done.is_default ? ", as the service's settings say" : ""}.`;
    }}>
    <div class="fields"><label>Seconds (nothing: as the service's settings say)<input type="number" min="0" step="any" value=${seconds} onInput=${(event) => setSeconds(event.target.value)} /></label></div>
  <//>`;
}

const Cooldown = ({ group, reload }) =>
  html`<${Period} ...${{ group, reload, title: "Cool-down", about: "The least time between two rebalances. What comes earlier is held, and shares the next one.", present: group.cooldown_ms, path: "cooldown", field: "cooldown_ms" }} />`;

const JoinWait = ({ group, reload }) =>
  html`<${Period} ...${{ group, reload, title: "Longest wait", about: "After so much waiting a rebalance goes on without who is awaited.", present: group.join_wait_max_ms, path: "join_wait", field: "join_wait_max_ms", none: "as long as the members' own rebalance timeouts" }} />`;

export function RemoveMembers({ group, members, reload }) {
  const [reason, setReason] = useState("");
  const names = new Map(group.members.map((member) => [member.member_id, member]));
  const body = { members, reason: orNull(reason) };
  return html`<${Action} title=${`Remove ${count(members.length, "member")}`} inputs=${[body]} label="Remove" danger reload=${reload}
    about="They lose their partitions at once, in one rebalance. Whoever still runs may join again as a newcomer; to keep it out, stop it."
    preview=${async () => {
      const answer = await post(group.group_id, ["members", "remove"], { ...body, dry_run: true });
      const preview = group.state === "Stable" ? await askPreview(group.group_id, { leave: members }).catch(() => null) : null;
      return html`<ul>${answer.members.slice(0, ROWS_MAX).map((member) => html`<li><${Member} of=${names.get(member.member_id) ?? member} />: ${member.error_code ? html`<b>${member.error_name}</b>` : "would be removed"}</li>`)}</ul>
        ${preview && html`<${Previewed} group=${group} answer=${preview} />`}`;
    }}
    execute=${async () => {
      const done = await post(group.group_id, ["members", "remove"], { ...body, dry_run: false });
      const failed = done.members.filter((member) => member.error_code);
      return `${count(done.members.length - failed.length, "member")} removed${failed.length ? `, ${number(failed.length)} not (${failed[0].error_name})` : ""}${done.held_until_ms ? `; the rebalance is held until ${clock(done.held_until_ms)}` : ""}.`;
    }}>
    <p>${members.slice(0, 20).map((id, i) => html`${i > 0 && ", "}<${Text}>${nameOf(names.get(id) ?? { member_id: id })}<//>`)}${members.length > 20 && ", …"}</p>
    <div class="fields"><${Reason} value=${reason} onInput=${setReason} /></div>
  <//>`;
}

// --- offsets --------------------------------------------------------------------------------------------------------------

const TARGETS = [
  ["earliest", "the beginning (0)"],
  ["latest", "the end that was last reported"],
  ["time", "the end that was reported at a time"],
  ["offset", "an offset"],
  ["shift", "so many further, or back"],
];

function ResetOffsets({ group, reload }) {
  const [to, setTo] = useState("latest");
  const [value, setValue] = useState("");
  const [topic, setTopic] = useState("");
  const [partitions, setPartitions] = useState("");
  const body = { to };
  if (to === "offset" || to === "shift") body[to] = Number(value);
  if (to === "time") body.at_ms = value ? new Date(value).getTime() : null;
  const ask = (dryRun) => {
    const chosen = numbersOf(partitions);
    const topics = topic ? { topics: { [topic]: chosen.length ? chosen : null } } : {};
    return post(group.group_id, ["offsets", "reset"], { ...body, ...topics, dry_run: dryRun });
  };
  return html`<${Action} title="Reset offsets" inputs=${[body, topic, partitions]} label="Reset" danger reload=${reload}
    about=${`The group goes on from there. Its members have to be stopped first; it has ${count(group.members.length, "member")} now.`}
    preview=${async () => html`<${Resets} answer=${await ask(true)} />`}
    execute=${async () => {
      const rows = rowsOf((await ask(false)).offsets);
      const failed = rows.filter((row) => row.error_code);
      return `${count(rows.length - failed.length, "partition")} reset${failed.length ? `, ${number(failed.length)} not` : ""}.`;
    }}>
    <div class="fields">
      <label>To<select value=${to} onChange=${(event) => (setTo(event.target.value), setValue(""))}>${TARGETS.map(([name, text]) => html`<option value=${name}>${text}</option>`)}</select></label>
      ${(to === "offset" || to === "shift") && html`<label>${to === "offset" ? "Offset" : "Records, negative for back"}<input type="number" required step="1" value=${value} onInput=${(event) => setValue(event.target.value)} /></label>`}
      ${to === "time" && html`<label>Time, of this browser's zone<input type="datetime-local" required step="1" value=${value} onInput=${(event) => setValue(event.target.value)} /></label>`}
      <${TopicField} group=${group} value=${topic} onChange=${setTopic} none="each with a committed offset" />
      ${topic && html`<label>Partitions<input type="text" placeholder="all, or such as 0-3, 7" pattern="[0-9, \\-]*" value=${partitions} onInput=${(event) => setPartitions(event.target.value)} /></label>`}
    </div>
  <//>`;
}

function TopicField({ group, value, onChange, none, required }) {
  const topics = [...new Set([...Object.keys(group.offsets), ...group.topics])];
  return html`<label>Topic<select value=${value} required=${required} onChange=${(event) => onChange(event.target.value)}><option value="">${none}</option>${topics.map((topic) => html`<option value=${topic}>${topic}</option>`)}</select></label>`;
}

/** "0-3, 7" as numbers; none if nothing is written. Throws Error: what is mistyped must not mean all. */
export function numbersOf(text) {
  const numbers = [];
  if (text.trim() === "") return numbers;
  for (const part of text.split(",")) {
    const match = /^\s*(\d+)\s*(?:-\s*(\d+)\s*)?$/.exec(part);
    const [first, last] = [Number(match?.[1]), Number(match?.[2] ?? match?.[1])];
    if (!(last >= first && last - first < PARTITIONS_MAX)) throw new Error(`"${text}" names no partitions: write them as 0-3, 7.`);
    for (let i = first; i <= last; i++) numbers.push(i);
  }
  return numbers;
}

const rowsOf = (offsets) => Object.entries(offsets).flatMap(([topic, partitions]) => Object.entries(partitions).map(([partition, row]) => ({ topic, partition, ...row })));

function Resets({ answer }) {
  const rows = rowsOf(answer.offsets);
  const moved = rows.filter((row) => !row.error_code && row.before !== row.after);
  return html`<p><b>${count(moved.length, "partition")} would change</b>, of ${number(rows.length)}.</p>
    <div class="scroll short" role="region" aria-label="Offsets before and after" tabindex="0"><table>
      <thead><tr><th scope="col">Partition</th><th scope="col" class="num">Before</th><th scope="col" class="num">After</th><th scope="col" class="num">Change</th><th scope="col">Note</th></tr></thead>
      <tbody>${rows.slice(0, ROWS_MAX).map((row) => html`<tr><th scope="row"><${Text}>${row.topic}<//> ${row.partition}</th><td class="num">${number(row.before)}</td><td class="num">${number(row.after)}</td><td class="num">${row.before === null || row.after === null ? "–" : `${row.after >= row.before ? "+" : "−"}${number(Math.abs(row.after - row.before))}`}</td>
        <td>${row.error_code ? html`<b>${row.error_name}</b>${row.detail && html` <${Text} as="span">${row.detail}<//>`}` : row.clamped ? "the nearest there is" : row.at_ms ? `as reported at ${clock(row.at_ms)}` : ""}</td></tr>`)}</tbody>
    </table></div>${rows.length > ROWS_MAX && html`<p class="faint">The first ${ROWS_MAX}.</p>`}`;
}

function DeleteOffsets({ group, reload }) {
  const [topic, setTopic] = useState("");
  const [partitions, setPartitions] = useState("");
  const ask = (dryRun) => {
    const chosen = numbersOf(partitions);
    const query = chosen.length ? { partition: chosen.map((partition) => `${topic}:${partition}`) } : { topic };
    return call("DELETE", pathOf("groups", group.group_id, "offsets"), { query: { ...query, dry_run: dryRun } });
  };
  return html`<${Action} title="Delete offsets" inputs=${[topic, partitions]} label="Delete" danger reload=${reload}
    about="The group forgets how far it has come. If it reads the topic again, it begins where its members say."
    preview=${async () => {
      const rows = rowsOf((await ask(true)).offsets);
      const gone = rows.filter((row) => !row.error_code);
      return html`<p><b>The offsets of ${count(gone.length, "partition")} would be deleted</b>, of ${number(rows.length)}.</p><ul>${rows.slice(0, ROWS_MAX).map((row) => html`<li><${Text}>${row.topic}<//> ${row.partition}${row.error_code ? html`: <b>${row.error_name}</b>` : ""}</li>`)}</ul>`;
    }}
    execute=${async () => {
      const rows = rowsOf((await ask(false)).offsets);
      const failed = rows.filter((row) => row.error_code);
      return `The offsets of ${count(rows.length - failed.length, "partition")} are deleted${failed.length ? `, ${number(failed.length)} stand (${failed[0].error_name})` : ""}.`;
    }}>
    <div class="fields"><${TopicField} group=${group} value=${topic} onChange=${setTopic} none="choose one" required />
      <label>Partitions<input type="text" placeholder="all, or such as 0-3, 7" pattern="[0-9, \\-]*" value=${partitions} onInput=${(event) => setPartitions(event.target.value)} /></label></div>
  <//>`;
}

function DeleteGroup({ group, reload }) {
  const [typed, setTyped] = useState("");
  const offsets = Object.values(group.offsets).reduce((sum, partitions) => sum + Object.keys(partitions).length, 0);
  return html`<${Action} title="Delete the group" label="Delete" danger mayExecute=${typed === group.group_id} reload=${() => go(["groups"])}
    about="The group is gone with its committed offsets. A later group of the same name begins from nothing."
    preview=${async () => html`<p><b>The committed offsets of ${count(offsets, "partition")} would be deleted</b>, and the history of the group.</p>${group.members.length > 0 && html`<p><b>It has ${count(group.members.length, "member")}: the service refuses until they are stopped.</b></p>`}`}
    execute=${async () => {
      await call("DELETE", pathOf("groups", group.group_id));
      return "The group is deleted.";
    }}>
    <div class="fields"><label class="wide">To be sure, the name of the group: <b><${Text}>${group.group_id}<//></b><input type="text" autocomplete="off" value=${typed} onInput=${(event) => setTyped(event.target.value)} /></label></div>
  <//>`;
}
