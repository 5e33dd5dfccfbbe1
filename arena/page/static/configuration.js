// The configuration of a run, its differences from another run's, and how to repeat it.

import { html, useEffect, useMemo, useState } from "./vendor/preact-htm.js";
import { get } from "./api.js";
import { Problem } from "./state.js";

/** Load something once for each key; return [value, error]. */
function useLoaded(load, key) {
  const [state, setState] = useState({ key: null, value: null, error: null });
  useEffect(() => {
    let ended = false;
    const set = (changes) => ended || setState({ key, value: null, error: null, ...changes });
    load().then((value) => set({ value }), (failure) => set({ error: failure.message }));
    return () => (ended = true);
  }, [key]);
  return state.key === key ? [state.value, state.error] : [null, null];
}

export function ConfigurationPage({ run, parameters, change }) {
  const other = parameters.get("other") ?? "";
  const [own, error] = useLoaded(() => get("configuration", { run }), run);
  const [theirs, problem] = useLoaded(() => (other ? get("configuration", { run: other }) : Promise.resolve(null)), other);
  const [runs] = useLoaded(() => get("names"), run);
  const [changed, setChanged] = useState(true);
  const [filter, setFilter] = useState("");
  const rows = useMemo(() => (theirs && own ? differences(own.keys, theirs.keys) : null), [own, theirs]);
  const shown = (own?.keys ?? []).filter(([key, , isDefault]) => !(changed && isDefault) && key.toLowerCase().includes(filter.toLowerCase()));
  return html`
    <div class="bar"><h1>Configuration</h1>
      <label>compare with <select value=${other} onChange=${(event) => change({ other: event.target.value })}>
        <option value="">no other run</option>${(runs?.names ?? []).filter((name) => name !== run).map((name) => html`<option value=${name}>${name}</option>`)}</select></label></div>
    <${Problem} text=${error ?? problem} />
    ${own?.problem && html`<p class="problem" role="status">${own.problem}</p>`}
    ${theirs?.problem && html`<p class="problem" role="status">${other}: ${theirs.problem}</p>`}
    ${rows && html`<section class="card"><h2>What differs from ${other}</h2>
      ${rows.length ? html`<div class="wide-table" tabindex="0" role="region" aria-label="Differences"><table>
        <thead><tr><th scope="col">key</th><th scope="col">${run}</th><th scope="col">${other}</th></tr></thead>
        <tbody>${rows.map(([key, mine, its]) => html`<tr key=${key}><th scope="row">${key}</th><td class="yaml">${mine ?? html`<span class="faint">–</span>`}</td><td class="yaml">${its ?? html`<span class="faint">–</span>`}</td></tr>`)}</tbody>
      </table></div>` : html`<p>Nothing: both have the same values.</p>`}</section>`}
    ${own && html`<section class="card"><h2>Repeat it</h2>
      <pre class="report" tabindex="0">mpirun -n ${own.ranks ?? "N"} python -m arena.launch ${own.path} --set ${shellQuoted(`name=${run}-again`)}</pre></section>`}
    ${own?.keys.length > 0 && html`<section class="card">
      <div class="bar"><h2>Keys</h2><label><input type="checkbox" checked=${changed} onChange=${(event) => setChanged(event.target.checked)} /> without defaults</label>
        <label>Filter <input type="search" value=${filter} onInput=${(event) => setFilter(event.target.value)} /></label>
        <span class="faint">${shown.length} of ${own.keys.length}</span></div>
      <div class="wide-table" tabindex="0" role="region" aria-label="Keys"><table><thead><tr><th scope="col">key</th><th scope="col">value</th></tr></thead>
        <tbody>${shown.map(([key, value, isDefault]) => html`<tr key=${key} class=${isDefault ? "faint" : ""}><th scope="row">${key}</th><td class="yaml">${value}${isDefault && " (default)"}</td></tr>`)}</tbody></table></div></section>`}
    ${own && html`<details class="card"><summary>config.yaml</summary><pre class="report" tabindex="0">${own.text}</pre></details>`}
  `;
}

const shellQuoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replace(/'/g, `'\\''`)}'`);

/** Return [key, first value, second value] of the keys whose values differ. */
function differences(first, second) {
  const [a, b] = [first, second].map((keys) => new Map(keys));
  return [...new Set([...a.keys(), ...b.keys()])].filter((key) => key !== "name" && a.get(key) !== b.get(key)).map((key) => [key, a.get(key), b.get(key)]);
}
