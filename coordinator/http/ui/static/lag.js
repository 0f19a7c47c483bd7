// The lag over the last hour, where it is going, and when it will be gone.
import { html, useEffect, useRef } from "./html.js";
import { get, pathOf } from "./api.js";
import { Ago, clock, compact, count, now, number, rate } from "./format.js";
import { Failed, Figure, Loading } from "./notices.js";
import { isOf, useResource } from "./resource.js";
import { theme } from "./theme.js";
import uPlot from "./uplot.js";

/** Between two marks of the time axis: whole seconds, since the clock shows no less. */
const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600];

export function Lag({ groupId }) {
  const { data, error, reload } = useResource((aborted) => get(pathOf("groups", groupId, "lag"), {}, aborted), [groupId], { everyMs: 5000, wants: isOf(groupId) });
  if (!data) return error ? html`<${Failed} problem=${error} retry=${reload} />` : html`<${Loading} what="the lag" />`;
  const slope = data.slope_per_second;
  return html`<${Failed} problem=${error} stale />
    <p class="lead">${data.eta_sentence}${etaClock(data.eta_ms)}</p>
    <dl class="figures">
      <${Figure} name="Lag now" value=${number(data.lag)} note="records" />
      <${Figure} name="Slope" value=${slope === null ? "–" : `${slope > 0 ? "+" : slope < 0 ? "−" : ""}${rate(Math.abs(slope))}`} note=${slope === null ? "not known yet" : slope > 0 ? "it grows" : slope < 0 ? "it falls" : "it stays"} tone=${slope > 0 ? "warn" : ""} />
    </dl>
    <${LagChart} history=${data} height=${320} />
    <p class="faint">${count(data.samples.length, "sample")}, since <${Ago} at=${data.since_ms} />.</p>
    <${Samples} samples=${data.samples} />`;
}

function Samples({ samples }) {
  const step = Math.max(1, Math.ceil(samples.length / 60));
  const rows = samples.filter((_, i) => (samples.length - 1 - i) % step === 0).reverse();
  return html`<details><summary>The figures</summary><div class="scroll" role="region" aria-label="Lag over time" tabindex="0"><table>
    <thead><tr><th scope="col">Time</th><th scope="col" class="num">Lag</th><th scope="col" class="num">Committed</th><th scope="col" class="num">End</th></tr></thead>
    <tbody>${rows.map((sample) => html`<tr><th scope="row">${clock(sample.at_ms)}</th><td class="num">${number(sample.lag)}</td><td class="num">${number(sample.committed)}</td><td class="num">${number(sample.end)}</td></tr>`)}</tbody></table></div></details>`;
}

/** The clock time at which the lag is gone, if that is known. */
export function etaClock(etaMs) {
  return etaMs === null || etaMs === 0 ? "" : ` That is at about ${clock(now.value + etaMs, { seconds: false })}.`;
}

/** The curve. What it shows is in words above it, and in figures below. */
export function LagChart({ history, height }) {
  const place = useRef(null);
  const chart = useRef(null);
  const known = history.samples.filter((sample) => sample.lag !== null);
  const data = [known.map((sample) => sample.at_ms / 1000), known.map((sample) => sample.lag)];
  const isDrawn = known.length >= 2;
  useEffect(() => {
    if (!isDrawn) return undefined;
    const box = place.current;
    const made = new uPlot(optionsOf(box, height), data, box);
    chart.current = made;
    const resized = new ResizeObserver(() => made.setSize({ width: box.clientWidth, height }));
    resized.observe(box);
    return () => {
      resized.disconnect();
      made.destroy();
      chart.current = null;
    };
  }, [isDrawn, height, theme.value]);
  useEffect(() => chart.current?.setData(data), [history]);
  if (!isDrawn) return html`<p class="faint">There are too few samples for a curve yet.</p>`;
  const lags = data[1];
  const label = `Lag from ${clock(known[0].at_ms)} to ${clock(known.at(-1).at_ms)}: from ${number(lags[0])} to ${number(lags.at(-1))}, at most ${number(Math.max(...lags))}.`;
  return html`<div class="chart" role="img" aria-label=${label} ref=${place} style=${{ height: `${height}px` }}></div>`;
}

function optionsOf(box, height) {
  const style = getComputedStyle(box);
  const line = style.getPropertyValue("--chart-line");
  const text = style.color;
  const axis = { stroke: text, grid: { stroke: style.getPropertyValue("--chart-grid"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
  return {
    width: box.clientWidth,
    height,
    legend: { show: false },
    cursor: { points: { size: 7 }, y: false },
    padding: [12, 32, 0, 0],
    scales: { y: { range: (_, __, most) => [0, Math.max(1, most * 1.08)] } },
    axes: [
      { ...axis, size: 28, values: (_, ticks) => ticks.map((tick) => clock(tick * 1000, { seconds: ticks[1] - ticks[0] < 60 })), space: 80, incrs: STEPS_S },
      { ...axis, values: (_, ticks) => ticks.map((tick) => compact(tick)), size: 62 },
    ],
    series: [{}, { stroke: line, width: 2, fill: style.getPropertyValue("--chart-fill"), points: { show: false } }],
  };
}
