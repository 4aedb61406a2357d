// The start of the page, and its addresses.
//
// A screen is a module with `title` and `async show(root, params)`. It fills `root` and returns
// `{ stop() }`. `params.parts` are the decoded parts of the address after the name of the screen,
// `params.query` are the view options (`URLSearchParams`), and `params.set({ key: value })` puts
// view options into the address without showing the screen again (`null` removes one).

import { ApiError, loadScopes } from "./api.js";
import { clear, h, notice, openDialog } from "./dom.js";
import { refreshAges } from "./format.js";
import * as live from "./live.js";
import * as token from "./token.js";

const SCREENS = ["now", "sessions", "tools", "paths", "learning", "changes", "setup"];
// Screens of one object, below the screen of all.
const DETAILS = { sessions: "session", tools: "tool" };
// The second key of a shortcut, after `g`.
const KEYS = { n: "now", s: "sessions", t: "tools", p: "paths", l: "learning", c: "changes", u: "setup" };
const SHORTCUTS_OFF = "riglm.shortcuts-off";

const main = document.getElementById("main");
const nav = document.getElementById("nav");
const controls = document.getElementById("session-controls");
let shown = null;
let visit = 0;
// What to do when riglm answers again, if the view could not be loaded.
let retry = null;

function parse() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  return { screen: parts.shift() ?? "now", parts, query: new URLSearchParams(query) };
}

function setQuery(query, changes) {
  for (const [key, value] of Object.entries(changes)) {
    if (value === null || value === undefined || value === "") query.delete(key);
    else query.set(key, value);
  }
  const path = location.hash.split("?")[0] || "#/now";
  const options = query.toString();
  history.replaceState(null, "", options ? `${path}?${options}` : path);
}

function leave() {
  visit += 1;
  retry = null;
  document.querySelector("dialog[open]")?.close();
  shown?.stop?.();
  shown = null;
}

async function load(name) {
  try {
    return await import(`./${name}.js`);
  } catch (error) {
    console.error(error);
    const failure = new ApiError(0, "This view could not be loaded. Does riglm still run?");
    throw Object.assign(failure, { isModule: true });
  }
}

/** Loads the other views, so that they open at once, also after riglm was replaced or stopped. */
function loadRest() {
  for (const name of [...SCREENS, ...Object.values(DETAILS)]) import(`./${name}.js`).catch(() => {});
}

/** Shows the screen of the address. */
async function route() {
  const { screen, parts, query } = parse();
  leave();
  const mine = visit;
  for (const link of nav.children) {
    if (link.hash === `#/${screen}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const root = h("div", { class: `screen screen-${screen}` });
  main.setAttribute("aria-busy", "true");
  let title = [...nav.children].find((link) => link.hash === `#/${screen}`)?.textContent ?? "Not found";
  let screenShown = null;
  try {
    if (SCREENS.includes(screen)) {
      const name = parts.length ? DETAILS[screen] ?? screen : screen;
      const module = await load(name);
      title = module.title;
      screenShown = await module.show(root, { parts, query, set: (changes) => mine === visit && setQuery(query, changes) });
    } else {
      clear(root, h("h1", null, "There is no such view"),
        h("p", null, "Choose one of the views above."));
    }
  } catch (error) {
    if (error.status === 401) return;
    if (error.name !== "ApiError") console.error(error);
    // Browsers do not load a module again that failed once.
    const again = error.isModule ? () => location.reload() : route;
    if (error.status === 0 && mine === visit) retry = again;
    clear(root, h("h1", null, title),
      notice("error", error.detail ?? `This view failed: ${error.message}`,
        h("button", { class: "btn", type: "button", on: { click: again } }, "Try again")));
  }
  if (mine !== visit) {
    screenShown?.stop?.();
    return;
  }
  shown = screenShown;
  const isFirst = main.querySelector(".screen") === null;
  if (isFirst) setTimeout(loadRest, 1_500);
  clear(main, root);
  main.removeAttribute("aria-busy");
  const heading = root.querySelector("h1");
  document.title = `${heading?.textContent.slice(0, 80) || title} – riglm`;
  if (isFirst) return;
  scrollTo(0, 0);
  if (heading) {
    // Readers of the screen begin with the new view.
    heading.tabIndex = -1;
    heading.focus({ preventScroll: true });
  }
}

/** Asks for the token. */
async function signIn(reason) {
  leave();
  live.stop();
  nav.hidden = true;
  controls.hidden = true;
  document.title = "riglm";
  main.removeAttribute("aria-busy");
  await token.ask(main, reason);
  await open();
}

async function open() {
  nav.hidden = false;
  controls.hidden = false;
  live.start();
  await route();
}

function areShortcutsOff() {
  try {
    return localStorage.getItem(SHORTCUTS_OFF) !== null;
  } catch {
    return false;
  }
}

function setShortcutsOff(isOff) {
  try {
    if (isOff) localStorage.setItem(SHORTCUTS_OFF, "1");
    else localStorage.removeItem(SHORTCUTS_OFF);
  } catch {
    // Without storage the shortcuts stay on.
  }
}

function showHelp() {
  const rows = Object.entries(KEYS).map(([key, screen]) => [
    h("dt", null, h("kbd", null, "g"), " ", h("kbd", null, key)),
    h("dd", null, [...nav.children].find((link) => link.hash === `#/${screen}`).textContent),
  ]);
  openDialog("Keyboard shortcuts",
    h("dl", { class: "facts" }, rows,
      h("dt", null, h("kbd", null, "/")), h("dd", null, "Go to the filter"),
      h("dt", null, h("kbd", null, "?")), h("dd", null, "Show this help")),
    h("label", { class: "row" },
      h("input", {
        type: "checkbox", checked: !areShortcutsOff(),
        on: { change: (event) => setShortcutsOff(!event.target.checked) },
      }),
      "Use these shortcuts"));
}

let isAfterG = false;

function onKey(event) {
  const isTyping = event.target.closest?.("input, textarea, select, dialog");
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || nav.hidden || areShortcutsOff()) return;
  const screen = isAfterG ? KEYS[event.key] : undefined;
  isAfterG = event.key === "g";
  if (screen) location.hash = `#/${screen}`;
  else if (event.key === "?") showHelp();
  else if (event.key === "/") main.querySelector("input[type=search]")?.focus();
  else return;
  event.preventDefault();
}

let wasLive = false;

function showLive(status, reason) {
  wasLive ||= status === "live";
  const words = { live: "Live", reconnecting: wasLive ? "Reconnecting" : "Connecting", stopped: "Not live" };
  const place = document.getElementById("live");
  clear(place, words[status]);
  place.dataset.status = status;
  if (status === "live") retry?.();
  place.title = reason || (status === "live" ? "Changes appear by themselves." : "");
}

async function begin() {
  const reason = await token.restore();
  if (reason !== null) {
    await signIn(reason);
    return;
  }
  try {
    await loadScopes();
  } catch (error) {
    if (error.status === 401) return;
    // The first view shows the error.
  }
  await open();
}

token.whenRejected(signIn);
live.onStatus(showLive);
setInterval(refreshAges, 5_000);
addEventListener("keydown", onKey);
document.getElementById("help").addEventListener("click", showHelp);
document.getElementById("sign-out").addEventListener("click", token.signOut);
document.querySelector(".skip").addEventListener("click", (event) => {
  // The fragment of the address names the view.
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", () => {
  if (token.hasCode()) begin();
  else if (token.current()) route();
});
begin();
