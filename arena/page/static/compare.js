// Several runs side by side: their curves, with bands over seeds, their last returns, and what differs between them.

import { html, useMemo } from "./vendor/preact-htm.js";
import { get, usePolled } from "./api.js";
import { AXES, Chart, smoothed } from "./chart.js";
import { CurveStore } from "./curve_store.js";
import { listOf, xOf } from "./curves.js";
import { compact, number } from "./format.js";
import { Problem } from "./state.js";

const COLORS = ["#3b82f6", "#f97316", "#16a34a", "#8b5cf6", "#ef4444", "#14b8a6", "#ec4899", "#a16207"];
const DASHES = [undefined, [7, 4], [2, 3]]; // together with the colours they distinguish 24 lines
const IGNORED = new Set(["name", "run_root"]); // keys in which runs always differ
const POINTS = 256; // of a mean over seeds
const LAST = 0.1; // share of the steps whose mean is the last value

/** Return a function that brings the curves of a player of all runs, and their configurations once. */
function loader(names, player) {
  const stores = names.map((name) => new CurveStore(name, player === null ? [] : [player]));
  let configurations = null;
  return async () => {
    configurations ??= await Promise.all(names.map((run) => get("configuration", { run })));
    const answers = await Promise.all(stores.map((store) => store.update()));
    return { stores, answers, configurations, progress: Math.min(...answers.map((answer) => answer.progress)) };
  };
}

export function ComparePage({ parameters, change }) {
  const names = listOf(parameters.get("runs"));
  const key = JSON.stringify(names);
  const player = parameters.get("player");
  const load = useMemo(() => loader(names, player), [key, player]);
  const [answer, error] = usePolled(load, 5, [load]);
  const axis = parameters.get("x") in AXES ? parameters.get("x") : "steps";
  const weight = Number(parameters.get("smooth") ?? 0) || 0;
  const players = answer ? [...new Set(answer.answers.flatMap((each) => each.players.map((found) => found.name)))] : [];
  const first = answer?.answers.flatMap((each) => each.players).find((found) => found.learns)?.name ?? players[0];
  if (answer && player === null && first !== undefined) queueMicrotask(() => change({ player: first }));
  const groups = useMemo(() => (answer ? grouped(names, answer.configurations) : []), [key, answer?.configurations]);
  const curves = answer ? [...new Set(answer.stores.flatMap((store) => store.names()))].sort() : [];
  const shown = curves.includes(parameters.get("curve")) ? parameters.get("curve") : "return";
  const together = parameters.get("seeds") !== "apart" && groups.some((group) => group.runs.length > 1);
  const lines = useMemo(
    () => (answer ? linesOf(answer, names, groups, player, shown, axis, weight, together) : []),
    [answer, groups, player, shown, axis, weight, together],
  );
  if (names.length < 2) return html`<p class="note">Choose two or more runs in the list of <a href="#/">runs</a>.</p>`;
  return html`
    <div class="bar"><h1>Comparison</h1>
      <label>player <select value=${player ?? ""} onChange=${(event) => change({ player: event.target.value })}>${players.map((name) => html`<option value=${name}>${name}</option>`)}</select></label>
      <label>curve <select value=${shown} onChange=${(event) => change({ curve: event.target.value })}>${curves.map((name) => html`<option value=${name}>${name}</option>`)}</select></label>
      <label>x axis <select value=${axis} onChange=${(event) => change({ x: event.target.value })}>${Object.keys(AXES).map((name) => html`<option value=${name}>${name}</option>`)}</select></label>
      <label>smoothing <input type="range" min="0" max="0.98" step="0.02" value=${weight} onInput=${(event) => change({ smooth: event.target.value === "0" ? null : event.target.value })} /></label>
      ${groups.some((group) => group.runs.length > 1) &&
      html`<label><input type="checkbox" checked=${together} onChange=${(event) => change({ seeds: event.target.checked ? null : "apart" })} /> seeds together</label>`}
    </div>
    <${Problem} text=${error} />
    ${answer?.progress < 1 && html`<p class="note" role="status">Reading the records: ${Math.floor(100 * answer.progress)} % …</p>`}
    ${lines.length > 0 && html`<p class="legend">${lines.map((line) => html`<span><i class="dot" style=${{ background: line.color }}></i>${line.label}</span>`)}</p>
      <${Chart} title=${`${shown} of ${player}`} note=${together ? "mean over seeds; the band holds all of them" : "the band holds the middle 80 % of the episodes"} lines=${lines} axis=${axis} tall />`}
    ${answer && lines.length === 0 && answer.progress === 1 && html`<p class="note">None of these runs has values of ${shown} for ${player}.</p>`}
    ${answer && html`<${Last} answer=${answer} names=${names} groups=${groups} player=${player} shown=${shown} />`}
    ${answer && html`<${Differences} names=${names} configurations=${answer.configurations} />`}
  `;
}

/** Return runs grouped by their configurations without names and seeds: [{label, runs}], places in `names`. */
function grouped(names, configurations) {
  const found = new Map();
  names.forEach((_, at) => {
    const keys = configurations[at].keys.filter(([key]) => !IGNORED.has(key) && key !== "seed");
    const text = keys.length ? JSON.stringify(keys.map(([key, value]) => [key, value]).sort()) : `run ${at}`;
    found.set(text, [...(found.get(text) ?? []), at]);
  });
  return [...found.values()].map((runs) => ({ runs, label: runs.length === 1 ? names[runs[0]] : `${prefixOf(runs.map((at) => names[at]))} (${runs.length} seeds)` }));
}

/** Return what names have in common at their beginning, or the first of them with its number of companions. */
function prefixOf(names) {
  let end = 0;
  while (end < names[0].length && names.every((name) => name[end] === names[0][end])) end += 1;
  const common = names[0].slice(0, end).replace(/([^\p{L}\p{N}]+(s|seed))?[^\p{L}\p{N}]*$/u, "");
  return common || `${names[0]} and others`;
}

function linesOf(answer, names, groups, player, shown, axis, weight, together) {
  const style = (at) => ({ color: COLORS[at % COLORS.length], dash: DASHES[Math.floor(at / COLORS.length) % DASHES.length] });
  const curve = (at) => {
    const columns = answer.stores[at].columns(player, shown);
    if (!columns) return null;
    return { x: [...xOf(columns, axis, answer.answers[at].attempts)], mean: smoothed(columns.mean, weight),
             low: smoothed(columns.low, weight), high: smoothed(columns.high, weight) };
  };
  if (!together) {
    const hasBand = shown === "return" || shown === "length";
    return names.flatMap((label, at) => {
      const found = curve(at);
      return found ? [{ label, ...style(at), ...found, ...(hasBand ? {} : { low: null, high: null }) }] : [];
    });
  }
  return groups.flatMap((group, at) => {
    const found = group.runs.map(curve).filter((each) => each && each.x.length > 1);
    return found.length ? [{ label: group.label, ...style(at), ...overSeeds(found) }] : [];
  });
}

/** Return the mean of curves, with the least and the greatest, where all of them have values. */
function overSeeds(curves) {
  const first = Math.max(...curves.map((curve) => curve.x[0]));
  const last = Math.min(...curves.map((curve) => curve.x[curve.x.length - 1]));
  const x = Array.from({ length: POINTS }, (_, at) => first + ((last - first) * at) / (POINTS - 1));
  const values = curves.map((curve) => interpolated(x, curve.x, curve.mean));
  const column = (combine) => x.map((_, at) => combine(values.map((own) => own[at])));
  return { x, mean: column((all) => all.reduce((sum, value) => sum + value, 0) / all.length),
           low: column((all) => Math.min(...all)), high: column((all) => Math.max(...all)) };
}

/** Return y at increasing points x, linearly between its own points. */
function interpolated(x, ownX, y) {
  let at = 0;
  return x.map((point) => {
    while (at < ownX.length - 2 && ownX[at + 1] < point) at += 1;
    const share = (point - ownX[at]) / (ownX[at + 1] - ownX[at] || 1);
    return y[at] + Math.min(Math.max(share, 0), 1) * (y[at + 1] - y[at]);
  });
}

/** Return the mean over the last part of a curve's steps, weighted by the number of values; null without any. */
function lastOf(columns) {
  if (!columns?.steps.length) return null;
  const from = columns.steps[columns.steps.length - 1] * (1 - LAST);
  let [sum, count] = [0, 0];
  columns.steps.forEach((steps, at) => {
    if (steps >= from && Number.isFinite(columns.mean[at])) [sum, count] = [sum + columns.mean[at] * columns.count[at], count + columns.count[at]];
  });
  return count ? sum / count : null;
}

function Last({ answer, names, groups, player, shown }) {
  const rows = groups.flatMap((group) => {
    const values = group.runs.map((at) => lastOf(answer.stores[at].columns(player, shown)));
    const own = group.runs.map((at, place) => ({ name: names[at], value: values[place], steps: answer.stores[at].columns(player, shown)?.steps.at(-1), state: answer.answers[at].state }));
    const known = values.filter((value) => value !== null);
    if (group.runs.length < 2 || !known.length) return own;
    const mean = known.reduce((sum, value) => sum + value, 0) / known.length;
    const deviation = Math.sqrt(known.reduce((sum, value) => sum + (value - mean) ** 2, 0) / Math.max(known.length - 1, 1));
    return [{ name: group.label, value: mean, deviation, isGroup: true }, ...own];
  });
  return html`<section class="card"><h2>Last values</h2>
    <p class="note">Mean of ${shown} over the last tenth of the steps of each run; for seeds their mean and standard deviation.</p>
    <div class="wide-table" tabindex="0" role="region" aria-label="Last values"><table>
      <thead><tr><th scope="col">run</th><th scope="col">state</th><th scope="col" class="right">steps</th><th scope="col" class="right">${shown}</th></tr></thead>
      <tbody>${rows.map((row) => html`<tr><th scope="row">${row.isGroup ? row.name : html`<a href=${`#/curves?run=${encodeURIComponent(row.name)}`}>${row.name}</a>`}</th><td>${row.state ?? ""}</td>
        <td class="right">${row.steps === undefined ? "" : compact(row.steps)}</td><td class="right">${row.value === null ? "–" : number(row.value)}${row.deviation !== undefined && ` ± ${number(row.deviation)}`}</td></tr>`)}</tbody>
    </table></div></section>`;
}

function Differences({ names, configurations }) {
  const maps = configurations.map((each) => new Map(each.keys.map(([key, value]) => [key, value])));
  const rows = [...new Set(maps.flatMap((map) => [...map.keys()]))].filter((key) => !IGNORED.has(key) && maps.some((map) => map.get(key) !== maps[0].get(key)));
  return html`<section class="card"><h2>What differs</h2>
    ${configurations.filter((each) => each.problem).map((each) => html`<p class="problem" role="status">${each.problem}</p>`)}
    ${rows.length === 0 ? html`<p>Nothing: all have the same configuration.</p>` : html`<div class="wide-table" tabindex="0" role="region" aria-label="Differences"><table>
      <thead><tr><th scope="col">key</th>${names.map((name) => html`<th scope="col">${name}</th>`)}</tr></thead>
      <tbody>${rows.map((key) => html`<tr><th scope="row">${key}</th>${maps.map((map) => html`<td class="yaml">${map.get(key) ?? "–"}</td>`)}</tr>`)}</tbody></table></div>`}</section>`;
}
