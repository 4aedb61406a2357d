// Creates and updates elements. Everything that is shown goes through `text`, so that names and
// texts of servers stay text: no markup, no terminal codes, no reversed or invisible characters.

import { get } from "./api.js";

const SVG = "http://www.w3.org/2000/svg";
const HANDLERS = Symbol("handlers");
const STATEFUL = Symbol("stateful");

// Control characters (except tab and line feed), bidirectional and invisible formatting, line
// separators, fillers, variation selectors, and the tag characters, with which text can be hidden
// from readers.
const HIDDEN_CHARACTERS =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff9-\ufffb\u{e0000}-\u{e007f}\u{e0100}-\u{e01ef}]|(?<!\p{Extended_Pictographic})\ufe0f/gu;
// After a pictograph, it asks for the coloured form, and is usual.
const EMOJI_SELECTOR = /\ufe0f/gu;

const escapeOf = (c) => `\\u{${c.codePointAt(0).toString(16)}}`;

/** Returns the text with hidden characters as visible escapes, such as `\u{202e}`. */
export function text(value) {
  return String(value).replace(HIDDEN_CHARACTERS, escapeOf);
}

/** Returns the text as `text` does, for comparisons: without any exception. */
export function exactText(value) {
  return text(value).replace(EMOJI_SELECTOR, escapeOf);
}

// Addresses lead within the page, to riglm itself, or to a client that asks its user before it adds a
// server; never to a scheme such as `javascript:`.
const ADDRESSES = /^(#|\/(?!\/)|blob:|https:\/\/cursor\.com\/en\/install-mcp\?|https:\/\/kiro\.dev\/launch\/mcp\/add\?|vscode:mcp\/install\?|lmstudio:\/\/add_mcp\?)/;

const PROPERTIES = new Set(["value", "checked", "disabled", "hidden", "selected"]);

function setAttribute(node, name, value) {
  if (name === "on") {
    node[HANDLERS] = value;
    for (const type of Object.keys(value)) node.addEventListener(type, dispatch);
  } else if (name === "style") {
    // Through the object model: the content security policy forbids `style` attributes.
    for (const [key, one] of Object.entries(value)) node.style.setProperty(key, one);
  } else if (PROPERTIES.has(name) && name in node) {
    node[name] = value ?? false;
  } else if (value === true) {
    node.setAttribute(name, "");
  } else if (value !== null && value !== undefined && value !== false) {
    const shown = name === "href" ? String(value) : text(value);
    if (name === "href" && !ADDRESSES.test(shown)) return;
    node.setAttribute(name, shown);
  }
}

/** Calls the newest handler of an element, also after `update` replaced it. */
function dispatch(event) {
  const handler = this[HANDLERS]?.[event.type];
  try {
    handler?.call(this, event)?.catch?.(report);
  } catch (error) {
    report(error);
  }
}

/** Returns children as nodes; `null`, `undefined` and `false` are left out. */
function nodes(children) {
  return children.flat(Infinity)
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : document.createTextNode(text(child))));
}

function build(node, attributes, children) {
  node.append(...nodes(children));
  for (const [name, value] of Object.entries(attributes ?? {})) setAttribute(node, name, value);
  return node;
}

/** Creates an HTML element: `h("a", { href, on: { click } }, "text", node, null, [more])`. */
export function h(tag, attributes, ...children) {
  return build(document.createElement(tag), attributes, children);
}

/** Creates an SVG element. */
export function s(tag, attributes, ...children) {
  return build(document.createElementNS(SVG, tag), attributes, children);
}

/** Returns a text of riglm as nodes, with what stands between backticks as code. */
export function prose(words) {
  const parts = String(words).split("`");
  // The last backtick of an odd number begins nothing.
  return parts.map((part, i) => (i % 2 === 0 ? part : i < parts.length - 1 ? h("code", null, part) : `\`${part}`));
}

/** Returns a text of riglm without backticks, for titles. */
export function plain(words) {
  return String(words).replaceAll("`", "");
}

/** Replaces the children of a node. */
export function clear(node, ...children) {
  node.replaceChildren(...nodes(children));
  return node;
}

/** Marks an element that keeps its own state: `update` never merges another element into it. */
export function stateful(node) {
  node[STATEFUL] = true;
  return node;
}

/**
 * Makes the children of a node equal to the new ones, and changes only what differs. Focus,
 * selection, scroll positions, open `details` and typed text stay. Children with `data-key` are
 * matched by it, others by position. A child that is in the node already stays as it is. Do not
 * put an element that is in the page into a new parent: that would take it out of its place.
 */
export function update(node, ...children) {
  const active = document.activeElement;
  reconcile(node, nodes(children));
  if (active && active !== document.activeElement && active.isConnected) {
    active.focus({ preventScroll: true });
  }
  return node;
}

const keyOf = (node) => node.dataset?.key;

function reconcile(parent, next) {
  const wanted = new Set(next);
  const keys = new Set(next.map(keyOf).filter(Boolean));
  const keyed = new Map();
  for (const child of [...parent.childNodes]) {
    const key = keyOf(child);
    if (!key) continue;
    if (keys.has(key)) keyed.set(key, child);
    else if (!wanted.has(child)) child.remove();
  }
  let at = parent.firstChild;
  for (const child of next) {
    const key = keyOf(child);
    let match = null;
    if (child.parentNode === parent) match = child;
    else if (key) match = keyed.get(key);
    else if (at && !keyOf(at) && !wanted.has(at)) match = at;
    if (match && match !== child && !canMerge(match, child)) match = null;
    if (!match) {
      parent.insertBefore(child, at);
      continue;
    }
    if (match === at) at = at.nextSibling;
    else parent.insertBefore(match, at);
    if (match !== child) merge(match, child);
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

function canMerge(old, next) {
  return old.nodeType === next.nodeType && old.nodeName === next.nodeName
    && !old[STATEFUL] && !next[STATEFUL];
}

function merge(old, next) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== next.data) old.data = next.data;
    return;
  }
  for (const { name } of [...old.attributes]) {
    // The reader opens and closes details.
    if (!next.hasAttribute(name) && name !== "open" && name !== "style") old.removeAttribute(name);
  }
  for (const { name, value } of next.attributes) {
    if (name !== "style" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  if (old.style && old.style.cssText !== next.style.cssText) old.style.cssText = next.style.cssText;
  if (next[HANDLERS]) {
    for (const type of Object.keys(next[HANDLERS])) old.addEventListener(type, dispatch);
  }
  old[HANDLERS] = next[HANDLERS];
  reconcile(old, [...next.childNodes]);
}

/** Shows a short message at the edge of the page; screen readers read it. */
export function toast(message, kind = "info") {
  const box = h("p", { class: `toast ${kind}` }, message);
  document.getElementById("toasts").append(box);
  setTimeout(() => box.remove(), kind === "error" ? 10_000 : 4_000);
}

/** Shows an error of an action. */
export function report(error) {
  if (error?.status === 401 || error?.name === "AbortError") return;
  if (!error?.detail) console.error(error);
  toast(error?.detail ?? error?.message ?? String(error), "error");
}

/** Creates an empty state: what is missing, and what to do next. */
export function empty(title, explanation, ...actions) {
  return h("div", { class: "empty" },
    h("p", { class: "empty-title" }, title),
    h("p", { class: "dim" }, explanation),
    actions.length ? h("div", { class: "row" }, actions) : null);
}

/** Creates a notice of the kind `info`, `warning` or `error`. */
export function notice(kind, message, ...more) {
  return h("div", { class: `notice ${kind}`, role: kind === "error" ? "alert" : "note" },
    h("p", null, message), more);
}

let sectionCount = 0;

/** Creates a titled part of a screen. */
export function section(title, subtitle, ...children) {
  const id = `section-${++sectionCount}`;
  return h("section", { class: "card", "aria-labelledby": id },
    h("h2", { id }, title),
    subtitle ? h("p", { class: "dim sub" }, subtitle) : null,
    children);
}

/** Returns the address of the screen of a tool. */
export function toolHref({ upstream, tool }) {
  return `#/tools/${encodeURIComponent(upstream)}/${encodeURIComponent(tool)}`;
}

/** Creates a link to a tool. The style sheet cuts long names in the middle. */
export function toolName({ upstream, tool }) {
  // The tail stays whole, so that names with a common beginning stay distinct.
  const cut = tool.length > 24 ? tool.length - 8 : tool.length;
  return h("a", { class: "toolname", href: toolHref({ upstream, tool }), title: `${upstream} ${tool}`.slice(0, 2_000) },
    h("span", { class: "dim" }, `${upstream} `),
    h("span", { class: "head" }, tool.slice(0, cut)),
    cut < tool.length ? h("span", { class: "tail" }, tool.slice(cut)) : null);
}

/** Creates a tag: a short word of the kind `ok`, `warn`, `bad` or `info`, or of none. */
export function tag(word, kind = "", title = null) {
  return h("span", { class: `tag ${kind}`, title }, word);
}

/** Creates a group of buttons of which one is pressed; `onPick` gets the value of another one. */
export function choice(label, options, current, onPick) {
  return h("div", { class: "choice", role: "group", "aria-label": label },
    options.map(({ value, label: name, title }) => h("button", {
      type: "button",
      title,
      "aria-pressed": String(value === current),
      on: { click: () => (value === current ? null : onPick(value)) },
    }, name)));
}

/** Opens a modal dialog and returns it. It leaves the page when it is closed. */
export function openDialog(title, ...children) {
  const id = `dialog-${++sectionCount}`;
  const dialog = h("dialog", { "aria-labelledby": id },
    h("div", { class: "dialog-head" },
      h("h2", { id }, title),
      h("button", { type: "button", class: "btn quiet", on: { click: () => dialog.close() } }, "Close")),
    children);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/** Asks for a confirmation. Resolves to whether the reader confirmed. */
export function confirmAction(question, label, kind = "danger") {
  return new Promise((resolve) => {
    let isConfirmed = false;
    const dialog = openDialog("Please confirm",
      h("p", null, question),
      h("div", { class: "row end" },
        h("button", { type: "button", class: "btn", on: { click: () => dialog.close() } }, "Cancel"),
        h("button", {
          type: "button",
          class: `btn ${kind}`,
          on: { click: () => { isConfirmed = true; dialog.close(); } },
        }, label)));
    dialog.addEventListener("close", () => resolve(isConfirmed));
  });
}

// Longer answers make the dialog slow; the download has all of it.
const MAX_JSON_SHOWN = 300_000;

/** Creates the button that shows the answer of a path as JSON. */
export function jsonLink(path) {
  return h("button", {
    type: "button", class: "btn quiet json", title: `Show the answer of GET ${path}`,
    on: { click: () => showJson(path) },
  }, "JSON");
}

async function showJson(path) {
  const answer = JSON.stringify(await get(path), null, 2);
  const shown = answer.length > MAX_JSON_SHOWN
    ? `${answer.slice(0, MAX_JSON_SHOWN)}\n… cut here; the download has all of it`
    : answer;
  const download = () => {
    const address = URL.createObjectURL(new Blob([answer], { type: "application/json" }));
    const name = `${path.replace(/[^a-z0-9]+/gi, "-").replace(/^-|-$/g, "").slice(0, 60)}.json`;
    h("a", { href: address, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
  };
  openDialog(`GET ${path}`,
    h("p", { class: "dim" }, "The control API answers this request with the data of this view."),
    h("pre", { class: "scroll json-text", tabindex: "0", "aria-label": "JSON" }, shown),
    h("div", { class: "row end" },
      h("button", { type: "button", class: "btn", on: { click: () => copy(answer) } }, "Copy"),
      h("button", { type: "button", class: "btn", on: { click: download } }, "Download")));
}

async function copy(answer) {
  await navigator.clipboard.writeText(answer);
  toast("Copied.");
}
