// The matches of the current round: who sits where, how fast each is, and what it plays.

import { html, useEffect } from "./vendor/preact-htm.js";
import { get, usePolled } from "./api.js";
import { ago, compact, duration, number } from "./format.js";
import { Problem } from "./state.js";

export function MatchesPage({ run, onState }) {
  const [answer, error] = usePolled(() => get("matches", { run }), 5, [run]);
  useEffect(() => {
    if (answer) onState(answer);
  }, [answer?.state, answer?.reason]);
  const matches = answer?.matches ?? [];
  const hasJobs = answer?.state === "running" && matches.some((match) => match.job);
  return html`
    <div class="bar"><h1>Matches</h1>${matches.length > 0 && html`<span class="faint">${matches.length} in round ${answer.round}</span>`}</div>
    <${Problem} text=${error} />
    ${answer?.progress < 1 && html`<p class="note" role="status">Counting episodes: ${Math.floor(100 * answer.progress)} % …</p>`}
    ${answer && !matches.length && html`<p class="note">The plan of this run cannot be read (plan.json).</p>`}
    ${matches.length > 0 &&
    html`<div class="wide-table" tabindex="0" role="region" aria-label="Matches"><table>
      <thead><tr><th scope="col" class="right">match</th><th scope="col">environment</th><th scope="col">seats</th><th scope="col">ranks</th><th scope="col" class="right">steps/s</th>
        <th scope="col" class="right">episodes</th><th scope="col" class="right">mean length</th><th scope="col" class="right">faults</th><th scope="col">last episode</th>${hasJobs && html`<th scope="col">plays</th>`}</tr></thead>
      <tbody>${matches.map((match) => html`<tr key=${match.match}><th scope="row" class="right">${match.match}</th><td>${match.environment ?? "–"}${match.replica > 0 && html` <span class="faint">(replica ${match.replica})</span>`}</td>
        <td>${seatsOf(match)}</td><td>${ranges(match.ranks)} <span class="faint">on ${match.hosts.join(", ")}</span></td><td class="right">${compact(match.speed)}</td>
        <td class="right">${compact(match.episodes)}</td><td class="right">${match.length === undefined ? "–" : number(match.length)}</td>
        <td class=${match.faults ? "right bad" : "right"}>${match.faults}</td><td class="time">${match.ended_at ? ago(match.ended_at) : "–"}</td>
        ${hasJobs && html`<td>${match.job && html`${match.job.sides.map((side) => side.join(" and ")).join(" against ")} <span class="faint">(job ${match.job.id}, ${duration(Date.now() / 1000 - match.job.started)})</span>`}</td>`}</tr>`)}</tbody>
    </table></div>`}
  `;
}

/** Return the seats as "2 × blue, red (3 entities)". */
function seatsOf(match) {
  const kinds = new Map();
  for (const seat of match.seats) {
    const name = seat.entities === 1 ? seat.player : `${seat.player} (${seat.entities} entities)`;
    kinds.set(name, (kinds.get(name) ?? 0) + 1);
  }
  return [...kinds].map(([name, count]) => (count > 1 ? `${count} × ${name}` : name)).join(", ");
}

/** Return whole numbers as "1–5, 8". */
function ranges(numbers) {
  const parts = [];
  for (const value of [...numbers].sort((a, b) => a - b)) {
    const last = parts[parts.length - 1];
    if (last && last[1] === value - 1) last[1] = value;
    else parts.push([value, value]);
  }
  return parts.map(([first, last]) => (first === last ? first : `${first}–${last}`)).join(", ");
}
