// The logs of a run: that of the run and one of each rank, from their ends; with levels, search, and following.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor/preact-htm.js";
import { get, usePolled } from "./api.js";
import { Problem } from "./state.js";

const LEVELS = ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"];
const LINE = new RegExp(`^\\S+ \\S+ (${LEVELS.join("|")})\\b`);
const MOST = 20_000; // lines that are drawn

/** Keeps the text of one log, and requests what has been written since. */
class LogReader {
  constructor(run, file) {
    Object.assign(this, { run, file, text: "", start: 0, end: null, files: [], name: "" });
  }

  async update() {
    const answer = await get("log", { run: this.run, file: this.file, ...(this.end === null ? {} : { start: this.end }) });
    if (this.end !== null && answer.start !== this.end) this.text = ""; // another attempt has written it anew
    if (this.end === null || answer.start !== this.end) this.start = answer.start;
    this.text += answer.text;
    Object.assign(this, { end: answer.end, files: answer.files, name: answer.name });
    return { files: this.files, name: this.name, text: this.text, start: this.start, end: this.end };
  }

  async earlier() {
    const answer = await get("log", { run: this.run, file: this.name, before: this.start });
    this.text = answer.text + this.text;
    this.start = answer.start;
  }
}

export function LogPage({ run, parameters, change }) {
  const file = parameters.get("file") ?? "";
  const reader = useMemo(() => new LogReader(run, file), [run, file]);
  const [answer, error] = usePolled(() => reader.update(), 2, [reader]);
  const [earlier, setEarlier] = useState(0);
  const [problem, setProblem] = useState(null);
  const [follow, setFollow] = useState(true);
  const search = (parameters.get("search") ?? "").toLowerCase();
  const level = Math.max(LEVELS.indexOf(parameters.get("level") ?? "DEBUG"), 0);
  const lines = useMemo(() => filtered(reader.text, level, search), [reader, answer, earlier, level, search]);
  const box = useRef(null);
  useLayoutEffect(() => {
    if (follow && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [lines, follow]);
  return html`
    <div class="bar"><h1>Log</h1>
      <label>file <select value=${answer?.name ?? ""} onChange=${(event) => change({ file: event.target.value })}>
        ${(answer?.files ?? []).map(([name, size]) => html`<option value=${name}>${name} (${size.toLocaleString()} bytes)</option>`)}</select></label>
      <label>level from <select value=${LEVELS[level]} onChange=${(event) => change({ level: event.target.value === "DEBUG" ? null : event.target.value })}>
        ${LEVELS.map((name) => html`<option value=${name}>${name}</option>`)}</select></label>
      <label>search <input type="search" value=${search} onInput=${(event) => change({ search: event.target.value })} /></label>
      <label><input type="checkbox" checked=${follow} onChange=${(event) => setFollow(event.target.checked)} /> follow</label></div>
    <${Problem} text=${error ?? problem} />
    ${answer && !answer.files.length && html`<p class="note">This run has no logs yet.</p>`}
    ${answer && answer.files.length > 0 &&
    html`${reader.start > 0 && html`<p><button onClick=${() => reader.earlier().then(() => (setFollow(false), setEarlier(earlier + 1)), (failure) => setProblem(failure.message))}>earlier lines</button>
        <span class="faint">${reader.start.toLocaleString()} bytes before these</span></p>`}
      <pre class="log" ref=${box} tabindex="0" role="log" aria-label=${answer.name} onWheel=${(event) => event.deltaY < 0 && setFollow(false)}>${lines.map(
        ([text, its]) => html`<span class=${`line ${its.toLowerCase()}`}>${text}</span>`,
      )}${!lines.length && html`<span class="faint">${reader.text ? "no such line" : "empty so far"}</span>`}</pre>`}
  `;
}

/** Return [line, level] of the lines from a level on that contain a text; lines of a traceback have that of their first. */
function filtered(text, level, search) {
  let current = "INFO";
  const found = [];
  for (const line of text.split("\n")) {
    current = LINE.exec(line)?.[1] ?? current;
    if (line && LEVELS.indexOf(current) >= level && line.toLowerCase().includes(search)) found.push([line, current]);
  }
  return found.slice(-MOST);
}
