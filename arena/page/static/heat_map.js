// A heat map of who beats whom, on a canvas: a thousand players are a million cells.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor/preact-htm.js";
import { number, percent } from "./format.js";

const LETTER = 7.2; // pixels of a letter of a name
const SMALL = 4; // pixels of a cell below which the cells are drawn as one picture
const SMALLEST = 13; // pixels of a cell that has room for its name

/** Return the limits of the 95 % Wilson score interval of a share (Wilson, 1927). */
export function interval(share, count) {
  const z = 1.96;
  const middle = (share + (z * z) / (2 * count)) / (1 + (z * z) / count);
  const half = (z / (1 + (z * z) / count)) * Math.sqrt((share * (1 - share)) / count + (z * z) / (4 * count * count));
  return [Math.max(middle - half, 0), Math.min(middle + half, 1)];
}

/** Return red, green and blue of a win rate: blue wins, orange loses; both darker the farther from one half. */
function colorOf(rate, dark) {
  const strength = Math.min(Math.abs(rate - 0.5) * 2, 1);
  const [far, near] = rate >= 0.5 ? [[37, 99, 235], [219, 234, 254]] : [[194, 65, 12], [255, 237, 213]];
  const base = dark ? [38, 48, 60] : near;
  return base.map((value, at) => Math.round(value + (far[at] - value) * strength));
}

/** Return a picture with one pixel for each cell: rectangles of a fraction of a pixel would make patterns. */
function pictureOf(count, cell, dark) {
  const picture = document.createElement("canvas");
  picture.width = picture.height = count;
  const context = picture.getContext("2d");
  const pixels = context.createImageData(count, count);
  for (let row = 0; row < count; row++) {
    for (let column = 0; column < count; column++) {
      const found = row === column ? null : cell(row, column);
      if (found) pixels.data.set([...colorOf(found.rate, dark), 255], 4 * (row * count + column));
    }
  }
  context.putImageData(pixels, 0, 0);
  return picture;
}

/**
 * names: players in the order of rows and columns
 * cell(row, column): {rate, games, low, high} or null; why(row, column): the reason of null
 * chosen: [row, column] or null; choose(row, column): called for a click or Enter
 */
export function HeatMap({ names, cell, why, chosen, choose, version }) {
  const canvas = useRef(null);
  const [at, setAt] = useState(null);
  const [width, setWidth] = useState(0);
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    observer.observe(canvas.current.parentElement);
    return () => observer.disconnect();
  }, []);
  const count = names.length;
  const label = Math.min(Math.max(...names.map((name) => name.length), 0) * LETTER + 10, width * 0.3, 230);
  const size = Math.max(Math.min((width - label - 2) / Math.max(count, 1), 46), 1);
  const extent = Math.ceil(label + size * count) + 1;

  const isSmall = size < SMALL;
  const picture = useMemo(() => (isSmall && width ? pictureOf(count, cell, dark) : null), [names, version, dark, isSmall, !width]);
  useLayoutEffect(() => {
    if (!width) return;
    const scale = devicePixelRatio || 1;
    const element = canvas.current;
    element.width = extent * scale;
    element.height = extent * scale;
    const context = element.getContext("2d");
    context.scale(scale, scale);
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--ink");
    context.fillStyle = style.getPropertyValue("--grid");
    context.fillRect(label, label, size * count, size * count);
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    const gap = size > 6 ? 1 : 0;
    if (picture) context.drawImage(picture, label, label, size * count, size * count);
    for (let row = 0; row < count && !picture; row++) {
      for (let column = 0; column < count; column++) {
        const found = row === column ? null : cell(row, column);
        if (!found) continue;
        context.fillStyle = `rgb(${colorOf(found.rate, dark).join(",")})`;
        context.fillRect(label + column * size, label + row * size, size - gap, size - gap);
        if (size >= 32) {
          context.fillStyle = dark || Math.abs(found.rate - 0.5) > 0.3 ? "#fff" : "#111827";
          context.textAlign = "center";
          context.fillText(Math.round(100 * found.rate), label + (column + 0.5) * size, label + (row + 0.44) * size);
          const [left, room] = [label + column * size + 3, size - gap - 6];
          context.globalAlpha = 0.6;
          context.fillRect(left + room * found.low, label + (row + 0.8) * size, Math.max(room * (found.high - found.low), 1), 2);
          context.globalAlpha = 1;
        }
      }
    }
    context.fillStyle = ink;
    const every = Math.max(1, Math.ceil(SMALLEST / size));
    for (let place = 0; place < count; place += every) {
      const fitted = fit(context, names[place], label - 8);
      context.textAlign = "right";
      context.fillText(fitted, label - 5, label + (place + 0.5) * size);
      context.save();
      context.translate(label + (place + 0.5) * size, label - 5);
      context.rotate(-Math.PI / 2);
      context.textAlign = "left";
      context.fillText(fitted, 0, 0);
      context.restore();
    }
    for (const [place, color] of [[at, ink], [chosen, style.getPropertyValue("--link")]]) {
      if (!place || place[0] >= count || place[1] >= count) continue;
      context.strokeStyle = color;
      context.lineWidth = 2;
      context.strokeRect(label + place[1] * size, label + place[0] * size, Math.max(size - gap, 3), Math.max(size - gap, 3));
    }
  }, [width, names, version, at, chosen, dark]);

  const placeOf = (event) => {
    const box = canvas.current.getBoundingClientRect();
    const [row, column] = [event.clientY - box.top, event.clientX - box.left].map((v) => Math.floor((v - label) / size));
    return row >= 0 && column >= 0 && row < count && column < count ? [row, column] : null;
  };
  const onKey = (event) => {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (event.key in moves) {
      const from = at ?? [0, 0];
      setAt(at ? from.map((value, axis) => Math.min(Math.max(value + moves[event.key][axis], 0), count - 1)) : from);
    } else if ((event.key === "Enter" || event.key === " ") && at) {
      choose(...at);
    } else {
      return;
    }
    event.preventDefault();
  };
  return html`<div class="heat">
    <p class="readout" role="status">${at ? describe(names, cell, why, at) : "rows against columns: point at a cell, or move with the arrow keys"}</p>
    <canvas ref=${canvas} tabindex="0" role="application" aria-roledescription="heat map"
      aria-label=${`Win rates of ${count} players, the best first: ${names.slice(0, 5).join(", ")}. Arrow keys move, Enter shows the games of a pair.`}
      style=${{ width: `${extent}px`, height: `${extent}px` }}
      onMouseMove=${(event) => setAt(placeOf(event))} onMouseLeave=${() => setAt(null)}
      onClick=${(event) => placeOf(event) && choose(...placeOf(event))} onKeyDown=${onKey}></canvas>
  </div>`;
}

function fit(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  let end = text.length;
  while (end > 1 && context.measureText(`${text.slice(0, end)}…`).width > room) end -= 1;
  return `${text.slice(0, end)}…`;
}

/** Return a cell as a sentence. */
export function describe(names, cell, why, [row, column]) {
  if (row === column) return names[row];
  const found = cell(row, column);
  if (!found) return `${names[row]} and ${names[column]}: ${why(row, column)}`;
  const told = `${names[row]} wins ${percent(found.rate)} against ${names[column]} (${percent(found.low)} to ${percent(found.high)}; ${number(found.games)} games)`;
  const away = Math.abs(found.rate - 0.5);
  if (found.low >= 0.5 || found.high <= 0.5 || away < 0.01) return told;
  return `${told}; some ${Math.max(Math.ceil((0.98 / away) ** 2 - found.games), 1)} more games would tell who is better`;
}
