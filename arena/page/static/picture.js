// A chart as an SVG file, for papers and slides.

const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [900, 480, 76, 24, 48, 84];

const escaped = (text) => String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

/** Return about five round numbers from low to high. */
function ticks(low, high) {
  const rough = (high - low) / 5 || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + 1e-9 * step; value += step) found.push(value);
  return found;
}

/** Return the powers of ten from low to high, or both ends if there are none. */
function powers(low, high) {
  const found = [];
  for (let power = Math.ceil(Math.log10(low)); power <= Math.log10(high); power++) found.push(10 ** power);
  return found.length ? found : [low, high];
}

/** Return the text of an SVG file; the arguments are those of Chart. */
export function toSvg({ title, lines, dots, axis, log }) {
  const usable = (value) => Number.isFinite(value) && (!log || value > 0);
  const xs = [...lines, ...dots].flatMap((line) => [...line.x]).filter(Number.isFinite);
  const ys = [
    ...lines.flatMap((line) => [...line.mean, ...(line.low ?? []), ...(line.high ?? [])]),
    ...dots.flatMap((dot) => [...dot.y]),
  ].filter(usable);
  const range = (values) => values.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
  const [x0, x1] = xs.length ? range(xs) : [0, 1];
  const [y0, y1] = ys.length ? range(ys) : [log ? 1 : 0, log ? 10 : 1];
  const scale = log ? Math.log10 : (value) => value;
  const px = (x) => (LEFT + ((x - x0) / (x1 - x0 || 1)) * (WIDTH - LEFT - RIGHT)).toFixed(1);
  const py = (y) =>
    (HEIGHT - BOTTOM - ((scale(y) - scale(y0)) / (scale(y1) - scale(y0) || 1)) * (HEIGHT - TOP - BOTTOM)).toFixed(1);
  const parts = [];
  for (const y of log ? powers(y0, y1) : ticks(y0, y1)) {
    parts.push(`<path d="M${LEFT} ${py(y)}H${WIDTH - RIGHT}" stroke="#e5e7eb"/>`);
    parts.push(`<text x="${LEFT - 8}" y="${+py(y) + 4}" text-anchor="end" fill="#6b7280">${+y.toPrecision(4)}</text>`);
  }
  for (const x of ticks(x0, x1)) {
    const text = escaped(axis.text(x));
    parts.push(`<text x="${px(x)}" y="${HEIGHT - BOTTOM + 20}" text-anchor="middle" fill="#6b7280">${text}</text>`);
  }
  for (const line of lines) {
    const points = (ys_) => line.x.map((x, at) => [x, ys_[at]]).filter(([x, y]) => Number.isFinite(x) && usable(y));
    const path = (list) => list.map(([x, y]) => `${px(x)} ${py(y)}`).join("L");
    if (line.low && line.high) {
      const band = [...points(line.high), ...points(line.low).reverse()];
      if (band.length) parts.push(`<path d="M${path(band)}Z" fill="${escaped(line.color)}" fill-opacity="0.15"/>`);
    }
    const list = points(line.mean);
    const dash = line.dash ? ` stroke-dasharray="${line.dash.join(" ")}"` : "";
    if (list.length) {
      parts.push(`<path d="M${path(list)}" fill="none" stroke="${escaped(line.color)}" stroke-width="2"${dash}/>`);
    }
  }
  for (const dot of dots) {
    dot.x.forEach((x, at) => {
      const place = `cx="${px(x)}" cy="${py(dot.y[at])}"`;
      if (usable(dot.y[at])) parts.push(`<circle ${place} r="4" fill="white" stroke="${escaped(dot.color)}"/>`);
    });
  }
  let place = LEFT;
  for (const line of lines) {
    parts.push(`<path d="M${place} ${HEIGHT - 22}h18" stroke="${escaped(line.color)}" stroke-width="3"/>`);
    parts.push(`<text x="${place + 24}" y="${HEIGHT - 18}" fill="#1f2937">${escaped(line.label)}</text>`);
    place += 44 + 8 * line.label.length;
  }
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${HEIGHT}" viewBox="0 0 ${WIDTH} ${HEIGHT}" font-family="system-ui, sans-serif" font-size="13">
<rect width="${WIDTH}" height="${HEIGHT}" fill="white"/>
<text x="${LEFT}" y="30" font-size="17" font-weight="bold" fill="#1f2937">${escaped(title)}</text>
<text x="${(LEFT + WIDTH - RIGHT) / 2}" y="${HEIGHT - BOTTOM + 42}" text-anchor="middle" fill="#6b7280">${escaped(axis.label)}</text>
${parts.join("\n")}
</svg>
`;
}
