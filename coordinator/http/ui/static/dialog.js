// Dialogs: the browser's own, so that focus, Escape and what lies behind are as everywhere.
//
// An action is never done at once. Its form is filled, what it would do is shown, and only then can it be done; any change
// of the form takes that back.
import { html, signal, useEffect, useLayoutEffect, useRef, useState } from "./html.js";
import { Failed, say } from "./notices.js";

const opened = signal(null);
let opener = null;

export function open(content) {
  opener = document.activeElement;
  opened.value = content;
}

export function close() {
  opened.value = null;
  opener?.focus?.();
  opener = null;
}

export function DialogHost() {
  const content = opened.value;
  return content && html`<${Dialog}>${content}<//>`;
}

function Dialog({ children }) {
  const dialog = useRef(null);
  useLayoutEffect(() => {
    dialog.current.showModal();
  }, []);
  return html`<dialog ref=${dialog} aria-labelledby="dialog-title" onClose=${close} onCancel=${close}>${children}</dialog>`;
}

/**
 * title, about: what the action is. preview(): reads what it would do, and gives what to show. execute(): does it, and gives
 * a sentence of what was done. inputs: what the preview was made of; a change of them makes it void.
 */
export function Action({ title, about, children, inputs = [], preview, execute, label, danger = false, reload, mayExecute = true }) {
  const [state, setState] = useState({ step: "form" });
  const key = JSON.stringify(inputs);
  const asked = useRef(key);
  useEffect(() => {
    if (asked.current !== key) setState({ step: "form" });
  }, [key]);
  const run = (step, work) => async (event) => {
    event?.preventDefault();
    asked.current = key;
    setState((was) => ({ ...was, step, error: null }));
    try {
      await work();
    } catch (error) {
      setState({ step: "form", error });
    }
  };
  const look = run("looking", async () => {
    const shown = await preview();
    setState({ step: "shown", shown });
    say("What would happen is shown. Nothing has changed yet.");
  });
  const act = run("acting", async () => {
    const done = await execute();
    setState({ step: "done", done });
    say(done);
    reload?.();
  });
  if (state.step === "done") {
    return html`<h2 id="dialog-title">${title}</h2><p class="done"><span class="mark" aria-hidden="true">✓</span> ${state.done}</p>
      <div class="buttons"><button type="button" class="primary" autofocus onClick=${close}>Close</button></div>`;
  }
  const isShown = state.step === "shown" || state.step === "acting";
  return html`<form onSubmit=${look}>
    <h2 id="dialog-title">${title}</h2>
    <p>${about}</p>
    ${children}
    <${Failed} problem=${state.error} />
    ${isShown && html`<section class="preview" aria-label="What would happen"><h3>What would happen</h3>${state.shown}<p class="faint">Nothing has changed yet.</p></section>`}
    <div class="buttons">
      <button type="button" onClick=${close}>Cancel</button>
      <button type="submit" class=${isShown ? "" : "primary"} disabled=${state.step === "looking"}>${state.step === "looking" ? "Looking…" : isShown ? "Look again" : "Show what would happen"}</button>
      ${execute && html`<button type="button" class=${danger ? "primary danger" : "primary"} disabled=${!(state.step === "shown" && mayExecute)} onClick=${act}>${state.step === "acting" ? "Working…" : label}</button>`}
    </div>
  </form>`;
}
