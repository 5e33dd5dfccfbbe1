// The ranks of a run: where they are, how they spend their time, and what they wait for.

import { html, useEffect, useMemo, useState } from "./vendor/preact-htm.js";
import { get, usePolled } from "./api.js";
import { Chart } from "./chart.js";
import { compact, number, percent, when } from "./format.js";
import { Problem } from "./state.js";

/** Kinds of time, in the order in which the server sends them: a colour, and a pattern for those who see none. */
const KINDS = [
  ["environment", "#16a34a"], ["policy", "#3b82f6"], ["learning", "#d97706"], ["other", "#8b5cf6"], ["waiting", "#94a3b8"],
];
const WAITING = KINDS.findIndex(([name]) => name === "waiting");
const RESTING = new Set(["root", "idle", "evaluator"]); // roles that are expected to wait

/** Return the place of a rank in a few words. */
export function partOf(rank) {
  if (rank.role === "worker") return `worker of ${rank.player}, seat ${rank.seat} of match ${rank.match}`;
  if (rank.role === "learner") return `learner of ${rank.player}`;
  if (rank.role === "runner") return `runner of match ${rank.match}, with all its seats`;
  if (rank.match !== null) return `${rank.role} of match ${rank.match}`;
  return rank.role;
}

export function MachinePage({ run, parameters, change, onState }) {
  const [answer, error] = usePolled(() => get("machine", { run }), 5, [run]);
  const whole = parameters.get("span") === "whole";
  useEffect(() => {
    if (answer) onState(answer);
  }, [answer?.state, answer?.reason]);
  const nodes = useMemo(() => grouped(answer?.ranks ?? []), [answer]);
  const shares = (rank) => (whole ? rank.mean : rank.now);
  return html`
    <h1 class="hidden">Ranks of ${run}</h1>
    <${Problem} text=${error} />
    ${answer?.reason && html`<p class="note">${answer.reason}</p>`}
    ${answer?.is_measured &&
    html`<section class="card">
      <div class="bar"><h2>What limits the speed</h2>
        <label>span <select value=${whole ? "whole" : "now"} onChange=${(event) => change({ span: event.target.value === "whole" ? "whole" : null })}>
          <option value="now">the newest measurement</option><option value="whole">the whole attempt</option></select></label>
        <span class="faint">measured ${when(answer.ranks[0].time)}</span></div>
      <p>${bottleneck(answer.ranks, shares)}</p>
      <p class="legend">${KINDS.map(([name, color], at) => html`<span><i class=${`swatch kind${at}`} style=${{ backgroundColor: color }}></i>${name}</span>`)}</p>
      <p class="note">Shares of the time of each rank. Policy: acting, and all of a policy's own loop. Other: the root's bookkeeping.</p>
    </section>`}
    ${answer && !answer.is_measured && html`<p class="note">Ranks are measured from the third second on; this is their plan.</p>`}
    ${[...nodes].map(([host, ranks]) => html`<${Node} key=${host} host=${host} ranks=${ranks} shares=${answer.is_measured ? shares : null} />`)}
    ${answer?.lag.length > 0 && html`<${Lag} rows=${answer.lag} />`}
    ${answer?.history.length > 0 && html`<${History} history=${answer.history} />`}
    ${answer?.hang && html`<section class="card"><h2>Hang report</h2><pre class="report" tabindex="0">${answer.hang}</pre></section>`}
  `;
}

function grouped(ranks) {
  const nodes = new Map();
  for (const rank of ranks) nodes.set(rank.host, [...(nodes.get(rank.host) ?? []), rank]);
  return nodes;
}

/** Return a sentence about the rank that waits least: the others wait for it. */
function bottleneck(ranks, shares) {
  const busy = ranks.filter((rank) => !RESTING.has(rank.role));
  if (!busy.length) return "No rank has work.";
  const least = busy.reduce((best, rank) => (shares(rank)[WAITING] < shares(best)[WAITING] ? rank : best));
  const own = shares(least);
  const kind = own.reduce((best, share, at) => (at !== WAITING && share > own[best] ? at : best), 0);
  const alike = busy.filter((rank) => rank.role === least.role && rank.player === least.player).length;
  const stuck = busy.filter((rank) => rank.waits_for);
  return html`<b>Rank ${least.rank}</b> (${partOf(least)}${alike > 1 ? `; there are ${alike} like it` : ""}) waits least, ${percent(own[WAITING])} of its time,
    and spends ${percent(own[kind])} in <b>${KINDS[kind][0]}</b>: the others wait for that.
    ${stuck.length > 0 && html` Long waits now: ${stuck.slice(0, 5).map((rank) => `rank ${rank.rank} for ${rank.waits_for}`).join("; ")}.`}`;
}

function Node({ host, ranks, shares }) {
  return html`<section class="card">
    <h2>${host}</h2>
    <div class="wide-table ranks" tabindex="0" role="region" aria-label=${`Ranks on ${host}`}><table>
      <thead><tr><th scope="col" class="right">rank</th><th scope="col">role</th><th scope="col" class="right">process</th>${shares && html`<th scope="col">time</th><th scope="col" class="right">waiting</th>
        <th scope="col" class="right">MB</th><th scope="col" class="right">steps/s</th><th scope="col">waits for</th>`}</tr></thead>
      <tbody>${ranks.map((rank) => html`<tr key=${rank.rank}><td class="right">${rank.rank}</td><th scope="row">${partOf(rank)}</th><td class="right">${rank.process}</td>
        ${shares && html`<td><${Bar} shares=${shares(rank)} /></td><td class="right">${percent(shares(rank)[WAITING])}</td>
          <td class="right">${number(Math.round(rank.megabytes))}</td><td class="right">${rank.steps_per_second === null ? "" : compact(rank.steps_per_second)}</td>
          <td class="awaited">${rank.waits_for}</td>`}</tr>`)}</tbody>
    </table></div>
  </section>`;
}

/** A bar of shares, in words for those who cannot see it. */
function Bar({ shares }) {
  const words = KINDS.map(([name], at) => `${name} ${percent(shares[at])}`).filter((_, at) => shares[at] >= 0.005).join(", ");
  return html`<span class="shares" role="img" aria-label=${words} title=${words}>
    ${KINDS.map(([, color], at) => shares[at] > 0 && html`<span class=${`kind${at}`} style=${{ width: `${100 * shares[at]}%`, backgroundColor: color }}></span>`)}</span>`;
}

function Lag({ rows }) {
  const columns = [["lag/mean", "mean lag", number], ["lag/greatest", "greatest lag", number], ["wait/learner", "learner waits", percent],
                   ["wait/workers", "workers wait", percent], ["versions_per_second", "versions/s", number]];
  return html`<section class="card"><h2>Learners</h2>
    <p class="note">Lag: updates between the weights that acted and those that learn from it.</p>
    <div class="wide-table" tabindex="0" role="region" aria-label="Learners"><table>
      <thead><tr><th scope="col">player</th>${columns.map(([, title]) => html`<th scope="col" class="right">${title}</th>`)}</tr></thead>
      <tbody>${rows.map((row) => html`<tr><th scope="row">${row.player}</th>${columns.map(([name, , text]) => html`<td class="right">${row[name] === undefined || row[name] === null ? "–" : text(row[name])}</td>`)}</tr>`)}</tbody>
    </table></div></section>`;
}

const CYCLE = ["#3b82f6", "#f97316", "#22c55e", "#8b5cf6", "#ef4444", "#14b8a6", "#ec4899", "#eab308"];

/** Waiting, memory and speed over time, for each role and player. */
function History({ history }) {
  const charts = useMemo(() => {
    const first = Math.min(...history.map((series) => series.time[0]));
    const lines = (column, scale = 1) =>
      history.flatMap((series, at) => {
        const mean = [...series[column]].map((value) => value * scale);
        if (mean.every((value) => !Number.isFinite(value))) return [];
        const label = series.player ? `${series.role} of ${series.player}` : series.role;
        return [{ label, color: CYCLE[at % CYCLE.length], x: [...series.time].map((time) => time - first), mean, low: null, high: null }];
      });
    return [["waiting", "mean share of the time", lines("waiting")], ["memory", "megabytes, all ranks of a role together", lines("megabytes")],
            ["environment steps per second", "all ranks of a role together", lines("speed")]];
  }, [history]);
  const legend = new Map(charts.flatMap(([, , lines]) => lines.map((line) => [line.label, line.color])));
  return html`<h2>Over time</h2>
    <p class="legend">${[...legend].map(([label, color]) => html`<span><i class="dot" style=${{ background: color }}></i>${label}</span>`)}</p>
    <div class="charts">${charts.filter(([, , lines]) => lines.length).map(([title, note, lines]) => html`<${Chart} key=${title} title=${title} note=${note} lines=${lines} axis="time" />`)}</div>`;
}
