// Numbers, durations and times as text.

/** Return a count in at most five characters: 999, 12.3k, 4.56M. */
export function compact(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const units = ["", "k", "M", "G", "T"];
  let unit = 0;
  while (Math.abs(value) >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  if (unit === 0) return Number.isInteger(value) ? String(value) : String(+value.toPrecision(3));
  return `${value.toFixed(Math.abs(value) < 9.995 ? 2 : Math.abs(value) < 99.95 ? 1 : 0)}${units[unit]}`;
}

/** Return a result with four digits. */
export function number(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2);
  return String(+value.toPrecision(4));
}

/** Return seconds as m:ss, h:mm:ss or "3 d 4 h". */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  const whole = Math.round(seconds);
  if (whole >= 2 * 86400) return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
  const two = (n) => String(n).padStart(2, "0");
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
  return hours ? `${hours}:${two(minutes)}:${two(whole % 60)}` : `${minutes}:${two(whole % 60)}`;
}

/** Return a Unix time in this browser's time zone. */
export function when(seconds) {
  if (!seconds) return "–";
  return new Date(seconds * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
}

/** Return how long ago a Unix time was. */
export function ago(seconds) {
  const passed = Date.now() / 1000 - seconds;
  if (passed < 90) return "just now";
  if (passed < 5400) return `${Math.round(passed / 60)} minutes ago`;
  if (passed < 129600) return `${Math.round(passed / 3600)} hours ago`;
  return `${Math.round(passed / 86400)} days ago`;
}

/** Return a share as a whole percentage. */
export const percent = (share) => `${Math.round(100 * share)}%`;
