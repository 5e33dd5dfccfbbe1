// The games of each pair of players, as the league counts them or all of them, and why a pair has none.

import { interval } from "./heat_map.js";
import { compact } from "./format.js";

/** Return the games of a history, up to a slice, each with the weights that played it: places of players. */
export function owned(league, slice) {
  const { players, history } = league;
  if (!history) return [];
  const timeOf = (at) => history.start + (at + 0.5) * history.width;
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
  const games = [];
  for (let at = 0; at < history.home.length; at++) {
    if (history.slice[at] > slice) continue;
    const time = timeOf(history.slice[at]);
    const [home, away] = [ownerOf(history.home[at], time), ownerOf(history.away[at], time)];
    if (home !== null && away !== null && home !== away) games.push({ home, away, slice: history.slice[at], won: history.won[at], games: history.games[at] });
  }
  return games;
}

/**
 * Return a function of two places: {rate, games, low, high}, the ends of the 95 % interval included; null without games.
 *
 * source: home, away, won and games of each pair, and low and high if they are known; entries of a pair are added up.
 */
function byPair(size, source) {
  const found = new Map();
  for (const entry of source) {
    const key = entry.home * size + entry.away;
    const before = found.get(key);
    found.set(key, before ? { won: before.won + entry.won, games: before.games + entry.games } : entry);
  }
  const cell = (entry, reversed) => {
    const rate = (reversed ? entry.games - entry.won : entry.won) / entry.games;
    const [low, high] = entry.low === undefined ? interval(rate, entry.games) : reversed ? [1 - entry.high, 1 - entry.low] : [entry.low, entry.high];
    return { rate, games: entry.games, low, high };
  };
  return (home, away) => {
    const [one, other] = [found.get(home * size + away), found.get(away * size + home)];
    if (one && other) return cell({ won: one.won + other.games - other.won, games: one.games + other.games }, false);
    return one ? cell(one, false) : other ? cell(other, true) : null;
  };
}

function rows(pairs) {
  return Array.from(pairs.home, (home, at) => ({ home, away: pairs.away[at], won: pairs.won[at], games: pairs.games[at], low: pairs.low[at], high: pairs.high[at] }));
}

/** Return the games of two places: as the league counts (kind "league") or all, up to a slice of time; null: now. */
export function gamesOf(league, kind, slice, last) {
  const size = league.players.length;
  if (slice === null && kind === "league" && league.standing) return byPair(size, rows(league.standing));
  if (slice === null && league.totals?.home.length) return byPair(size, rows(league.totals));
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
