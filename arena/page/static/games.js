// The games of each pair of players, as the league counts them or all of them, and why a pair has none.

import { interval } from "./heat_map.js";
import { compact } from "./format.js";

/** Return the games of a history, up to a slice, by the weights that played them: columns home, away, slice, won, games. */
export function owned(league, slice) {
  const { players, history } = league;
  const found = { home: [], away: [], slice: [], won: [], games: [] };
  if (!history) return found;
  const end = history.start + (slice + 1) * history.width;
  const places = new Map(players.map((player, place) => [player.name, place]));
  const lives = players.map(() => []); // of each active player: when its weights were frozen (place) or given up (null)
  players.forEach((player, place) => {
    if (!player.active && player.parent && player.steps > 0 && places.has(player.parent)) lives[places.get(player.parent)].push([player.created, place]);
  });
  for (const [player, , time] of league.rollbacks ?? []) if (places.has(player)) lives[places.get(player)].push([time, null]);
  for (const life of lives) life.sort((a, b) => a[0] - b[0]);
  const ownerOf = (place, time) => {
    const next = lives[place].find(([until]) => until > time);
    return next && next[0] <= end ? next[1] : place;
  };
  for (let at = 0; at < history.home.length; at++) {
    if (history.slice[at] > slice) continue;
    const time = history.start + (history.slice[at] + 0.5) * history.width;
    const [home, away] = [ownerOf(history.home[at], time), ownerOf(history.away[at], time)];
    if (home === null || away === null || home === away) continue;
    found.home.push(home);
    found.away.push(away);
    for (const name of ["slice", "won", "games"]) found[name].push(history[name][at]);
  }
  return found;
}

/**
 * Return a function of two places: {rate, games, low, high}, the ends of the 95 % interval included; null without games.
 *
 * source: columns home, away, won and games, of which those of a pair are added up, and low and high if they are known
 */
function byPair(size, source) {
  const rowOf = new Int32Array(size * size); // of each pair, from 1; a league of 1,000 players has 500,000 of them
  const [won, games] = [Float64Array.from(source.won), Float64Array.from(source.games)];
  for (let at = 0; at < source.home.length; at++) {
    const [home, away] = [source.home[at], source.away[at]];
    const [same, reversed] = [rowOf[home * size + away] - 1, rowOf[away * size + home] - 1];
    const first = Math.max(same, reversed);
    if (first < 0) {
      rowOf[home * size + away] = at + 1;
    } else {
      won[first] += same >= 0 ? won[at] : games[at] - won[at];
      games[first] += games[at];
    }
  }
  return (home, away) => {
    const [same, reversed] = [rowOf[home * size + away] - 1, rowOf[away * size + home] - 1];
    const at = Math.max(same, reversed);
    if (at < 0 || !(games[at] > 0)) return null;
    const rate = won[at] / games[at];
    const [low, high] = source.low ? [source.low[at], source.high[at]] : interval(rate, games[at]);
    return same >= 0 ? { rate, games: games[at], low, high } : { rate: 1 - rate, games: games[at], low: 1 - high, high: 1 - low };
  };
}

/** Return the games of two places: as the league counts (kind "league") or all, up to a slice of time; null: now. */
export function gamesOf(league, kind, slice, last) {
  const size = league.players.length;
  if (slice === null && kind === "league" && league.standing) return byPair(size, league.standing);
  if (slice === null && league.totals?.home.length) return byPair(size, league.totals);
  return byPair(size, owned(league, slice ?? last));
}

/** Return why two places have no games: never met, or not since one of them has got other weights. */
export function whyEmpty(league, kind, home, away) {
  const since = [home, away].map((place) => beginning(league, kind, league.players[place])).filter(Boolean);
  return since.length ? `not met since ${since.join(" and ")}` : "never met";
}

function beginning(league, kind, player) {
  if (!player.active || league.kind !== "league") return null;
  const events = [
    ...league.resets.filter(([name]) => name === player.name).map(([, steps]) => [steps, "reset"]),
    ...league.rollbacks.filter(([name]) => name === player.name).map(([, steps]) => [steps, "rolled back"]),
    ...(kind === "league" ? [] : league.players.filter((other) => other.parent === player.name && other.steps > 0).map((other) => [other.steps, "frozen"])),
  ];
  if (!events.length) return null;
  const [steps, what] = events.reduce((latest, event) => (event[0] > latest[0] ? event : latest));
  return `${player.name} was ${what} at ${compact(steps)} steps`;
}
