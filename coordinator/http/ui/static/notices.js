// What went wrong, and what has been done: said where it is seen, and once for those who listen.
import { html, signal } from "./html.js";
import { NONE, Text, number } from "./format.js";

/** The one live region of the page: a sentence that a screen reader says. */
export const said = signal("");

let timer = 0;
export function say(sentence) {
  clearTimeout(timer);
  // The same sentence twice would not be said twice.
  said.value = "";
  timer = setTimeout(() => (said.value = sentence), 60);
}

export function Failed({ problem, retry, stale }) {
  if (!problem) return null;
  if (problem.status === 401) return html`<div class="notice warn"><p>The service asks for a token.</p></div>`;
  if (problem.status === 421 && problem.url) {
    const there = whereTo(problem.url);
    return html`<div class="notice">
      <p>Another node coordinates this group now: <b><${Text}>${problem.nodeId || problem.url}<//></b>.</p>
      ${there && html`<p><a class="button" href=${there}>Open it there</a></p>`}
      ${stale && html`<p class="faint">What is shown below is what was known before.</p>`}
    </div>`;
  }
  if (problem.errorName === "GROUP_ID_NOT_FOUND" && !stale) {
    return html`<div class="notice"><p><${Text} as="span">${problem.message}<//> This page shows it as soon as there is one.</p></div>`;
  }
  const name = problem.errorName && problem.errorName !== "UNREACHABLE" ? problem.errorName : "";
  return html`<div class="notice err">
    <p><span class="mark" aria-hidden="true">✖</span> <${Text} as="span">${problem.message}<//>${" "}
      ${name && html`<a href=${`.${problem.type}`}><code>${name}</code></a>`}</p>
    ${stale && html`<p class="faint">What is shown below is what was known before.</p>`}
    ${retry && html`<p><button type="button" onClick=${retry}>Try again</button></p>`}
  </div>`;
}

/** This view at another node; only where the address is one of the web. */
function whereTo(url) {
  try {
    const target = new URL(url);
    return ["http:", "https:"].includes(target.protocol) ? `${target.origin}${target.pathname.replace(/\/?$/, "/")}${location.hash}` : "";
  } catch {
    return "";
  }
}

/** This view at each of the nodes. */
export function NodeLinks({ nodes }) {
  return html`<p class="buttons">${nodes.map((node) => {
    const there = whereTo(node.url);
    return there && html`<a class="button" href=${there}><${Text}>${node.node_id}<//></a> `;
  })}</p>`;
}

export function Loading({ what }) {
  return html`<p class="loading" aria-busy="true">Reading ${what}…</p>`;
}

/** A figure with its name. */
export function Figure({ name, value, note, href, tone }) {
  const text = typeof value === "number" ? number(value) : value ?? NONE;
  return html`<div class="figure"><dt>${name}</dt><dd class=${tone ?? ""}>${href ? html`<a href=${href}>${text}</a>` : text}${note && html`<small>${note}</small>`}</dd></div>`;
}
