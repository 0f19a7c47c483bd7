// What the assignment would be: before a kick, before a deploy, with another assignor, or when topics grow.
import { html, useState } from "./html.js";
import { call, pathOf } from "./api.js";
import { Text, count, nameOf, number, rangesOf } from "./format.js";
import { Action } from "./dialog.js";

const ROWS_MAX = 100;

export const askPreview = (groupId, body) => call("POST", pathOf("groups", groupId, "preview"), { body });

export function Preview({ group, leave = [] }) {
  const [asked, setAsked] = useState({ leave: new Set(leave), joinCount: 0, assignor: "", topic: "", partitions: "" });
  const set = (change) => setAsked((was) => ({ ...was, ...change }));
  const toggle = (id) => {
    const next = new Set(asked.leave);
    if (!next.delete(id)) next.add(id);
    set({ leave: next });
  };
  const body = {
    leave: [...asked.leave],
    join: asked.joinCount > 0 ? [{ count: asked.joinCount }] : [],
    partitions: asked.topic && asked.partitions ? { [asked.topic]: Number(asked.partitions) } : {},
    assignor: asked.assignor || null,
  };
  return html`<${Action} title="Preview an assignment" inputs=${[body]} preview=${async () => html`<${Previewed} answer=${await askPreview(group.group_id, body)} group=${group} />`}
    about="Suppose that members leave or join, or that a topic grows: who would have what? This changes nothing.">
    <fieldset><legend>Members that leave (${number(asked.leave.size)} of ${number(group.members.length)})</legend>
      <div class="picks">${group.members.slice(0, 200).map((member) => html`<label class="check"><input type="checkbox" checked=${asked.leave.has(member.member_id)} onChange=${() => toggle(member.member_id)} /> <${Text}>${nameOf(member)}<//></label>`)}
        ${group.members.length > 200 && html`<span class="faint">The first 200; choose others in the list of members.</span>`}</div></fieldset>
    <div class="fields">
      <label>Members that join<input type="number" min="0" max="1000" value=${asked.joinCount} onInput=${(event) => set({ joinCount: Number(event.target.value) })} /></label>
      <label>Assignor<input type="text" placeholder=${group.protocol_name || "the present one"} value=${asked.assignor} onInput=${(event) => set({ assignor: event.target.value.trim() })} /></label>
      <label>A topic that grows<select value=${asked.topic} onChange=${(event) => set({ topic: event.target.value })}><option value="">none</option>${group.topics.map((topic) => html`<option value=${topic}>${topic}</option>`)}</select></label>
      ${asked.topic && html`<label>to partitions<input type="number" min="1" value=${asked.partitions} onInput=${(event) => set({ partitions: event.target.value })} /></label>`}
    </div>
  <//>`;
}

/** What a preview answers: the moves, and each member before and after. */
export function Previewed({ answer, group }) {
  const names = new Map(group.members.map((member) => [member.member_id, nameOf(member)]));
  const name = (memberId) => (memberId === null ? "nobody" : names.get(memberId) ?? memberId);
  const even = answer.evenness_after;
  const moves = answer.partitions_moved.slice(0, ROWS_MAX);
  return html`<p><b>${count(answer.partitions_moved_count, "partition")} would move</b>, in ${count(answer.rebalance_count, "rebalance")}, by ${answer.assignor}.
      ${" "}Members would have ${number(even.least_count)} to ${number(even.most_count)} partitions each${answer.unassigned_count > 0 ? html`; <b>${number(answer.unassigned_count)} would have no owner</b>` : ""}.</p>
    <div class="scroll short" role="region" aria-label="Members before and after" tabindex="0"><table>
      <thead><tr><th scope="col">Member</th><th scope="col">Change</th><th scope="col" class="num">Before</th><th scope="col" class="num">After</th><th scope="col">Gets</th><th scope="col">Gives up</th></tr></thead>
      <tbody>${answer.members.slice(0, ROWS_MAX).map((member) => html`<tr><th scope="row"><${Text}>${nameOf(member)}<//></th><td>${member.change}</td><td class="num">${number(member.before_count)}</td><td class="num">${number(member.after_count)}</td><td><${Shares} of=${member.gained} /></td><td><${Shares} of=${member.lost} /></td></tr>`)}</tbody>
    </table></div>
    ${answer.members.length > ROWS_MAX && html`<p class="faint">The first ${ROWS_MAX} of ${number(answer.members.length)}.</p>`}
    ${moves.length > 0 && html`<details><summary>Which partitions move</summary><ul>${moves.map((move) => html`<li><${Text}>${move.topic}<//> ${move.partition}: <${Text}>${name(move.from_member_id)}<//> → <${Text}>${name(move.to_member_id)}<//></li>`)}${answer.partitions_moved_count > moves.length && html`<li>and ${number(answer.partitions_moved_count - moves.length)} more</li>`}</ul></details>`}`;
}

function Shares({ of: topics }) {
  const entries = Object.entries(topics);
  if (!entries.length) return html`<span class="faint">–</span>`;
  return html`${entries.slice(0, 5).map(([topic, partitions], i) => html`${i > 0 && "; "}<${Text}>${topic}<//> ${rangesOf(partitions)}`)}${entries.length > 5 && ", …"}`;
}
