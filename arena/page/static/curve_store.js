// The curves of a run as this browser holds them; answers of the server bring what has changed.

import { get } from "./api.js";

const COLUMNS = ["steps", "time", "updates", "count", "mean", "low", "high"];

export class CurveStore {
  /** Hold curves of some players of a run, from the first answer on. */
  constructor(run, players) {
    this.run = run;
    this.players = players;
    this.since = "";
    this.series = new Map(); // "player\nname" -> {player, name, width, buckets: Map(index -> row)}
    this.version = 0;
    this.all = []; // all players of the run
  }

  /** Request what has changed; return the answer with all players of the run. */
  async update() {
    const answer = await get("curves", { run: this.run, player: this.players, since: this.since });
    if (answer.whole) this.series.clear();
    for (const part of answer.series) this.#merge(part);
    if (answer.whole || answer.series.length) this.version += 1;
    this.since = answer.since;
    this.all = answer.players ?? this.all;
    return { ...answer, players: this.all };
  }

  #merge(part) {
    const key = `${part.player}\n${part.name}`;
    let series = this.series.get(key);
    if (!series || series.width !== part.width) {
      series = { player: part.player, name: part.name, width: part.width, buckets: new Map(), columns: null };
      this.series.set(key, series);
    }
    for (let at = 0; at < part.index.length; at++) {
      series.buckets.set(part.index[at], COLUMNS.map((column) => (part[column] ? part[column][at] : NaN)));
    }
    series.columns = null;
  }

  /** Return a curve as columns in the order of its steps, with `episodes` counted up; null if there is none. */
  columns(player, name) {
    const series = this.series.get(`${player}\n${name}`);
    if (!series) return null;
    if (!series.columns) {
      const rows = [...series.buckets.entries()].sort((a, b) => a[0] - b[0]).map((entry) => entry[1]);
      const columns = Object.fromEntries(COLUMNS.map((column, at) => [column, rows.map((row) => row[at])]));
      let total = 0;
      columns.episodes = columns.count.map((count) => (total += count));
      series.columns = columns;
    }
    return series.columns;
  }

  /** Return the names of all curves. */
  names() {
    return [...new Set([...this.series.values()].map((series) => series.name))];
  }
}
