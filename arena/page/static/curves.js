// The curves of a run: returns with their bands, evaluations, and a small chart for every metric.

import { html, useEffect, useMemo, useState } from "./vendor/preact-htm.js";
import { usePolled } from "./api.js";
import { AXES, Chart, smoothed } from "./chart.js";
import { CurveStore } from "./curve_store.js";
import { Problem } from "./state.js";

const FIRST = ["loss/policy", "policy_loss", "loss/value", "value_loss", "entropy", "kl", "approx_kl", "explained_variance"];
const SHOWN = 6; // players that are shown at first
const NOTES = {
  return: "mean of the episodes; the band holds the middle 80 % of them",
  length: "environment steps of an episode; the band holds the middle 80 % of them",
  "win rate": "draws count one half",
};

/** Return the training time of Unix times: pauses between attempts do not count. */
function trainingTime(times, attempts) {
  const begins = attempts.map((attempt) => attempt.started);
  const before = [];
  let total = 0;
  attempts.forEach((attempt, at) => {
    before.push(total);
    const next = begins[at + 1] ?? Infinity;
    const end = Math.min(attempt.ended ?? next, next);
    if (Number.isFinite(end)) total += Math.max(end - attempt.started, 0);
  });
  return times.map((time) => {
    let at = begins.length - 1;
    while (at > 0 && begins[at] > time) at -= 1;
    return at < 0 ? 0 : before[at] + Math.max(time - begins[at], 0);
  });
}

/** Return the x of columns for an axis. */
export function xOf(columns, axis, attempts) {
  return axis === "time" ? trainingTime(columns.time, attempts) : columns[axis];
}

/** Return x at some Unix times, from a player's curve: for marks of attempts and faults. */
function atTimes(times, columns, axis, attempts) {
  if (axis === "time") return trainingTime(times, attempts);
  const xs = columns[axis];
  return times.map((time) => {
    const at = columns.time.findIndex((t) => t >= time);
    return at < 0 ? xs[xs.length - 1] : xs[at];
  });
}

/** Return a list of names in an address, empty if it is malformed. */
export function listOf(text) {
  try {
    const names = JSON.parse(text ?? "[]");
    return Array.isArray(names) ? names.map(String) : [];
  } catch {
    return [];
  }
}

const quoted = (value) => (/[",\n]/.test(value) ? `"${String(value).replace(/"/g, '""')}"` : value);

function csvOf(store, players, name) {
  const names = ["steps", "time", "updates", "episodes", "count", "mean", "low", "high"];
  const rows = [["player", "curve", ...names]];
  for (const player of players) {
    const columns = store.columns(player, name);
    columns?.steps.forEach((_, at) => rows.push([player, name, ...names.map((column) => columns[column][at])]));
  }
  return rows.map((row) => row.map(quoted).join(",")).join("\n") + "\n";
}

export function CurvesPage({ run, parameters, change, onState }) {
  const chosen = listOf(parameters.get("player"));
  const key = JSON.stringify(chosen);
  const store = useMemo(() => new CurveStore(run, chosen), [run, key]);
  const [answer, error] = usePolled(() => store.update(), 2, [store]);
  const axis = parameters.get("x") in AXES ? parameters.get("x") : "steps";
  const weight = Number(parameters.get("smooth") ?? 0) || 0;
  const log = parameters.get("log") === "1";
  const [filter, setFilter] = useState("");
  useEffect(() => {
    if (answer) onState(answer);
  }, [answer?.state, answer?.reason]);
  useEffect(() => {
    if (answer && !chosen.length && answer.players.length) {
      const learning = answer.players.filter((player) => player.learns);
      const first = (learning.length ? learning : answer.players).slice(0, SHOWN);
      change({ player: JSON.stringify(first.map((player) => player.name)) });
    }
  }, [answer?.players.length]);

  const players = (answer?.players ?? []).filter((player) => chosen.includes(player.name));
  const attempts = answer?.attempts ?? [];
  const version = store.version;
  const charts = useMemo(() => {
    const lines = (name) =>
      players.flatMap((player) => {
        const columns = store.columns(player.name, name);
        if (!columns) return [];
        const band = name === "return" || name === "length";
        return [{
          label: player.name, color: player.color, x: xOf(columns, axis, attempts), mean: smoothed(columns.mean, weight),
          low: band ? smoothed(columns.low, weight) : null, high: band ? smoothed(columns.high, weight) : null,
        }];
      });
    const names = store.names().filter((name) => !["return", "length", "win rate"].includes(name));
    const rank = (name) => (FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length);
    names.sort((a, b) => rank(a) - rank(b) || a.localeCompare(b));
    return ["return", "win rate", "length", ...names].map((name) => [name, lines(name)]).filter(([, found]) => found.length);
  }, [store, version, axis, weight, key, attempts.length, answer?.state]);

  const reference = players.map((player) => store.columns(player.name, "return")).find((columns) => columns?.time.length);
  const marks = useMemo(() => {
    if (!reference) return [];
    const begins = attempts.slice(1).map((attempt) => attempt.started);
    const faults = (answer?.faults ?? []).map((fault) => fault.time);
    return [
      ...atTimes(begins, reference, axis, attempts).map((x) => ({ x, kind: "attempt" })),
      ...atTimes(faults, reference, axis, attempts).map((x) => ({ x, kind: "fault" })),
    ];
  }, [reference, axis, attempts.length, answer?.faults?.length]);

  const dots = useMemo(
    () =>
      players.flatMap((player) => {
        const found = answer?.evaluations[player.name];
        const columns = store.columns(player.name, "return");
        if (!found || !columns) return [];
        const x = axis === "steps" ? [...found.steps] : atTimes([...found.times], columns, axis, attempts);
        const edge = (sign) => [...found.mean].map((mean, at) => mean + sign * found.deviation[at]);
        return [{ label: `${player.name}, evaluated`, color: player.color, x, y: [...found.mean], low: edge(-1), high: edge(1) }];
      }),
    [store, version, axis, key, answer],
  );

  const [main, ...others] = charts;
  const visible = others.filter(([name]) => name.toLowerCase().includes(filter.toLowerCase()));
  const legend = [...(marks.some((mark) => mark.kind === "attempt") ? ["dashed lines: the run was resumed"] : []),
                  ...(marks.some((mark) => mark.kind === "fault") ? ["red ticks: faults"] : []),
                  ...(dots.length ? ["rings: evaluations with one deviation"] : [])];
  return html`
    <h1 class="hidden">Curves of ${run}</h1>
    <${Problem} text=${error} />
    ${answer?.reason && html`<p class="note">${answer.reason}</p>`}
    ${answer && answer.progress < 1 && html`<p class="note" role="status">Reading the records: ${Math.floor(100 * answer.progress)} % …</p>`}
    <div class="bar">
      <label>x axis <select value=${axis} onChange=${(event) => change({ x: event.target.value })}>
        ${Object.keys(AXES).map((name) => html`<option value=${name}>${name}</option>`)}</select></label>
      <label>smoothing <input type="range" min="0" max="0.98" step="0.02" value=${weight}
        onInput=${(event) => change({ smooth: event.target.value === "0" ? null : event.target.value })} /></label>
      <label><input type="checkbox" checked=${log} onChange=${(event) => change({ log: event.target.checked ? "1" : null })} /> log scale</label>
      ${answer && html`<${Players} all=${answer.players} chosen=${chosen} choose=${(names) => change({ player: JSON.stringify(names) })} />`}
    </div>
    ${main
      ? html`<${Chart} key="main" title=${`${main[0]} of ${run}`} note=${[NOTES[main[0]], ...legend].filter(Boolean).join("; ")} lines=${main[1]} dots=${main[0] === "return" ? dots : []}
          marks=${marks} axis=${axis} log=${log} tall csv=${() => csvOf(store, chosen, main[0])} />`
      : answer && answer.progress === 1 && chosen.length > 0 && html`<p class="note">No episode has ended yet.</p>`}
    ${others.length > 0 &&
    html`<div class="bar"><h2>Metrics</h2><label>Filter <input type="search" value=${filter} onInput=${(event) => setFilter(event.target.value)} /></label>
        <span class="faint">drag: zoom; double click: all; click or Enter: pin a value</span></div>
      <div class="charts">
        ${visible.map(([name, lines]) => html`<${Chart} key=${name} title=${name} note=${NOTES[name]} lines=${lines} marks=${marks} axis=${axis} log=${log} csv=${() => csvOf(store, chosen, name)} />`)}
      </div>`}
  `;
}

/** Checkboxes for few players, a field with a list for many. */
function Players({ all, chosen, choose }) {
  const toggle = (name) => choose(chosen.includes(name) ? chosen.filter((other) => other !== name) : [...chosen, name]);
  const shown = all.length <= 12 ? all : all.filter((player) => chosen.includes(player.name));
  return html`<fieldset class="players"><legend>players</legend>
    ${shown.map((player) => html`<label><input type="checkbox" checked=${chosen.includes(player.name)} onChange=${() => toggle(player.name)} />
      <i class="dot" style=${{ background: player.color }}></i>${player.name}</label>`)}
    ${all.length > 12 &&
    html`<input list="players" aria-label="add a player" placeholder=${`one of ${all.length} players`}
        onChange=${(event) => { if (all.some((player) => player.name === event.target.value)) { toggle(event.target.value); event.target.value = ""; } }} />
      <datalist id="players">${all.map((player) => html`<option value=${player.name} />`)}</datalist>`}
  </fieldset>`;
}
