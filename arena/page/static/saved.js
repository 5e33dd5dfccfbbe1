// The answers inside a saved page, in the place of a server.

/** Return the data of this file, decompressed; null if a server answers. */
export async function savedData() {
  const element = document.getElementById("saved");
  if (!element) return null;
  const bytes = Uint8Array.from(atob(element.textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

/** Return the answer to a request, a copy; throw an Error with a sentence if the file has none. */
export function answerOf(data, path, parameters) {
  if (path === "runs" || path === "names") return structuredClone(data[path]);
  const own = data.of[parameters.run];
  if (!own) throw new Error(`there is no run ${parameters.run} in this file`);
  if (parameters.before !== undefined) throw new Error("earlier ones are not in this file");
  const answer = find(own, path, parameters);
  if (answer === undefined) throw new Error(own.error ?? "this is not in the file; arena page shows it from the run itself");
  return structuredClone(answer);
}

function find(own, path, parameters) {
  if (path === "log") {
    const first = Object.keys(own).find((key) => key.startsWith("log "));
    const found = parameters.file ? own[`log ${parameters.file}`] : own[first];
    if (!first) return { files: [], name: "", text: "", start: 0, end: 0 };
    return found && parameters.start !== undefined ? { ...found, text: "", start: found.end } : found;
  }
  if (path === "curves" && own.curves) {
    const players = parameters.player ?? [];
    return { ...own.curves, whole: !parameters.since, series: parameters.since ? [] : own.curves.series.filter((part) => players.includes(part.player)) };
  }
  if (path === "episodes" && own.curves) {
    const { state, reason, players } = own.curves;
    const names = players.map((player) => player.name).filter((name) => `episodes ${name} newest` in own);
    if (!parameters.player) return { state, reason, players: names, newest: 0, episodes: [], distribution: null };
    const found = own[`episodes ${parameters.player} ${parameters.order ?? "newest"}`];
    return found && { ...found, players: names, films: [] };
  }
  return own[path];
}
