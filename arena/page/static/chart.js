// A chart of lines with bands, drawn by uPlot: values under the pointer or the arrow keys, pins, downloads.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor/preact-htm.js";
import { compact, duration, number } from "./format.js";
import { toSvg } from "./picture.js";

/** What the x axes are called, and how their values are written. */
export const AXES = {
  steps: { label: "transition steps of the player", text: compact },
  time: { label: "training time", text: duration },
  updates: { label: "updates", text: compact },
  episodes: { label: "episodes", text: compact },
};

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Return whether the browser prefers dark pages, and draw again when that changes. */
function useDark() {
  const query = useMemo(() => matchMedia("(prefers-color-scheme: dark)"), []);
  const [dark, setDark] = useState(query.matches);
  useEffect(() => {
    const changed = () => setDark(query.matches);
    query.addEventListener("change", changed);
    return () => query.removeEventListener("change", changed);
  }, []);
  return dark;
}

/** Return values as their exponential moving average of a weight from 0 to 1, without the bias of its start. */
export function smoothed(values, weight) {
  if (!weight) return values;
  let [sum, mass] = [0, 0];
  return values.map((value) => {
    if (!Number.isFinite(value)) return value;
    sum = weight * sum + (1 - weight) * value;
    mass = weight * mass + (1 - weight);
    return sum / mass;
  });
}

/** Return lines as uPlot takes them: one x, and for each line its mean, low and high, undefined where it has none. */
function aligned(lines) {
  const tables = lines.map((line) => [line.x, line.mean, line.low ?? line.mean, line.high ?? line.mean]);
  return tables.length ? window.uPlot.join(tables.map(increasing)) : [[]];
}

/** Return a table whose first column increases, with rows of equal x merged into the last of them. */
function increasing(table) {
  const order = table[0].map((x, at) => [x, at]).filter(([x]) => Number.isFinite(x));
  order.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const kept = order.filter(([x], at) => at === order.length - 1 || order[at + 1][0] !== x);
  return table.map((column) => kept.map(([, at]) => (Number.isFinite(column[at]) ? column[at] : null)));
}

/** Return the place nearest to `at` where a column has a value. */
function nearest(column, at) {
  for (let away = 0; away < column.length; away++) {
    if (column[at - away] != null) return at - away;
    if (column[at + away] != null) return at + away;
  }
  return null;
}

/**
 * Draw lines.
 *
 * lines: [{label, color, dash, x, mean, low, high}], arrays of equal length
 * dots: [{label, color, x, y, low, high}], single measurements such as evaluations
 * marks: [{x, label, kind: "attempt" or "fault"}]
 * axis: a key of AXES; log: whether y is logarithmic; tall: whether it is the main chart of its page
 */
export function Chart({ title, note, lines, dots = [], marks = [], axis, log = false, tall = false, csv }) {
  const box = useRef(null);
  const plot = useRef(null);
  const zoomed = useRef(false);
  const dark = useDark();
  const [at, setAt] = useState(null);
  const [pins, setPins] = useState([]);
  const shape = JSON.stringify([lines.map((line) => [line.label, line.color, line.dash]), axis, log, tall, dark]);
  const data = useMemo(() => aligned(lines), [lines]);
  const drawn = useRef({});
  drawn.current = { data, dots, marks, pins };

  useLayoutEffect(() => {
    const colors = { ink: css("--faint"), grid: css("--grid"), mark: css("--mark"), fault: css("--bad") };
    const font = "12px system-ui, sans-serif";
    const series = [{}];
    const bands = [];
    lines.forEach((line, index) => {
      const first = 3 * index + 1;
      const shared = { spanGaps: true, points: { show: (u, s) => u.data[s].filter((v) => v != null).length < 3 } };
      series.push({ ...shared, stroke: line.color, width: tall ? 2 : 1.5, dash: line.dash });
      for (let edge = 0; edge < 2; edge++) series.push({ spanGaps: true, width: 0, points: { show: false } });
      bands.push({ series: [first + 2, first + 1], fill: `${line.color}26` });
    });
    const options = {
      width: Math.max(box.current.clientWidth, 120),
      height: tall ? 340 : 170,
      legend: { show: false },
      series,
      bands,
      cursor: {
        sync: { key: "arena" },
        points: { show: false },
        drag: { x: true, y: false },
        dataIdx: (u, s, index) => (s === 0 ? index : (nearest(u.data[s], index) ?? index)),
      },
      scales: {
        x: { time: false, range: (u, low, high) => (low === high ? [low - 1, high + 1] : [low, high]) },
        y: {
          distr: log ? 3 : 1,
          range: (u, low, high) => spread(low, high, log, drawn.current.dots),
        },
      },
      axes: [
        {
          stroke: colors.ink, font, grid: { show: false }, ticks: { show: false }, size: 30, space: 70,
          values: (u, splits) => splits.map((value) => AXES[axis].text(value)),
        },
        {
          stroke: colors.ink, font, grid: { stroke: colors.grid, width: 1 }, ticks: { show: false }, size: 58,
          values: (u, splits) => splits.map((value) => (value === null ? "" : number(value))),
        },
      ],
      hooks: {
        drawClear: [(u) => drawMarks(u, drawn.current, colors)],
        draw: [(u) => drawDots(u, drawn.current.dots)],
        setCursor: [(u) => setAt(u.cursor.idx ?? null)],
        setSelect: [(u) => (zoomed.current = u.select.width > 0)],
        ready: [(u) => u.over.addEventListener("dblclick", () => (zoomed.current = false))],
      },
    };
    zoomed.current = false;
    plot.current = new window.uPlot(options, data, box.current);
    const observer = new ResizeObserver(() =>
      plot.current.setSize({ width: Math.max(box.current.clientWidth, 120), height: options.height }),
    );
    observer.observe(box.current);
    return () => {
      observer.disconnect();
      plot.current.destroy();
      plot.current = null;
    };
  }, [shape]);

  useEffect(() => plot.current?.setData(data, !zoomed.current), [data]);
  useEffect(() => plot.current?.redraw(), [dots, marks, pins]);

  const valuesAt = (index) =>
    lines.flatMap((line, s) => {
      const column = data[3 * s + 1];
      const place = index === null || !column ? null : nearest(column, index);
      if (place === null) return [];
      return [{ label: line.label, color: line.color, x: data[0][place], mean: column[place],
                low: line.low ? data[3 * s + 2][place] : null, high: line.high ? data[3 * s + 3][place] : null }];
    });

  function onKey(event) {
    const u = plot.current;
    if (!u || !data[0].length) return;
    const moves = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20, Home: -1e9, End: 1e9 };
    if (event.key in moves) {
      const from = at ?? (event.key === "ArrowRight" ? -1 : data[0].length);
      const to = Math.min(Math.max(from + moves[event.key], 0), data[0].length - 1);
      u.setCursor({ left: u.valToPos(data[0][to], "x"), top: u.over.clientHeight / 2 });
    } else if (event.key === "Enter" || event.key === " ") {
      pin();
    } else if (event.key === "Escape") {
      zoomed.current = false;
      u.setData(data);
    } else {
      return;
    }
    event.preventDefault();
  }

  function pin() {
    const values = valuesAt(at);
    if (values.length) setPins([...pins, { x: data[0][at], values }].slice(-6));
  }

  const shown = at === null ? null : valuesAt(at);
  const empty = !lines.some((line) => line.x.length) && !dots.some((dot) => dot.x.length);
  return html`<figure class=${tall ? "chart tall" : "chart"}>
    <figcaption>
      <span class="title">${title}</span>
      <span class="downloads">
        ${csv && html`<button title="Download the values as CSV" aria-label=${`CSV of ${title}`} onClick=${() => save(`${title}.csv`, "text/csv", csv())}>CSV</button>`}
        <button title="Download the picture as SVG" aria-label=${`SVG of ${title}`} onClick=${() => save(`${title}.svg`, "image/svg+xml", toSvg({ title, lines, dots, axis: AXES[axis], log }))}>SVG</button>
        <button title="Download the picture as PNG" aria-label=${`PNG of ${title}`} onClick=${() => savePng(`${title}.png`, toSvg({ title, lines, dots, axis: AXES[axis], log }))}>PNG</button>
      </span>
    </figcaption>
    <div class="readout" role="status">
      ${shown?.length
        ? html`<span>${AXES[axis].text(data[0][at])} ${axis === "time" ? "" : axis}</span>${shown.map((value) => html`<${Value} ...${value} />`)}`
        : html`<span class="faint">${empty ? "no values yet" : note ?? ""}</span>`}
    </div>
    <div class="plot" ref=${box} tabindex="0" role="application" aria-roledescription="chart"
      aria-label=${`${title}: ${lines.map((line) => line.label).join(", ")}. Arrow keys read values, Enter pins one.`}
      onKeyDown=${onKey} onClick=${() => zoomed.current || pin()}></div>
    ${pins.length > 0 &&
    html`<ul class="pins">
      ${pins.map(
        (entry, index) => html`<li>
          <span>${AXES[axis].text(entry.x)}</span>${entry.values.map((value) => html`<${Value} ...${value} />`)}
          <button aria-label="remove this pin" onClick=${() => setPins(pins.filter((_, i) => i !== index))}>×</button>
        </li>`,
      )}
    </ul>`}
  </figure>`;
}

function Value({ label, color, mean, low, high }) {
  return html`<span class="value"><i class="dot" style=${{ background: color }}></i>${label} <b>${number(mean)}</b>
    ${low != null && high != null && html`<span class="faint"> ${number(low)} … ${number(high)}</span>`}</span>`;
}

/** Return the range of y: all lines and dots, with a little space. */
function spread(low, high, log, dots) {
  for (const dot of dots) {
    for (const column of [dot.y, dot.low ?? dot.y, dot.high ?? dot.y]) {
      for (const value of column) {
        if (!Number.isFinite(value) || (log && value <= 0)) continue;
        low = low === null ? value : Math.min(low, value);
        high = high === null ? value : Math.max(high, value);
      }
    }
  }
  if (low === null || high === null) return [0, 1];
  if (log) return window.uPlot.rangeLog(low, high, 10, false);
  if (low === high) return [low - Math.max(Math.abs(low) * 0.1, 0.5), high + Math.max(Math.abs(high) * 0.1, 0.5)];
  const space = 0.06 * (high - low);
  return [low - space, high + space];
}

/** Draw the beginnings of attempts, faults and pins behind the lines. */
function drawMarks(u, { marks, pins }, colors) {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.lineWidth = devicePixelRatio;
  for (const mark of [...marks, ...pins.map((pin) => ({ x: pin.x, kind: "pin" }))]) {
    const x = u.valToPos(mark.x, "x", true);
    if (!(x >= bbox.left && x <= bbox.left + bbox.width)) continue;
    const bottom = bbox.top + bbox.height;
    ctx.strokeStyle = mark.kind === "fault" ? colors.fault : colors.mark;
    ctx.setLineDash(mark.kind === "attempt" ? [4, 4] : []);
    ctx.beginPath();
    ctx.moveTo(x, mark.kind === "fault" ? bottom - 9 * devicePixelRatio : bbox.top);
    ctx.lineTo(x, bottom);
    ctx.stroke();
  }
  ctx.restore();
}

/** Draw single measurements: a ring, and a line over its deviation. */
function drawDots(u, dots) {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  ctx.lineWidth = 1.5 * devicePixelRatio;
  for (const { color, x, y, low, high } of dots) {
    ctx.strokeStyle = color;
    ctx.fillStyle = css("--card");
    for (let at = 0; at < x.length; at++) {
      const left = u.valToPos(x[at], "x", true);
      ctx.beginPath();
      if (low) {
        ctx.moveTo(left, u.valToPos(low[at], "y", true));
        ctx.lineTo(left, u.valToPos(high[at], "y", true));
        ctx.stroke();
      }
      ctx.beginPath();
      ctx.arc(left, u.valToPos(y[at], "y", true), 4 * devicePixelRatio, 0, 2 * Math.PI);
      ctx.fill();
      ctx.stroke();
    }
  }
  ctx.restore();
}

/** Let the browser save a text. */
export function save(name, type, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(text instanceof Blob ? text : new Blob([text], { type }));
  link.download = name.replace(/[^\w.-]+/g, "_");
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function savePng(name, svg) {
  const image = new Image();
  image.onload = () => {
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [2 * image.width, 2 * image.height];
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => save(name, "image/png", blob));
  };
  image.src = `data:image/svg+xml;base64,${btoa(String.fromCharCode(...new TextEncoder().encode(svg)))}`;
}
