// Keys: `/` to search, `g` and a letter to go somewhere, `j` and `k` along a list, digits for the views of a group.
import { close, open } from "./dialog.js";
import { html } from "./html.js";
import { go } from "./route.js";

const PLACES = { o: [], g: ["groups"], t: ["topics"], c: ["cluster"] };
const KEYS = [
  ["/", "search in this view"],
  ["j, k", "the next, the previous row; Enter opens it"],
  ["1 – 7", "the views of a group"],
  ["g o, g g, g t, g c", "overview, groups, topics, cluster"],
  ["Escape", "close a dialog, leave a field"],
  ["?", "this list"],
];

let afterG = 0;

export function listen() {
  addEventListener("keydown", (event) => {
    const field = event.target.closest?.("input, select, textarea");
    if (event.key === "Escape" && field && !field.closest("dialog")) field.blur();
    if (event.ctrlKey || event.metaKey || event.altKey || field || document.querySelector("dialog[open]")) return;
    const done = act(event.key);
    if (done) event.preventDefault();
  });
}

function act(key) {
  const wasG = Date.now() - afterG < 1200;
  afterG = 0;
  if (wasG && PLACES[key]) return go(PLACES[key]) ?? true;
  if (key === "g") {
    afterG = Date.now();
    return true;
  }
  if (key === "?") {
    open(html`<${Keys} />`);
    return true;
  }
  if (key === "j" || key === "k") return step(key === "j" ? 1 : -1);
  const target = document.querySelector(`[data-key="${CSS.escape(key)}"]`);
  if (!target) return false;
  if (target.matches("input, select")) target.focus();
  else target.click();
  return true;
}

function step(by) {
  const links = [...document.querySelectorAll("main .row-link")];
  if (!links.length) return false;
  const at = links.indexOf(document.activeElement);
  const next = links[at < 0 ? firstInSight(links) : Math.max(0, Math.min(links.length - 1, at + by))];
  next.focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
  return true;
}

const firstInSight = (links) => Math.max(0, links.findIndex((link) => link.getBoundingClientRect().top > 60));

function Keys() {
  return html`<h2 id="dialog-title">Keys</h2><table><tbody>${KEYS.map(([key, what]) => html`<tr><th scope="row"><kbd>${key}</kbd></th><td>${what}</td></tr>`)}</tbody></table>
    <div class="buttons"><button type="button" class="primary" autofocus onClick=${close}>Close</button></div>`;
}
