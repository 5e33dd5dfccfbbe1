// The table of all runs.

import { html, useState } from "./vendor/preact-htm.js";
import { get, usePolled } from "./api.js";
import { ago, compact, number, percent, when } from "./format.js";
import { Problem, State } from "./state.js";

/** Return all runs, and how much of their records the server has read. */
async function loadRuns() {
  const answer = await get("runs");
  return { ...answer, progress: Math.min(1, ...answer.runs.map((run) => run.progress ?? 1)) };
}

export function RunsPage({ parameters, change }) {
  const [answer, error] = usePolled(loadRuns, 5, []);
  const [picked, setPicked] = useState([]);
  const pick = (name) => setPicked(picked.includes(name) ? picked.filter((other) => other !== name) : [...picked, name]);
  const filter = parameters.get("filter") ?? "";
  const runs = (answer?.runs ?? []).filter((run) =>
    `${run.name} ${run.state} ${run.players.map((player) => `${player.name} ${player.use}`).join(" ")}`
      .toLowerCase()
      .includes(filter.toLowerCase()),
  );
  const areAllPicked = runs.length > 0 && runs.every((run) => picked.includes(run.name));
  const newestFirst = [...runs].sort((a, b) => (b.started ?? 0) - (a.started ?? 0));
  return html`
    <div class="bar">
      <h1>Runs</h1>
      <label>Filter <input type="search" value=${filter} placeholder="name, state or policy"
        onInput=${(event) => change({ filter: event.target.value })} /></label>
      <span class="faint">${answer && `${runs.length} of ${answer.runs.length}`}</span>
      ${answer?.runs.length > 1 &&
      (picked.length > 1
        ? html`<a class="button" href=${`#/compare?runs=${encodeURIComponent(JSON.stringify(picked))}`}>compare ${picked.length} runs</a>`
        : html`<span class="faint">choose two or more to compare them</span>`)}
    </div>
    <${Problem} text=${error} />
    ${answer && !answer.runs.length && html`<p class="note">There are no runs here yet. A run appears when it begins.</p>`}
    ${newestFirst.length > 0 &&
    html`<div class="wide-table" tabindex="0" role="region" aria-label="Runs">
      <table>
        <thead><tr>
          ${answer.runs.length > 1 && html`<th scope="col"><input type="checkbox" checked=${areAllPicked} aria-label="compare all runs of this list"
            title="all runs of this list" onChange=${() => setPicked(areAllPicked ? [] : runs.map((run) => run.name))} /></th>`}<th scope="col">run</th><th scope="col">state</th><th scope="col">started</th><th scope="col">steps</th>
          <th scope="col">return</th><th scope="col" class="right">steps/s</th><th scope="col" class="right">ranks</th><th scope="col">host</th>
        </tr></thead>
        <tbody>${newestFirst.map((run) => html`<${Line} key=${run.name} run=${run} pick=${answer.runs.length > 1 && (() => pick(run.name))} isPicked=${picked.includes(run.name)} />`)}</tbody>
      </table>
    </div>`}
  `;
}

function Line({ run, pick, isPicked }) {
  const unreadable = run.state === "unreadable";
  const learning = run.players.filter((player) => player.learns);
  return html`<tr>
    ${pick && html`<td><input type="checkbox" checked=${isPicked} onChange=${pick} aria-label=${`compare ${run.name}`} /></td>`}
    <th scope="row"><a href=${`#/curves?run=${encodeURIComponent(run.name)}`}>${run.name}</a></th>
    <td><${State} ...${run} />${run.reason && html`<span class="reason">${run.reason}</span>`}
      ${run.concerns?.map(({ player, text }) => html`<span class="reason">! ${player} ${text}</span>`)}</td>
    ${unreadable
      ? html`<td colspan="6"></td>`
      : html`
          <td><span title=${when(run.started)}>${run.started ? ago(run.started) : "–"}</span>
            ${run.attempts > 1 && html`<span class="faint"> (attempt ${run.attempts})</span>`}</td>
          <td>${learning.slice(0, 3).map((player) => html`<${Progress} player=${player} />`)}
            ${learning.length > 3 && html`<span class="faint">and ${learning.length - 3} more</span>`}</td>
          <td>${Object.entries(run.sparklines).map(
            ([name, values]) => html`<${Sparkline} name=${name} values=${values} reading=${run.progress < 1} color=${run.players.find((player) => player.name === name).color} />`,
          )}</td>
          <td class="right">${run.speed ? compact(run.speed) : "–"}</td>
          <td class="right">${run.ranks ?? "–"}</td>
          <td>${run.host ?? "–"}</td>
        `}
  </tr>`;
}

function Progress({ player }) {
  const share = player.budget ? Math.min(player.steps / player.budget, 1) : null;
  return html`<div class="progress">
    <span>${player.name} ${compact(player.steps)}${player.budget ? ` of ${compact(player.budget)}` : ""}</span>
    ${share !== null &&
    html`<span class="meter" role="meter" aria-label=${`${player.name}, steps`} aria-valuemin="0" aria-valuemax="100" aria-valuenow=${Math.round(100 * share)} aria-valuetext=${percent(share)}>
      <span style=${{ width: percent(share), background: player.color }}></span></span>`}
  </div>`;
}

function Sparkline({ name, values, reading, color }) {
  if (!values.length) return html`<div class="spark faint">${name}: ${reading ? "reading …" : "no episode yet"}</div>`;
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const x = (at) => 2 + (96 * at) / Math.max(values.length - 1, 1);
  const y = (value) => 20 - 18 * ((value - low) / (high - low || 1));
  const points = values.map((value, at) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  const last = values[values.length - 1];
  return html`<div class="spark">
    <svg viewBox="0 0 100 22" role="img" aria-label=${`return of ${name}, from ${number(values[0])} to ${number(last)}`}>
      <polyline points=${points} fill="none" stroke=${color} stroke-width="1.5" />
      <circle cx=${x(values.length - 1)} cy=${y(last)} r="2" fill=${color} />
    </svg>
    <b>${number(last)}</b> <span class="faint">${name}</span>
  </div>`;
}
