// The state of a run as a sign with a word: colour is never the only difference.

import { html } from "./vendor/preact-htm.js";

const SIGNS = {
  running: "▶", finished: "✓", stopped: "■", failed: "✗", lost: "?", unreadable: "!", "not started": "·",
};

export function State({ state, reason }) {
  if (!state) return null;
  return html`<span class=${`state ${state.replace(" ", "-")}`} title=${reason || state}>
    <i aria-hidden="true">${SIGNS[state] ?? "·"}</i> ${state}
  </span>`;
}

/** A sentence about something that went wrong. */
export const Problem = ({ text }) => text && html`<p class="problem" role="alert">${text}</p>`;
