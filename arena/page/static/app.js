// The shell of the page: the address, the header, and the page that is chosen.

import { html, render, useEffect, useState } from "./vendor/preact-htm.js";
import { ComparePage } from "./compare.js";
import { ConfigurationPage } from "./configuration.js";
import { CurvesPage } from "./curves.js";
import { EpisodesPage } from "./episodes.js";
import { LeaguePage } from "./league.js";
import { LogPage } from "./log.js";
import { MachinePage } from "./machine.js";
import { MatchesPage } from "./matches.js";
import { RunsPage } from "./runs.js";
import { State } from "./state.js";

/** The pages of a run, in the order of the tabs. */
const PAGES = {
  curves: ["Curves", CurvesPage], league: ["League", LeaguePage], matches: ["Matches", MatchesPage], episodes: ["Episodes", EpisodesPage],
  machine: ["Machine", MachinePage], log: ["Log", LogPage], configuration: ["Configuration", ConfigurationPage],
};

/** Return the address after the # as a page and its parameters, and a function that changes it. */
function useAddress() {
  const read = () => {
    const [page, query] = location.hash.replace(/^#\/?/, "").split("?");
    return { page, parameters: new URLSearchParams(query) };
  };
  const [address, setAddress] = useState(read);
  useEffect(() => {
    const changed = () => setAddress(read());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  const change = (changes) => {
    const { page, parameters } = read();
    for (const [name, value] of Object.entries(changes)) {
      if (value === null || value === "") parameters.delete(name);
      else parameters.set(name, value);
    }
    history.replaceState(null, "", `#/${page}?${parameters}`);
    setAddress(read());
  };
  return [address, change];
}

function App() {
  const [{ page, parameters }, change] = useAddress();
  const [state, setState] = useState(null);
  const run = parameters.get("run");
  const [, Chosen] = PAGES[page] ?? [];
  const isRun = Chosen && run;
  useEffect(() => {
    document.title = isRun ? `${run} · arena` : "arena";
  }, [run, isRun]);
  return html`
    <a class="skip" href="#content" onClick=${(event) => { event.preventDefault(); document.getElementById("content").focus(); }}>Skip to the content</a>
    <header>
      <a class="brand" href="#/">arena</a>
      ${isRun && html`<span class="run">${run}</span><${State} ...${state} />`}
      ${isRun &&
      html`<nav aria-label="Pages of this run">
        ${Object.entries(PAGES).map(([key, [title]]) => html`<a href=${`#/${key}?run=${encodeURIComponent(run)}`} aria-current=${key === page ? "page" : null}>${title}</a>`)}
      </nav>`}
    </header>
    <main id="content" tabindex="-1">
      ${isRun
        ? html`<${Chosen} key=${run} run=${run} parameters=${parameters} change=${change} onState=${setState} />`
        : page === "compare"
        ? html`<${ComparePage} key="compare" parameters=${parameters} change=${change} />`
        : html`<${RunsPage} parameters=${parameters} change=${change} />`}
    </main>
  `;
}

const root = document.getElementById("app");
root.replaceChildren(); // the note that the page is loading
render(html`<${App} />`, root);
