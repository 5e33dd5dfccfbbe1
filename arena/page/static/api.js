// Requests to the server, and values that follow it while the page is visible.

import { useEffect, useState } from "./vendor/preact-htm.js";
import { answerOf, savedData } from "./saved.js";

const saved = savedData();

const TYPES = { f4: Float32Array, f8: Float64Array, u1: Uint8Array, u2: Uint16Array };

/** Replace encoded arrays by typed ones, in place. */
function decode(value) {
  if (Array.isArray(value)) return value.map(decode);
  if (value === null || typeof value !== "object") return value;
  if (value.type in TYPES && typeof value.data === "string" && Object.keys(value).length === 2) {
    return new TYPES[value.type](Uint8Array.from(atob(value.data), (c) => c.charCodeAt(0)).buffer);
  }
  for (const key of Object.keys(value)) value[key] = decode(value[key]);
  return value;
}

/** Return the answer to a request; throw an Error with the server's sentence if it is refused. */
export async function get(path, parameters = {}) {
  const data = await saved;
  if (data) return decode(answerOf(data, path, parameters));
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const item of Array.isArray(value) ? value : [value]) if (item !== undefined) query.append(name, item);
  }
  let response;
  try {
    response = await fetch(`api/${path}?${query}`); // relative: the page may lie under the path of a proxy
  } catch {
    throw new Error("the server of this page does not answer; is arena page still running?");
  }
  const text = await response.text();
  if (response.status === 401) throw new Error(text);
  let body;
  try {
    body = JSON.parse(text);
  } catch {
    throw new Error(text || `the server has answered with status ${response.status}`);
  }
  if (!response.ok) throw new Error(body.error ?? `the server has answered with status ${response.status}`);
  return decode(body);
}

/**
 * Call `load` now and every `seconds` while the page is visible; return [value, error].
 * `keys` are the values on which `load` depends: when one changes, it begins anew.
 */
export function usePolled(load, seconds, keys) {
  const [state, setState] = useState({ value: null, error: null, keys });
  useEffect(() => {
    let timer = null;
    let ended = false;
    let busy = false;
    async function poll() {
      if (busy || ended) return;
      busy = true;
      clearTimeout(timer);
      let wait = seconds;
      try {
        const value = await load();
        if (value?.progress < 1) wait = 0.3; // the server is still reading the records
        if (!ended) setState({ value, error: null, keys });
      } catch (error) {
        if (!ended) setState((old) => ({ ...old, error: error.message, keys }));
      }
      busy = false;
      if (!ended && !document.hidden && !(await saved)) timer = setTimeout(poll, 1000 * wait);
    }
    const onVisible = () => document.hidden || poll();
    document.addEventListener("visibilitychange", onVisible);
    poll();
    return () => {
      ended = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", onVisible);
    };
  }, keys);
  const same = state.keys.every((key, at) => key === keys[at]);
  return same ? [state.value, state.error] : [null, null];
}
