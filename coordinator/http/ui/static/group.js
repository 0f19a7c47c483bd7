// One group: what it does now in the API's own words, its figures, and a view for each question about it.
import { html, useEffect, useRef } from "./html.js";
import { get, pathOf } from "./api.js";
import { Ago, Member, Text, clock, compact, count, duration, now, number } from "./format.js";
import { Frozen, State, Status } from "./badges.js";
import { Failed, Figure, Loading, say } from "./notices.js";
import { isOf, useResource } from "./resource.js";
import { hrefOf } from "./route.js";
import { Actions, QuickActions } from "./actions.js";
import { Members } from "./members.js";
import { Partitions } from "./partitions.js";
import { Rebalances, useRebalances } from "./rebalances.js";
import { Ownership } from "./ownership.js";
import { Lag, LagChart, etaClock } from "./lag.js";

const TABS = [
  ["", "Summary", Summary],
  ["members", "Members", Members],
  ["partitions", "Partitions", Partitions],
  ["rebalances", "Rebalances", Rebalances],
  ["ownership", "Ownership", Ownership],
  ["lag", "Lag", Lag],
  ["actions", "Actions", Actions],
];

/** The sentence says for how long somebody is awaited, so then it is read each second. */
const paceOf = (group) => (group?.awaited_count ? 1000 : 5000);

export function GroupView({ groupId, tab, rest }) {
  const group = useResource((aborted) => get(pathOf("groups", groupId), {}, aborted), [groupId], { everyMs: paceOf, wants: isOf(groupId) });
  const { data, error } = group;
  useEffect(() => {
    if (data?.explanation) say(data.explanation);
  }, [data?.explanation]);
  const tabs = useRef(null);
  useEffect(() => tabs.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" }), [tab]);
  const [, , View] = TABS.find(([name]) => name === tab) ?? TABS[0];
  return html`<section>
    <p class="crumbs"><a href=${hrefOf(["groups"])}>Groups</a> ›</p>
    <div class="head">
      <h1 id="title"><${Text}>${groupId}<//></h1>
      ${data && html`<p class="badges"><${State} of=${data.state} />${data.status && html`<${Status} of=${data.status} />`}
        ${data.frozen_until_ms && html`<${Frozen} until=${data.frozen_until_ms} />`}</p>`}
      ${data && html`<${QuickActions} group=${data} reload=${group.reload} />`}
    </div>
    ${data && html`<p class="explanation"><${Text} as="span">${data.explanation}<//></p>`}
    <${Failed} problem=${error} retry=${group.reload} stale=${data !== undefined} />
    ${data && html`<${Figures} group=${data} />`}
    <nav ref=${tabs} class="tabs" aria-label="Of the group">
      ${TABS.map(([name, text], i) => html`<a href=${hrefOf(name ? ["groups", groupId, name] : ["groups", groupId])} data-key=${i + 1} aria-current=${name === (tab ?? "") ? "page" : undefined}>${text}</a>`)}
    </nav>
    ${data ? html`<${View} key=${tab ?? ""} group=${data} groupId=${groupId} rest=${rest} reload=${group.reload} />` : !error && html`<${Loading} what="the group" />`}
  </section>`;
}

function Figures({ group }) {
  const to = (...parts) => hrefOf(["groups", group.group_id, ...parts]);
  const useful = group.useful_member_count === null ? null : `${number(group.useful_member_count)} can have work`;
  const idle = group.idle_member_count ? `${number(group.idle_member_count)} without a partition` : useful;
  return html`<dl class="figures">
    <${Figure} name="Members" value=${group.members.length} note=${idle} href=${to("members")} />
    <${Figure} name="Lag" value=${compact(group.lag)} note=${group.lag === null ? "no end is known" : "records"} href=${to("lag")} />
    <${Figure} name="Unowned partitions" value=${group.unowned_partition_count} tone=${group.unowned_partition_count ? "warn" : ""} href=${to("partitions")} />
    <${Figure} name="Generation" value=${group.generation_id} note=${group.protocol_name || group.protocol_type || "no protocol"} href=${to("rebalances")} />
    <${Figure} name="Topics" value=${group.topics.length} note=${html`<${TopicNames} topics=${group.topics} />`} />
  </dl>`;
}

function TopicNames({ topics }) {
  const shown = topics.slice(0, 3);
  return html`${shown.map((topic, i) => html`${i > 0 && ", "}<a href=${hrefOf(["topics", topic])}><${Text}>${topic}<//></a>`)}${topics.length > 3 && ` and ${number(topics.length - 3)} more`}`;
}

function Summary({ group, groupId }) {
  const options = { everyMs: 10_000, wants: isOf(groupId) };
  const rebalances = useRebalances(groupId, isOf(groupId));
  const lag = useResource((aborted) => get(pathOf("groups", groupId, "lag"), {}, aborted), [groupId], options);
  const [last] = rebalances.data?.rebalances ?? [];
  return html`<div class="cards">
    <${Waiting} group=${group} />
    <${Freeze} group=${group} />
    <article class="card" aria-labelledby="last">
      <h2 id="last">The last rebalance</h2>
      <${Failed} problem=${rebalances.error} />
      ${last
        ? html`<p><${Text} as="span">${last.sentence}<//></p><p class="faint"><${Ago} at=${last.began_at_ms} />, at ${clock(last.began_at_ms)}.
            ${" "}<a href=${hrefOf(["groups", groupId, "rebalances", String(last.rebalance_id)])}>Who joined when</a> · <a href=${hrefOf(["groups", groupId, "rebalances"])}>all</a></p>`
        : rebalances.data && html`<p>None is known.</p>`}
    </article>
    <article class="card" aria-labelledby="lag">
      <h2 id="lag">Lag</h2>
      <${Failed} problem=${lag.error} />
      ${lag.data && html`<p>${lag.data.eta_sentence}${etaClock(lag.data.eta_ms)}</p><${LagChart} history=${lag.data} height=${150} />
        <p class="faint"><a href=${hrefOf(["groups", groupId, "lag"])}>The last hour</a></p>`}
    </article>
    <${Flapping} group=${group} />
  </div>`;
}

const FOR = { join: "to join", sync: "to ask for its assignment", assignment: "to bring the assignment" };

function Waiting({ group }) {
  if (!group.awaited_count) return null;
  return html`<article class="card warn" aria-labelledby="waiting">
    <h2 id="waiting">Waiting for ${count(group.awaited_count, "member")}${group.awaited_until_ms ? `, for ${duration(Math.max(0, group.awaited_until_ms - now.value))} at most` : ""}</h2>
    <div class="scroll" role="region" aria-label="Members that are awaited" tabindex="0"><table>
      <thead><tr><th scope="col">Member</th><th scope="col">Awaited</th><th scope="col">Since</th><th scope="col">Last heard of</th></tr></thead>
      <tbody>${group.awaited.slice(0, 20).map(
        (member) => html`<tr><th scope="row"><${Member} of=${member} /> <small class="faint"><${Text}>${member.host}<//></small></th><td>${FOR[member.awaited_for] ?? member.awaited_for}</td><td><${Ago} at=${member.since_ms} /></td><td><${Ago} at=${member.heard_at_ms} /></td></tr>`,
      )}</tbody></table></div>
    ${group.awaited_count > 20 && html`<p class="faint">And ${number(group.awaited_count - 20)} more: <a href=${hrefOf(["groups", group.group_id, "rebalances"])}>all of them</a>.</p>`}
  </article>`;
}

function Freeze({ group }) {
  if (!group.frozen_until_ms && !group.held_count && !group.cooling_until_ms) return null;
  const until = group.frozen_until_ms ?? group.cooling_until_ms;
  const missing = group.freeze_missing;
  return html`<article class="card cold" aria-labelledby="freeze">
    <h2 id="freeze">${group.frozen_until_ms ? "Frozen" : "Cooling down"}: ${duration(Math.max(0, until - now.value))} left</h2>
    <p>Until ${clock(until)} at the latest no rebalance begins.${group.freeze_reason ? html` Reason: <${Text} as="q">${group.freeze_reason}<//>.` : ""}
      ${group.freeze_until === "members_present" && " It ends as soon as all members that were there are there again."}
      ${group.freeze_until === "members_replaced" && " It ends as soon as each member has gone and come back."}</p>
    ${missing.length > 0 && html`<p>Still missing, ${number(group.freeze_missing_count)}: ${missing.map((name, i) => html`${i > 0 && ", "}<${Text}>${name}<//>`)}${group.freeze_missing_count > missing.length && ", …"}</p>`}
    ${group.held_count > 0
      ? html`<p>Held until then: ${count(group.held_count, "cause")}.</p><ul>${group.held.map((cause) => html`<li><${Ago} at=${cause.at_ms} />: <${Text} as="span">${cause.reason}<//></li>`)}</ul>`
      : html`<p class="faint">Nothing is held back yet.</p>`}
  </article>`;
}

function Flapping({ group }) {
  if (!group.flapping.length) return null;
  return html`<article class="card warn" aria-labelledby="flapping">
    <h2 id="flapping">Members that come and go</h2>
    <ul>${group.flapping.map((member) => html`<li><${Text} as="span">${member.sentence}<//></li>`)}</ul>
  </article>`;
}
