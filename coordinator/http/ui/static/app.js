// The page as a whole: its head, the view that the URL names, and the token where one is asked for.
import { html, render, useEffect, useState } from "./html.js";
import { keepToken, token, tokenWanted } from "./api.js";
import { Connection } from "./badges.js";
import { ClusterView } from "./cluster.js";
import { DialogHost } from "./dialog.js";
import { GroupView } from "./group.js";
import { GroupsView } from "./groups.js";
import { now } from "./format.js";
import { listen } from "./keyboard.js";
import { connection, follow, reconnect } from "./live.js";
import { NodeLinks, said } from "./notices.js";
import { keepNodes, others } from "./nodes.js";
import { Overview } from "./overview.js";
import { hrefOf, route } from "./route.js";
import { THEMES, chooseTheme, theme } from "./theme.js";
import { TopicView, TopicsView } from "./topics.js";

const version = document.querySelector('meta[name="rallypoint-version"]').content;
/** A connection that is back within so long needs no other node. */
const LOST_MS = 3000;
const PLACES = [
  ["Overview", []],
  ["Groups", ["groups"]],
  ["Topics", ["topics"]],
  ["Cluster", ["cluster"]],
];

function Page() {
  const { parts } = route.value;
  useEffect(() => {
    document.title = [...parts.slice(0, 2).reverse(), "Rallypoint"].join(" · ");
    scrollTo(0, 0);
  }, [parts.join("/")]);
  return html`<a class="skip" href="#main" onClick=${toMain}>To the content</a>
    <header>
      <a class="brand" href=${hrefOf([])}><${Mark} /> Rallypoint</a>
      <nav aria-label="Views">${PLACES.map(([name, to]) => html`<a href=${hrefOf(to)} aria-current=${(parts[0] ?? "") === (to[0] ?? "") ? "page" : undefined}>${name}</a>`)}</nav>
      <div class="tools">
        <${Connection} />
        ${token.value && html`<button type="button" class="plain" onClick=${forget}>Forget the token</button>`}
        <label class="theme"><span class="unseen-text">Colours</span><select value=${theme.value.chosen} onChange=${(event) => chooseTheme(event.target.value)}>${THEMES.map((name) => html`<option value=${name}>◐ ${name}</option>`)}</select></label>
      </div>
    </header>
    <p class="unseen-text" role="status" aria-live="polite">${said.value}</p>
    <main id="main" tabindex="-1"><${Elsewhere} />${tokenWanted.value === null ? html`<${View} parts=${parts} />` : html`<${AskToken} />`}</main>
    <footer>Rallypoint ${version} · <a href="./docs">Reference</a> · <a href="./errors">Errors</a> · <a href="./openapi.json">OpenAPI</a> · <a href="./metrics">Metrics</a> · <a href="./readyz">Readiness</a> · keys: <kbd>?</kbd></footer>
    <${DialogHost} />`;
}

function View({ parts }) {
  const [place, name, ...rest] = parts;
  if (place === undefined) return html`<${Overview} />`;
  if (place === "groups" && name === undefined) return html`<${GroupsView} />`;
  if (place === "groups") return html`<${GroupView} key=${name} groupId=${name} tab=${rest[0]} rest=${rest.slice(1)} />`;
  if (place === "topics" && name === undefined) return html`<${TopicsView} />`;
  if (place === "topics") return html`<${TopicView} key=${name} topic=${name} />`;
  if (place === "cluster") return html`<${ClusterView} />`;
  return html`<div class="notice"><p>There is no such view. <a href=${hrefOf([])}>To the overview</a></p></div>`;
}

/** Where else to look while this node does not answer. */
function Elsewhere() {
  const { state, sinceMs } = connection.value;
  now.value; // a tick
  if (state !== "lost" || Date.now() - sinceMs < LOST_MS || !others.value.length) return null;
  return html`<div class="notice elsewhere"><p>This node does not answer. Others of the cluster show this view, too:</p><${NodeLinks} nodes=${others.value} /></div>`;
}

function AskToken() {
  const [text, setText] = useState("");
  const send = (event) => {
    event.preventDefault();
    keepToken(text.trim());
    reconnect();
  };
  return html`<form class="card ask" onSubmit=${send} aria-labelledby="title">
    <h1 id="title">A token, please</h1>
    <p>${token.value ? tokenWanted.value : "The service shows its groups to those who have a token."}</p>
    <label>Token<input type="password" autocomplete="off" required autofocus value=${text} onInput=${(event) => setText(event.target.value)} /></label>
    <p class="faint">It is kept in this tab until the tab is closed, and sent to this service alone.</p>
    <div class="buttons"><button type="submit" class="primary">Go on</button></div>
  </form>`;
}

function forget() {
  keepToken("");
  location.reload();
}

function toMain(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

function Mark() {
  return html`<svg viewBox="0 0 32 32" width="22" height="22" aria-hidden="true"><rect width="32" height="32" rx="7" /><g><path d="M7 8l6 6M25 8l-6 6M7 24l6-6M25 24l-6-6" /></g><circle cx="16" cy="16" r="4.2" /></svg>`;
}

const place = document.getElementById("page");
place.replaceChildren();
render(html`<${Page} />`, place);
listen();
keepNodes();
follow();
