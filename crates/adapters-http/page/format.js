// Numbers and times as text. Unknown values (`null`) are a dash.

import { h } from "./dom.js";

const NONE = "–";
const GROUPS = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 });

const isNumber = (n) => typeof n === "number" && Number.isFinite(n);

/** Returns a number with groups of digits: `1,234,567`. */
export function number(n) {
  return isNumber(n) ? GROUPS.format(n) : NONE;
}

/** Returns a number with two or three digits: `1.2 M`, `61 k`, `842`. */
export function short(n) {
  if (!isNumber(n)) return NONE;
  const size = Math.abs(n);
  for (const [unit, name] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (size >= unit * 0.9995) {
      const value = n / unit;
      return `${Math.abs(value) < 9.95 ? value.toFixed(1) : Math.round(value)} ${name}`;
    }
  }
  return Number.isInteger(n) || size >= 99.5 ? String(Math.round(n)) : String(Number(n.toFixed(1)));
}

/** Returns a share from 0 to 1 in percent: `63 %`, `0.4 %`. */
export function percent(share) {
  if (!isNumber(share)) return NONE;
  const value = share * 100;
  if (value === 0 || value === 100) return `${value} %`;
  if (Math.abs(value) < 0.1) return "below 0.1 %";
  // A share below one is never shown as the whole.
  if (value < 10 || (value > 99 && value < 100)) return `${Math.min(value, 99.9).toFixed(1)} %`;
  return `${Math.round(value)} %`;
}

/** Returns a duration in microseconds with its unit: `850 µs`, `12 ms`, `1.2 s`, `3 min 20 s`. */
export function duration(us) {
  if (!isNumber(us)) return NONE;
  if (us < 1_000) return `${Math.round(us)} µs`;
  if (us < 10_000) return `${(us / 1_000).toFixed(1)} ms`;
  if (us < 999_500) return `${Math.round(us / 1_000)} ms`;
  const seconds = us / 1e6;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 3_600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  const hours = Math.floor(whole / 3_600);
  if (hours < 48) return `${hours} h ${Math.floor((whole % 3_600) / 60)} min`;
  return `${Math.floor(hours / 24)} days`;
}

// How far the clock of riglm is ahead of the clock of this computer, in milliseconds.
let clockOffset = 0;

/** Takes the time of an answer as the present time of riglm. */
export function syncClock(at) {
  const difference = Date.parse(at) - Date.now();
  // Smaller differences are the way of the answer, or the whole seconds of a header.
  if (Number.isFinite(difference)) clockOffset = Math.abs(difference) > 2_000 ? difference : 0;
}

/** Returns the present time of riglm, in milliseconds since 1970. */
export function now() {
  return Date.now() + clockOffset;
}

const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DATE = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
const FULL = new Intl.DateTimeFormat("en-GB", { dateStyle: "full", timeStyle: "long" });

/** Returns a time in the time zone of the reader; the date is left out for today. */
export function time(at) {
  const date = new Date(at);
  if (!at || Number.isNaN(date.getTime())) return NONE;
  const isToday = date.toDateString() === new Date(now()).toDateString();
  return (isToday ? CLOCK : DATE).format(date);
}

function fullTime(at) {
  const date = new Date(at);
  return Number.isNaN(date.getTime()) ? String(at) : `${FULL.format(date)} (${at})`;
}

/** Creates a time with the full time as its title. */
export function timeNode(at) {
  return at ? h("time", { datetime: at, title: fullTime(at) }, time(at)) : NONE;
}

/** Creates a time with its day, also for today. */
export function dayTimeNode(at) {
  return at ? h("time", { datetime: at, title: fullTime(at) }, DATE.format(new Date(at))) : NONE;
}

/** Returns how long ago a time was, by the clock of riglm: `just now`, `5 min ago`, `in 2 h`. */
export function ago(at, present = now()) {
  const difference = (typeof present === "string" ? Date.parse(present) : present) - Date.parse(at);
  if (!at || Number.isNaN(difference)) return NONE;
  const seconds = Math.abs(difference) / 1_000;
  let size;
  if (seconds < 10) return "just now";
  if (seconds < 60) size = `${Math.floor(seconds / 10) * 10} s`;
  else if (seconds < 3_600) size = `${Math.floor(seconds / 60)} min`;
  else if (seconds < 48 * 3_600) size = `${Math.floor(seconds / 3_600)} h`;
  else size = `${Math.floor(seconds / 86_400)} days`;
  return difference >= 0 ? `${size} ago` : `in ${size}`;
}

/** Creates a text such as `5 min ago` that stays right while the page is open. */
export function agoNode(at) {
  return at ? h("time", { datetime: at, title: fullTime(at), "data-ago": "" }, ago(at)) : NONE;
}

/** Brings the texts of all `agoNode`s up to date. */
export function refreshAges() {
  for (const node of document.querySelectorAll("time[data-ago]")) {
    const age = ago(node.dateTime);
    if (node.textContent !== age) node.textContent = age;
  }
}

/** Returns a number with its noun: `1 call`, `3 calls`, `2 searches`, `4 queries`. */
export function plural(n, noun) {
  if (n === 1) return `1 ${noun}`;
  let many = `${noun}s`;
  if (/(s|x|ch|sh)$/.test(noun)) many = `${noun}es`;
  else if (/[^aeiou]y$/.test(noun)) many = `${noun.slice(0, -1)}ies`;
  return `${number(n)} ${many}`;
}
