// Live events of riglm. The stream needs the token in a header, so it is read with `fetch`.

import { send } from "./api.js";
import { report } from "./dom.js";

// riglm sends a comment every 15 seconds; a stream without any text for this long is dead.
const SILENCE_MS = 40_000;
const MAX_WAIT_MS = 15_000;
// Rows are stored shortly after their event, and a reload for each event would cost riglm as much
// as the calls themselves.
const PAUSE_MS = 1_000;
// A page may keep riglm busy for at most this part of the time.
const WORK_SHARE = 1 / 20;
// Browsers open few connections to one host, so a hidden tab gives up its stream after this time.
const HIDDEN_MS = 30_000;
// A failed request may be the first sign that riglm restarts.
const DOUBT_MS = 1_000;

const subscribers = new Set();
const watchers = new Set();
let status = "stopped";
let reason = "";
let stopping = null;
// The number of connections since `start`.
let connections = 0;
// A hidden tab waits in `hiding` and then is asleep: without a stream, until it is visible.
let hiding = null;
let isAsleep = false;

/** Calls `fn(status, reason)` now and on each change: `live`, `reconnecting` or `stopped`. */
export function onStatus(fn) {
  watchers.add(fn);
  fn(status, reason);
  return () => watchers.delete(fn);
}

function setStatus(next, why = "") {
  if (next === status && why === reason) return;
  status = next;
  reason = why;
  for (const fn of watchers) fn(status, reason);
}

/**
 * Calls `fn(event)` for events of the given types (`"*"`: all), and with `{ type: "resync" }`
 * when events were missed. Returns the function that ends the subscription.
 */
export function subscribe(types, fn) {
  const one = { types: types === "*" ? null : new Set([types].flat()), fn };
  subscribers.add(one);
  return () => subscribers.delete(one);
}

function publish(event) {
  for (const { types, fn } of [...subscribers]) {
    if (types && event.type !== "resync" && !types.has(event.type)) continue;
    try {
      fn(event);
    } catch (error) {
      report(error);
    }
  }
}

/** Returns whether an event may change numbers of calls: other requests end as well. */
export function mayCount({ type, data }) {
  return type !== "request_ended" || Boolean(data?.tool);
}

/**
 * Runs `reload` after events of the given types: `pause` milliseconds after the first one, so that
 * its rows are stored; never twice at the same time; after a slow one correspondingly later; and
 * only while the page is visible. `isRelevant(event)` may leave out events. With `settle`, it runs
 * once more that many milliseconds after the reload that followed the last event: for answers that
 * riglm keeps for a while. Returns an object with `now()`, which reloads at once, or at once after
 * the reload that runs, and `stop()`.
 */
export function watch(types, reload, { pause: wait = PAUSE_MS, settle = null, isRelevant = () => true } = {}) {
  let isDue = false;
  let isUrgent = false;
  let hasNews = false;
  let isBusy = false;
  let hasStopped = false;
  let timer = null;
  let settling = null;
  let earliest = 0;

  async function work() {
    clearTimeout(timer);
    timer = null;
    if (hasStopped || isBusy || document.hidden) return;
    const isAfterNews = hasNews;
    isDue = false;
    isUrgent = false;
    hasNews = false;
    isBusy = true;
    const begin = performance.now();
    try {
      await reload();
    } catch (error) {
      complain(error);
    }
    const end = performance.now();
    earliest = end + Math.max(wait, (end - begin) / WORK_SHARE);
    isBusy = false;
    if (settle !== null && isAfterNews && !hasNews && !hasStopped) {
      clearTimeout(settling);
      settling = setTimeout(reloadSettled, Math.max(settle, earliest - end));
    }
    schedule();
  }
  function reloadSettled() {
    isDue = true;
    work();
  }
  function complain(error) {
    // 409: riglm records nothing. The screen says so, or keeps what it has.
    if (error?.status === 409) return;
    if (error?.status !== 0) {
      report(error);
      return;
    }
    // While riglm restarts, the state of the connection says so.
    const before = connections;
    setTimeout(() => {
      if (!hasStopped && status === "live" && connections === before) report(error);
    }, DOUBT_MS);
  }
  function schedule() {
    if (!isDue || timer || isBusy || hasStopped || document.hidden) return;
    timer = setTimeout(work, isUrgent ? 0 : Math.max(wait, earliest - performance.now()));
  }
  const unsubscribe = subscribe(types, (event) => {
    if (event.type !== "resync" && !isRelevant(event)) return;
    isDue = true;
    hasNews = true;
    clearTimeout(settling);
    schedule();
  });
  document.addEventListener("visibilitychange", schedule);
  return {
    async now() {
      isDue = true;
      isUrgent = true;
      await work();
    },
    stop() {
      hasStopped = true;
      clearTimeout(timer);
      clearTimeout(settling);
      unsubscribe();
      document.removeEventListener("visibilitychange", schedule);
    },
  };
}

/** Begins to read events, until `stop`. A tab that is hidden for a while reads none. */
export function start() {
  stop();
  connections = 0;
  connect();
  followVisibility();
}

/** Stops reading events. */
export function stop() {
  isAsleep = false;
  clearTimeout(hiding);
  disconnect("");
}

function connect() {
  setStatus("reconnecting");
  stopping = new AbortController();
  run(stopping.signal);
}

function disconnect(why) {
  stopping?.abort();
  stopping = null;
  setStatus("stopped", why);
}

function followVisibility() {
  clearTimeout(hiding);
  if (document.hidden) {
    hiding = setTimeout(fallAsleep, HIDDEN_MS);
  } else if (isAsleep) {
    isAsleep = false;
    connect();
  }
}

function fallAsleep() {
  // A stream that was refused stays so.
  if (status === "stopped") return;
  isAsleep = true;
  disconnect("Events pause while the tab is hidden.");
}

document.addEventListener("visibilitychange", followVisibility);

async function run(ended) {
  let failures = 0;
  while (!ended.aborted) {
    setStatus("reconnecting", reason);
    try {
      await follow(ended, () => {
        failures = 0;
        setStatus("live");
        connections += 1;
        // What happened between two connections is unknown.
        if (connections > 1) publish({ type: "resync" });
      });
      setStatus("reconnecting", "riglm closed the connection.");
    } catch (error) {
      if (ended.aborted) return;
      if (error.status === 401 || error.status === 403) {
        setStatus("stopped", error.detail);
        return;
      }
      setStatus("reconnecting", error.detail ?? "The connection to riglm was lost.");
    }
    const wait = Math.min(MAX_WAIT_MS, 500 * 2 ** failures) * (0.75 + Math.random() / 2);
    failures += 1;
    await pause(wait, ended);
  }
}

function pause(ms, ended) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    ended.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
  });
}

async function follow(ended, onOpen) {
  const silence = new AbortController();
  let timer = setTimeout(() => silence.abort(), SILENCE_MS);
  const abort = () => silence.abort();
  ended.addEventListener("abort", abort, { once: true });
  try {
    const response = await send("GET", "/events", { signal: silence.signal });
    onOpen();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(), SILENCE_MS);
      const blocks = (rest + value).split(/\r?\n\r?\n/);
      rest = blocks.pop();
      for (const block of blocks) receive(block);
    }
  } finally {
    clearTimeout(timer);
    ended.removeEventListener("abort", abort);
  }
}

function receive(block) {
  let name = "";
  let data = "";
  for (const line of block.split(/\r?\n/)) {
    if (line.startsWith("event:")) name = line.slice(6).trim();
    else if (line.startsWith("data:")) data += line.slice(5).trimStart();
  }
  if (!data) return;
  if (name === "missed" || name === "skipped") {
    publish({ type: "resync" });
    return;
  }
  try {
    publish(JSON.parse(data));
  } catch {
    // An event that cannot be read is a missed one.
    publish({ type: "resync" });
  }
}
