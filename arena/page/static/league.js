// Who beats whom, the ratings, the family, and who is drawn against whom: now, and at any moment of the run.

import { html, useEffect, useMemo, useRef, useState } from "./vendor/preact-htm.js";
import { get, usePolled } from "./api.js";
import { Chart } from "./chart.js";
import { compact, duration, number, percent, when } from "./format.js";
import { gamesOf, owned, whyEmpty } from "./games.js";
import { HeatMap, interval } from "./heat_map.js";
import { Problem } from "./state.js";

const SHOWN = 40; // players of the heat map at first

/** Return what keeps the league of a run and requests only what has changed. */
function loader(run) {
  let since = "";
  let league = null;
  return async () => {
    const answer = await get("league", { run, since });
    if ("league" in answer) league = answer.league;
    since = answer.since;
    return { ...answer, league };
  };
}

export function LeaguePage({ run, parameters, change, onState }) {
  const load = useMemo(() => loader(run), [run]);
  const [answer, error] = usePolled(load, 5, [load]);
  useEffect(() => {
    if (answer) onState(answer);
  }, [answer?.state, answer?.reason]);
  const league = answer?.league;
  return html`
    <h1 class="hidden">League of ${run}</h1>
    <${Problem} text=${error} />
    ${answer && answer.progress < 1 && html`<p class="note" role="status">Reading the records: ${Math.floor(100 * answer.progress)} % …</p>`}
    ${answer && !league && answer.progress === 1 && html`<p class="note">No two players have met in this run: there is no one to beat.</p>`}
    ${league?.concerns.map(([player, text]) => html`<${Problem} text=${`${player} ${text}`} />`)}
    ${league && html`<${Standing} league=${league} parameters=${parameters} change=${change} />`}
    ${league?.ratings.length > 0 && html`<${Ratings} league=${league} />`}
    ${league?.kind === "league" && html`<${Family} players=${league.players} resets=${league.resets} rollbacks=${league.rollbacks} />`}
    ${league?.draws.length > 0 && html`<${Draws} league=${league} />`}
    ${league?.kind === "league" && html`<${Phases} players=${league.players} />`}
  `;
}

function Standing({ league, parameters, change }) {
  const last = league.history ? Math.max(...league.history.slice, 0) : 0;
  const [slice, setSlice] = useState(null); // null: now
  const [playing, setPlaying] = useState(false);
  const which = parameters.get("show") ?? "best";
  const at = slice === null ? last : Math.min(slice, last);
  useEffect(() => {
    if (!playing) return undefined;
    const timer = setInterval(() => {
      setSlice((now) => (now === null ? 0 : now + 1));
    }, 250);
    return () => clearInterval(timer);
  }, [playing]);
  useEffect(() => {
    if (playing && slice !== null && slice >= last) {
      setPlaying(false);
      setSlice(null);
    }
  }, [slice, playing, last]);

  const kind = slice === null && league.standing && parameters.get("games") !== "all" ? "league" : "all";
  const count = useMemo(() => gamesOf(league, kind, slice === null ? null : at, last), [league, kind, slice, at]);
  const now = useMemo(() => gamesOf(league, "league", null, last), [league]);
  const order = useMemo(() => {
    const score = league.players.map((player, place) => {
      if (player.mu !== undefined && player.mu !== null) return player.mu;
      let [won, games] = [0, 0];
      league.players.forEach((_, other) => {
        const found = now(place, other);
        if (found) [won, games] = [won + found.rate * found.games, games + found.games];
      });
      return games ? won / games : -Infinity;
    });
    const places = league.players.map((_, place) => place);
    const chosen = which === "active" ? places.filter((place) => league.players[place].active) : places;
    chosen.sort((a, b) => score[b] - score[a]);
    return which === "all" ? chosen : bestOf(league.players, chosen);
  }, [league, which]);
  const names = useMemo(() => order.map((place) => league.players[place].name), [order]);
  const cell = (row, column) => count(order[row], order[column]);
  const why = (row, column) => whyEmpty(league, kind, order[row], order[column]);
  const pair = [parameters.get("home"), parameters.get("away")].map((name) => names.indexOf(name));
  const chosen = pair.every((place) => place >= 0) && pair[0] !== pair[1] ? pair : null;
  const time = league.history ? league.history.start + (at + 1) * league.history.width : null;
  return html`<section class="card">
    <div class="bar">
      <h2>Who beats whom</h2>
      <label>players <select value=${which} onChange=${(event) => change({ show: event.target.value })}>
        <option value="best">the best ${Math.min(SHOWN, league.players.length)}, and all that learn</option>
        <option value="active">those that learn</option>
        <option value="all">all ${league.players.length}</option></select></label>
      ${league.standing && html`<label>games <select value=${kind} disabled=${slice !== null} onChange=${(event) => change({ games: event.target.value })}>
        <option value="league">as the league counts</option>
        <option value="all">all, by the weights that played</option></select></label>`}
      ${last > 0 &&
      html`<span class="slider"><button aria-label=${playing ? "pause" : "play the history"} onClick=${() => { if (!playing && slice === null) setSlice(0); setPlaying(!playing); }}>${playing ? "❚❚" : "▶"}</button>
        <label><span class="hidden">moment of the run</span><input type="range" min="0" max=${last} value=${at} aria-valuetext=${slice === null ? "now" : when(time)}
          onInput=${(event) => { const value = Number(event.target.value); setPlaying(false); setSlice(value >= last ? null : value); }} /></label></span>
        <span class="faint">${slice === null ? "now" : `up to ${when(time)}`}</span>`}
    </div>
    <p class="note">Win rate of the row against the column, draws count one half; blue wins, orange loses.
      ${league.kind === "league" && (kind === "league"
        ? " As the league counts: recent games weigh more."
        : ` All games${slice === null ? "" : " up to then"}: a snapshot has those that its player has played since the snapshot before.`)}
      ${" "}The bar in a cell is the 95 % interval.
      ${league.kind === "league" ? " The best rating first." : " The best win rate first."}</p>
    <${HeatMap} names=${names} cell=${cell} why=${why} version=${`${slice}.${which}.${kind}`} chosen=${chosen}
      choose=${(row, column) => row !== column && change({ home: names[row], away: names[column] })} />
    ${chosen && html`<${Pair} league=${league} home=${order[chosen[0]]} away=${order[chosen[1]]} close=${() => change({ home: null, away: null })} />`}
  </section>`;
}

/** Return the places of the best players, and of all that learn, in their order. */
function bestOf(players, order) {
  const best = new Set(order.slice(0, SHOWN));
  return order.filter((place) => best.has(place) || players[place].active);
}

/** The games of one pair over time. */
function Pair({ league, home, away, close }) {
  const history = league.history;
  const bars = useMemo(() => {
    const sums = new Map();
    const all = owned(league, Infinity);
    for (let at = 0; at < all.home.length; at++) {
      const swapped = all.home[at] === away && all.away[at] === home;
      if (!swapped && !(all.home[at] === home && all.away[at] === away)) continue;
      const won = swapped ? all.games[at] - all.won[at] : all.won[at];
      const entry = sums.get(all.slice[at]) ?? { won: 0, games: 0 };
      sums.set(all.slice[at], { won: entry.won + won, games: entry.games + all.games[at] });
    }
    return [...sums.entries()].sort((a, b) => a[0] - b[0]);
  }, [league, home, away]);
  const [a, b] = [league.players[home], league.players[away]];
  const total = bars.reduce((sum, [, entry]) => ({ won: sum.won + entry.won, games: sum.games + entry.games }), { won: 0, games: 0 });
  const line = {
    label: `${a.name} against ${b.name}`, color: a.color ?? "#3b82f6",
    x: bars.map(([slice]) => (slice + 0.5) * history.width), mean: bars.map(([, entry]) => entry.won / entry.games),
    low: bars.map(([, entry]) => interval(entry.won / entry.games, entry.games)[0]),
    high: bars.map(([, entry]) => interval(entry.won / entry.games, entry.games)[1]),
  };
  return html`<div class="pair">
    <div class="bar"><h3>${a.name} against ${b.name}</h3>
      <span>${number(total.games)} games, ${total.games > 0 && `${percent(total.won / total.games)} won`}</span>
      <button onClick=${close}>close</button></div>
    ${bars.length > 0 && html`<${Chart} title="win rate" note="of the games of each moment; the band is the 95 % interval" lines=${[line]} axis="time" />`}
  </div>`;
}

function Ratings({ league }) {
  const lines = useMemo(() => {
    const first = Math.min(...league.ratings.map((curve) => curve.time[0]));
    return league.ratings.map((curve) => ({
      label: curve.player, color: league.players.find((player) => player.name === curve.player)?.color ?? "#3b82f6",
      x: [...curve.time].map((time) => time - first), mean: [...curve.mu],
      low: [...curve.mu].map((mu, at) => mu - curve.sigma[at]), high: [...curve.mu].map((mu, at) => mu + curve.sigma[at]),
    }));
  }, [league]);
  return html`<${Chart} title="ratings" note="openskill, of the players that learn; the band is one standard deviation" lines=${lines} axis="time" tall />`;
}

/** The family: a lane for each player that began without a parent, a dot for each snapshot at its steps. */
function Family({ players, resets, rollbacks }) {
  const byName = new Map(players.map((player) => [player.name, player]));
  const laneOf = (player) => {
    let found = player;
    for (let depth = 0; found.parent && byName.has(found.parent) && depth < players.length; depth++) found = byName.get(found.parent);
    return found.name;
  };
  const lanes = [...new Set(players.filter((player) => player.active).map(laneOf))];
  const [row, left, right] = [34, 190, 40];
  const most = Math.max(...players.map((player) => player.steps), 1);
  const box = useRef(null);
  const [width, setWidth] = useState(260);  // the narrowest until it is measured, so that no frame is wider than a phone
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.max(entry.contentRect.width, 260)));
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  const margin = Math.min(left, width * 0.35);
  const x = (steps) => margin + (steps / most) * (width - margin - right);
  return html`<section class="card" ref=${box}>
    <h2>Family</h2>
    <p class="note">Rings learn, dots are their snapshots, at the steps at which they were taken.${resets.length > 0 && " A cross is a reset to the first weights."}${rollbacks.length > 0 && " An arc is a rollback: the player had got worse, and continues from the snapshot at the arc's left end."}</p>
    <svg width=${width - 2} height=${row * lanes.length + 26} role="img" aria-label=${lanes.map((lane) => `${lane} has ${players.filter((player) => !player.active && laneOf(player) === lane).length} snapshots`).join(", ")}>
      ${lanes.map((lane, at) => {
        const own = players.filter((player) => laneOf(player) === lane).sort((a, b) => a.steps - b.steps);
        const color = byName.get(lane)?.color ?? "#3b82f6";
        const y = row * at + 18;
        return html`<g>
          <text x=${margin - 12} y=${y + 4} text-anchor="end" fill="currentColor" font-size="13">${fitted(lane, margin)}</text>
          <line x1=${x(0)} x2=${x(Math.max(...own.map((player) => player.steps)))} y1=${y} y2=${y} stroke=${color} stroke-width="1.6" />
          ${own.map((player) => html`<circle cx=${x(player.steps)} cy=${y} r=${player.active ? 6 : 4} fill=${player.active ? "var(--card)" : color} stroke=${color} stroke-width="2">
            <title>${player.name}: ${compact(player.steps)} steps${player.mu ? `, rating ${number(player.mu)}` : ""}</title></circle>`)}
          ${resets.filter(([player]) => player === lane).map(([, steps]) => html`<text x=${x(steps)} y=${y - 8} text-anchor="middle" fill="currentColor" font-size="13">×<title>reset after ${compact(steps)} steps</title></text>`)}
          ${rollbacks.filter(([player]) => player === lane).map(([, steps, , snapshot]) => html`<path d=${`M${x(steps)},${y - 4} Q${(x(steps) + x(byName.get(snapshot)?.steps ?? 0)) / 2},${y - 22} ${x(byName.get(snapshot)?.steps ?? 0)},${y - 4}`} fill="none" stroke="currentColor" stroke-width="1.4">
            <title>rolled back to ${snapshot} after ${compact(steps)} steps</title></path>`)}
        </g>`;
      })}
      <text x=${x(0)} y=${row * lanes.length + 18} fill="var(--faint)" font-size="12">0</text>
      <text x=${x(most)} y=${row * lanes.length + 18} text-anchor="end" fill="var(--faint)" font-size="12">${compact(most)} steps</text>
    </svg>
  </section>`;
}

const fitted = (name, room) => (name.length * 7.2 > room - 14 ? `${name.slice(0, Math.max(Math.floor((room - 22) / 7.2), 1))}…` : name);

/** Who is drawn against whom: the opponents of each player's newest jobs. */
function Draws({ league }) {
  const players = [...new Set(league.draws.map(([player]) => player))].sort();
  return html`<section class="card">
    <h2>Opponents now</h2>
    <p class="note">Shares of the newest jobs of each player that learns.</p>
    <div class="draws">${players.map((player) => {
      const own = league.draws.filter(([name]) => name === player);
      const total = own.reduce((sum, [, , jobs]) => sum + jobs, 0);
      const rest = own.slice(8).reduce((sum, [, , jobs]) => sum + jobs, 0);
      const color = league.players.find((found) => found.name === player)?.color ?? "#3b82f6";
      const rows = [...own.slice(0, 8), ...(rest ? [[player, `${own.length - 8} others`, rest]] : [])];
      return html`<table><caption>${player}</caption><tbody>
        ${rows.map(([, other, jobs]) => html`<tr><th scope="row">${other === player ? "itself" : other}</th>
          <td><span class="meter" aria-hidden="true"><span style=${{ width: percent(jobs / total), background: color }}></span></span></td>
          <td class="right">${percent(jobs / total)}</td></tr>`)}
      </tbody></table>`;
    })}</div>
  </section>`;
}

/** What each phase has cost: the steps and the time between two snapshots of a player. */
function Phases({ players }) {
  const before = new Map();
  const rows = [];
  for (const player of [...players].sort((a, b) => a.created - b.created)) {
    if (player.active) {
      before.set(player.name, { steps: 0, created: player.created });
    } else if (player.parent && before.has(player.parent)) {
      const last = before.get(player.parent);
      rows.push({ ...player, cost: player.steps - last.steps, seconds: player.created - last.created });
      before.set(player.parent, player);
    }
  }
  if (!rows.length) return null;
  return html`<section class="card">
    <h2>Phases</h2>
    <div class="wide-table" tabindex="0" role="region" aria-label="Phases"><table>
      <thead><tr><th scope="col">snapshot</th><th scope="col">of</th><th scope="col">taken</th><th scope="col" class="right">steps</th>
        <th scope="col" class="right">steps of the phase</th><th scope="col" class="right">duration</th><th scope="col" class="right">rating</th></tr></thead>
      <tbody>${rows.reverse().slice(0, 200).map((row) => html`<tr key=${row.name}><th scope="row">${row.name}</th><td>${row.parent}</td><td>${when(row.created)}</td>
        <td class="right">${compact(row.steps)}</td><td class="right">${compact(row.cost)}</td><td class="right">${duration(row.seconds)}</td>
        <td class="right">${row.mu ? `${number(row.mu)} ± ${number(row.sigma)}${row.games ? "" : "*"}` : "–"}</td></tr>`)}</tbody>
    </table></div>
    <p class="note">Ratings with one standard deviation. * that of its parent when it was frozen: it has not played under its own name.</p>
  </section>`;
}
