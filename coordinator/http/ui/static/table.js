// Real tables. Of a long one only the rows in sight are in the document; their numbers say where they are.
import { html, useEffect, useLayoutEffect, useRef, useState } from "./html.js";

export const ROW_PX = 40;
const WINDOWED_FROM = 120;
const OVERSCAN = 12;

/**
 * columns: { key, head, cell(row), width, narrow (where the window is), kind ("num", "id", "wide"), rank (2 and 3 go first where it is narrow), sort }.
 * rowAt(i): the row, or undefined where it is not loaded yet; onRange(first, last): which are in sight.
 * failed: the rows could not be read, so none are no sign that there are none.
 */
export function Table({ label, columns, count, rowAt, keyOf, onRange, sort, descending, onSort, busy, failed = false, empty = "Nothing here." }) {
  const body = useRef(null);
  const isWindowed = count > WINDOWED_FROM;
  const [first, last] = useWindow(body, count, isWindowed);
  useEffect(() => onRange?.(first, last), [first, last, count]);
  const rows = [];
  for (let i = first; i < last; i++) {
    const row = rowAt(i);
    rows.push(html`<tr key=${row ? keyOf(row) : `#${i}`} class="row" aria-rowindex=${isWindowed ? i + 2 : undefined}>
      ${columns.map((column, at) => {
        const cell = row === undefined ? html`<span class="faint">…</span>` : column.cell(row, i);
        const name = classOf(column);
        return at === 0 ? html`<th scope="row" class=${name}>${cell}</th>` : html`<td class=${name}>${cell}</td>`;
      })}
    </tr>`);
  }
  const spacer = (rowCount) =>
    rowCount > 0 && html`<tr class="spacer" aria-hidden="true"><td style=${{ height: `${rowCount * ROW_PX}px` }}></td></tr>`;
  return html`<div class="scroll" role="region" aria-label=${label} tabindex="0">
    <table class="rows" aria-rowcount=${isWindowed ? count + 1 : undefined} aria-busy=${busy ? "true" : undefined}>
      <caption class="unseen-text">${label}</caption>
      <thead>
        <tr>
          ${columns.map((column) => html`<${Head} key=${column.key} ...${{ column, sort, descending, onSort }} />`)}
        </tr>
      </thead>
      <tbody ref=${body}>
        ${spacer(first)}${rows}${spacer(count - last)}
      </tbody>
    </table>
    ${count === 0 && (busy || !failed) && html`<p class="empty">${busy ? "Reading…" : empty}</p>`}
  </div>`;
}

const classOf = (column) => [column.kind ?? "", column.rank ? `rank${column.rank}` : ""].join(" ").trim();

function Head({ column, sort, descending, onSort }) {
  const style = column.width ? { "--width": column.width, "--narrow": column.narrow ?? column.width } : undefined;
  if (!column.sort || !onSort) return html`<th scope="col" class=${classOf(column)} style=${style}>${column.head}</th>`;
  const isSorted = sort === column.sort;
  const order = isSorted ? (descending ? "descending" : "ascending") : "none";
  const mark = isSorted ? (descending ? "▼" : "▲") : "";
  return html`<th scope="col" class=${classOf(column)} style=${style} aria-sort=${order}>
    <button type="button" class="sort" onClick=${() => onSort(column.sort, isSorted ? !descending : column.kind === "num")}>
      ${column.head}<span class="mark" aria-hidden="true">${mark}</span>
    </button>
  </th>`;
}

/** The rows in sight, by where the body stands in the window. */
function useWindow(body, count, isWindowed) {
  const [range, setRange] = useState([0, Math.min(count, 60)]);
  useLayoutEffect(() => {
    if (!isWindowed) return undefined;
    let frame = 0;
    const measure = () => {
      frame = 0;
      if (!body.current) return;
      const above = -body.current.getBoundingClientRect().top;
      const first = Math.max(0, Math.min(count, Math.floor(above / ROW_PX) - OVERSCAN));
      const last = Math.min(count, Math.max(first, Math.ceil((above + innerHeight) / ROW_PX) + OVERSCAN));
      setRange((was) => (was[0] === first && was[1] === last ? was : [first, last]));
    };
    const later = () => (frame ||= requestAnimationFrame(measure));
    measure();
    addEventListener("scroll", later, { passive: true });
    addEventListener("resize", later);
    return () => {
      cancelAnimationFrame(frame);
      removeEventListener("scroll", later);
      removeEventListener("resize", later);
    };
  }, [count, isWindowed]);
  if (!isWindowed) return [0, count];
  return [Math.min(range[0], count), Math.min(Math.max(range[1], Math.min(count, range[0] + 20)), count)];
}

/** A table of rows that are all here. */
export function List({ rows, ...rest }) {
  return html`<${Table} count=${rows.length} rowAt=${(i) => rows[i]} ...${rest} />`;
}
