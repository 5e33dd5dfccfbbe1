// Episodes: the newest, best, worst and faulty ones, and how those of a player are distributed.

import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { get, usePolled } from "./api.js";
import { ago, compact, duration, number, percent } from "./format.js";
import { Problem } from "./state.js";

const ORDERS = { newest: "the newest", best: "the best returns", worst: "the worst returns", faulty: "with faults" };

export function EpisodesPage({ run, parameters, change, onState }) {
  const order = parameters.get("order") in ORDERS ? parameters.get("order") : "newest";
  const player = parameters.get("player") ?? "";
  const [answer, error] = usePolled(() => get("episodes", { run, player, order }), 5, [run, player, order]);
  const [more, setMore] = useState([]);
  const [problem, setProblem] = useState(null);
  useEffect(() => setMore([]), [run, player, order, answer?.newest]);
  useEffect(() => {
    if (answer) onState(answer);
  }, [answer?.state, answer?.reason]);
  useEffect(() => {
    if (answer && !player && answer.players.length) change({ player: answer.players[0] });
  }, [answer?.players.length, player]);
  const episodes = [...(answer?.episodes ?? []), ...more];
  const distribution = answer?.distribution;
  async function loadMore() {
    try {
      const next = await get("episodes", { run, order, before: episodes[episodes.length - 1].id });
      setMore([...more, ...next.episodes]);
    } catch (failure) {
      setProblem(failure.message);
    }
  }
  return html`
    <div class="bar"><h1>Episodes</h1>
      <label>player <input list="names" value=${player} onChange=${(event) => answer?.players.includes(event.target.value) && change({ player: event.target.value })} />
        <datalist id="names">${(answer?.players ?? []).map((name) => html`<option value=${name} />`)}</datalist></label>
      <label>show <select value=${order} onChange=${(event) => change({ order: event.target.value === "newest" ? null : event.target.value })}>
        ${Object.entries(ORDERS).map(([name, title]) => html`<option value=${name}>${title}</option>`)}</select></label></div>
    <${Problem} text=${error ?? problem} />
    ${distribution &&
    html`<p class="note">${player}: the newest ${distribution.episodes.toLocaleString()} episodes without faults.</p>
      <div class="charts">
        <${Histogram} title="return" ...${distribution.return} />
        <${Histogram} title="length" ...${distribution.length} />
        ${distribution.outcomes.some(([name]) => name !== "none") && html`<${Outcomes} outcomes=${distribution.outcomes} total=${distribution.episodes} />`}
        ${Object.entries(distribution.metrics).map(([name, values]) => html`<${Histogram} key=${name} title=${name} ...${values} />`)}
      </div>`}
    ${answer?.films?.length > 0 && html`<${Films} run=${run} films=${answer.films} />`}
    ${answer && !episodes.length && html`<p class="note">${order === "faulty" ? "No fault among the newest 100,000 episodes." : "No episode has ended yet."}</p>`}
    ${episodes.length > 0 &&
    html`<div class="wide-table" tabindex="0" role="region" aria-label="Episodes"><table>
      <thead><tr><th scope="col" class="right">episode</th><th scope="col">ended</th><th scope="col" class="right">match</th><th scope="col" class="right">copy</th><th scope="col" class="right">length</th>
        <th scope="col" class="right">duration</th><th scope="col">players: return, outcome</th><th scope="col">remarks</th></tr></thead>
      <tbody>${episodes.map((episode) => html`<tr key=${episode.id}><th scope="row" class="right">${episode.id}</th><td class="time">${ago(episode.ended_at)}</td><td class="right">${episode.match}</td><td class="right">${episode.copy}</td>
        <td class="right">${episode.length}</td><td class="right">${episode.seconds < 10 ? `${+episode.seconds.toPrecision(2)} s` : duration(episode.seconds)}</td><td>${casts(episode.entities)}</td>
        <td class=${episode.cause?.startsWith("fault") ? "bad awaited" : "awaited"}>${[episode.cause ?? (episode.truncated ? "truncated" : ""), episode.job !== null ? `job ${episode.job}` : ""].filter(Boolean).join("; ")}</td></tr>`)}</tbody>
    </table></div>
    ${order === "newest" && episodes[episodes.length - 1].id > 1 && html`<p><button onClick=${loadMore}>earlier episodes</button></p>`}`}
  `;
}

/** The films of the run: the chosen one, and a list of all. */
function Films({ run, films }) {
  const [chosen, setChosen] = useState(null);
  const shown = films.includes(chosen) ? chosen : films[0];
  const source = `films/${encodeURIComponent(run)}/${encodeURIComponent(shown)}`;
  return html`<section class="card"><div class="bar"><h2>Films</h2>
      <label>film <select value=${shown} onChange=${(event) => setChosen(event.target.value)}>${films.map((name) => html`<option value=${name}>${name}</option>`)}</select></label></div>
    ${shown.endsWith(".mp4") ? html`<video key=${source} class="film" src=${source} controls muted loop aria-label=${shown}></video>` : html`<img key=${source} class="film" src=${source} alt=${`film ${shown}`} />`}</section>`;
}

/** Return entities with equal player, return and outcome as one entry. */
function casts(entities) {
  const kinds = new Map();
  for (const entity of entities) {
    const text = `${entity.player}: ${entity.return === null ? "–" : number(entity.return)}${entity.outcome === null ? "" : `, ${entity.outcome}`}`;
    kinds.set(text, (kinds.get(text) ?? 0) + 1);
  }
  return [...kinds].map(([text, count]) => html`<span class="value">${count > 1 ? `${count} × ` : ""}${text}</span> `);
}

function Histogram({ title, counts, low, high, mean }) {
  const total = counts.reduce((sum, count) => sum + count, 0);
  const most = Math.max(...counts, 1);
  const step = (high - low) / counts.length;
  const [width, height] = [300, 110];
  return html`<figure class="chart"><figcaption><span class="title">${title}</span><span class="faint">${mean === undefined ? "" : `mean ${number(mean)}`}</span></figcaption>
    ${total === 0 ? html`<p class="note">no values</p>` : html`<svg class="histogram" viewBox=${`0 0 ${width} ${height + 18}`} role="img" aria-label=${`${title}: from ${number(low)} to ${number(high)}, most often about ${number(low + (counts.indexOf(most) + 0.5) * step)}`}>
      ${counts.map((count, at) => html`<rect x=${(at * width) / counts.length + 0.5} y=${height - (height * count) / most} width=${Math.max(width / counts.length - 1, 0.5)} height=${(height * count) / most} fill="var(--link)">
        <title>${number(low + at * step)} to ${number(low + (at + 1) * step)}: ${compact(count)} episodes (${percent(count / total)})</title></rect>`)}
      <text x="0" y=${height + 14} fill="var(--faint)" font-size="12">${number(low)}</text>
      <text x=${width} y=${height + 14} text-anchor="end" fill="var(--faint)" font-size="12">${number(high)}</text>
    </svg>`}</figure>`;
}

function Outcomes({ outcomes, total }) {
  return html`<figure class="chart draws"><table><caption>outcomes</caption><tbody>${outcomes.map(([name, count]) => html`<tr><th scope="row">${name}</th>
    <td><span class="meter" aria-hidden="true"><span style=${{ width: percent(count / total), background: "var(--link)" }}></span></span></td><td class="right">${percent(count / total)}</td></tr>`)}</tbody></table></figure>`;
}
