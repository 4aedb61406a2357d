// The screen of held changes: what the definition of a tool was, what it would become, and approval.

import { get, getIfPossible, post, scopes } from "./api.js";
import { clear, confirmAction, empty, exactText, h, jsonLink, notice, section, tag, toast, toolHref } from "./dom.js";
import { agoNode, number, plural } from "./format.js";
import { watch } from "./live.js";

export const title = "Held changes";

/** Definitions with more lines are shown side by side: a diff would take too long. */
const MAX_DIFF_LINES = 2000;
/** The most lines of a definition that are shown side by side. */
const MAX_WHOLE_LINES = 5000;
/** Unchanged lines around a change. */
const CONTEXT = 3;
/** The most changes that are open at first. */
const OPEN_AT_FIRST = 5;
/** The most changes of an upstream that riglm gives with their definitions. */
const MAX_SHOWN = 100;
/** The most levels of a definition that are indented, so that lines stay short. */
const MAX_INDENT = 40;
/** The parts of a JSON text, without white space. */
const TOKENS = /"[^"\\]*(?:\\.[^"\\]*)*"|[[\]{},:]|[^\s[\]{},:"]+/g;

const WHY = "A server can change what a tool says after you decided to trust it. With held changes, agents see the approved definition until you approve the new one.";

/** Fills `root` with the held changes of all upstreams. */
export async function show(root) {
  const content = h("div", { class: "stack" });
  clear(
    root,
    h("div", { class: "screen-head" }, h("h1", null, title), jsonLink("/upstreams")),
    h("p", { class: "lead" }, WHY),
    content,
  );
  // Which changes the reader opened (true) or closed (false).
  const isOpen = new Map();
  let last = "";
  const load = async () => {
    const { upstreams } = await get("/upstreams");
    const waiting = upstreams.filter((upstream) => upstream.held.length > 0);
    const answers = await Promise.all(waiting.map(({ name }) => get(heldPath(name))));
    // Changes that were approved in the meantime are gone from the later answers.
    const groups = waiting
      .map(({ name, held: all }, i) => ({ name, held: answers[i].held, total: totalOf(all, answers[i].held) }))
      .filter(({ held }) => held.length > 0);
    // A diff that is being read stays as it is until another change is held or approved.
    const state = JSON.stringify([upstreams[0]?.name, groups.map(({ name, held, total }) => [name, total, held.map(({ tool, hash }) => [tool, hash])])]);
    if (state !== last) {
      last = state;
      const holding = groups.length > 0 ? [] : await holdingUpstreams();
      draw({ content, groups, upstreams, holding, isOpen, reload: load });
    }
  };
  await load();
  return watch(["change_held", "tools_seen", "list_change_told", "config_changed"], load);
}

/** Returns the number of held changes of an upstream. The definitions were requested later. */
const totalOf = (all, held) => (held.length < MAX_SHOWN ? held.length : Math.max(all.length, held.length));

const heldPath = (name) => `/upstreams/${encodeURIComponent(name)}/held`;

function draw(view) {
  const { content, groups, upstreams, holding } = view;
  if (groups.length === 0) {
    clear(content, nothingHeld(upstreams, holding));
    return;
  }
  const mayApprove = scopes().has("override");
  const denial = notice(
    "info",
    "This token may not approve changes: it has no scope override. Use the token of control.token, or a key of control.keys with this scope.",
  );
  // Long pages open slowly: only the first changes are open.
  const first = groups.flatMap(({ name, held }) => held.map((change) => keyOf(name, change))).slice(0, OPEN_AT_FIRST);
  for (const key of first) {
    if (!view.isOpen.has(key)) {
      view.isOpen.set(key, true);
    }
  }
  clear(content, mayApprove ? null : denial, groups.map((group) => groupPart(group, mayApprove, view)));
}

const keyOf = (upstream, change) => JSON.stringify([upstream, change.tool, change.hash]);

/** Returns the names of the upstreams whose changes are held; `null` if this is not known. */
async function holdingUpstreams() {
  const config = await getIfPossible("/config");
  return config && Object.entries(config.effective.upstreams ?? {})
    .filter(([, upstream]) => upstream.tool_changes === "hold")
    .map(([name]) => name);
}

function nothingHeld(upstreams, holding) {
  const setup = h("a", { class: "btn", href: "#/setup" }, "Upstreams");
  if (holding?.length > 0) {
    return empty("No change is waiting", `riglm holds the changes of ${holding.join(", ")}. No definition differs from the approved one.`, setup);
  }
  const name = upstreams[0]?.name ?? "NAME";
  return [
    holding
      ? empty("No upstream holds changes", "Each change of a tool is shown to clients at once.", setup)
      : empty("No change is waiting", "Nothing is held back: either no definition has changed, or no upstream holds changes.", setup),
    section(
      "Switch it on",
      "In the configuration, for each upstream whose changes you want to see first:",
      h("pre", { class: "scroll json-text", tabindex: "0" }, h("code", null, `[upstreams.${name}]\ntool_changes = "hold"`)),
      h(
        "p",
        { class: "dim" },
        "riglm trusts the first complete list that it sees. Later, a changed tool keeps its approved definition, and a new tool is left out. docs/configuration.md describes it under Held tool changes.",
      ),
    ),
  ];
}

function groupPart(group, mayApprove, view) {
  const shown = group.held.slice(0, MAX_SHOWN);
  const approveAll = async () => {
    const text = `Approve ${plural(shown.length, "change")} of ${group.name}, as shown here? Clients are told that their lists changed.`;
    if (await confirmAction(text, "Approve all", "")) {
      await approve(group.name, shown);
      await view.reload();
    }
  };
  const left = group.total - shown.length;
  return section(
    group.name,
    `${plural(group.total, "change")} held back.`,
    h(
      "div",
      { class: "row" },
      mayApprove && shown.length > 1
        ? h("button", { type: "button", class: "btn", on: { click: approveAll } }, left > 0 ? `Approve these ${shown.length}` : "Approve all")
        : null,
      jsonLink(heldPath(group.name)),
    ),
    shown.map((change) => changePart(group.name, change, mayApprove, view)),
    left > 0 ? h("p", { class: "dim" }, `${number(left)} more appear when these are approved.`) : null,
  );
}

function changePart(upstream, change, mayApprove, view) {
  const key = keyOf(upstream, change);
  const body = h("div", { class: "stack" });
  const fill = () => {
    if (!body.hasChildNodes()) {
      clear(body, difference(change));
    }
  };
  const toggle = () => {
    view.isOpen.set(key, details.open);
    if (details.open) {
      fill();
    }
  };
  const approveOne = async () => {
    const text =
      change.kind === "new"
        ? `Approve the new tool ${change.tool}? From now on, clients may see it.`
        : `Approve the new definition of ${change.tool}? From now on, clients see it.`;
    if (await confirmAction(text, "Approve", "")) {
      await approve(upstream, [change]);
      await view.reload();
    }
  };
  const details = h(
    "details",
    { class: "held", on: { toggle } },
    h(
      "summary",
      null,
      h("span", { class: "cut mono", title: change.tool.slice(0, 2000) }, change.tool),
      " ",
      change.kind === "new" ? tag("new", "info", "The tool is left out until it is approved") : tag("changed", "warn", "The approved definition is still shown"),
      h("span", { class: "dim" }, " first seen ", agoNode(change.seen_at)),
    ),
    body,
    h(
      "div",
      { class: "row" },
      mayApprove ? h("button", { type: "button", class: "btn", on: { click: approveOne } }, "Approve this definition") : null,
      h("a", { class: "btn quiet", href: toolHref({ upstream, tool: change.tool }) }, "Look at the tool"),
      h("span", { class: "dim", title: change.hash }, "hash ", h("code", null, change.hash.slice(0, 12))),
    ),
  );
  if (view.isOpen.get(key)) {
    details.open = true;
    fill();
  }
  return details;
}

/** Approves the definitions that were shown, one by one, so that no other one is approved unseen. */
async function approve(upstream, changes) {
  let others = 0;
  for (const { tool, hash } of changes) {
    try {
      await post(`/upstreams/${encodeURIComponent(upstream)}/approve`, { tool, hash });
    } catch (error) {
      // 409: another definition is held now. 404: it was approved by someone else, or withdrawn.
      if (error.status !== 409 && error.status !== 404) {
        throw error;
      }
      others += 1;
    }
  }
  if (others === 0) {
    toast(`${plural(changes.length, "definition")} approved.`);
  } else {
    toast(
      `${plural(others, "change")} not approved: the server has changed the definition again since you looked, or the change is gone. Look at the list again.`,
      "error",
    );
  }
}

function difference(change) {
  if (change.definition === null) {
    return [notice("warning", "The held definition is longer than 64 KiB, so riglm does not keep it and cannot compare it. Ask the makers of the server what has changed before you approve it.")];
  }
  const held = linesOf(change.definition);
  if (change.kind === "new") {
    return [h("p", { class: "dim" }, "The whole definition of the new tool:"), wholeText("New definition", held, change)];
  }
  if (change.approved_definition === null) {
    return [notice("warning", "The approved definition is longer than 64 KiB, so riglm does not keep it. This is the held one:"), wholeText("Held definition", held, change)];
  }
  const approved = linesOf(change.approved_definition);
  if (Math.max(held.length, approved.length) > MAX_DIFF_LINES) {
    return [
      h("p", { class: "dim" }, `The definitions have more than ${number(MAX_DIFF_LINES)} lines. They are side by side.`),
      h("div", { class: "grid2" }, wholeText("Approved", approved, change), wholeText("Held", held, change)),
    ];
  }
  const changes = diff(approved, held);
  if (changes.every(({ kind }) => kind === "same")) {
    return [
      h("p", null, "The content is the same; only white space, or how characters of texts are written, differs. These are both texts as the server sent them:"),
      h("div", { class: "grid2" }, wholeText("Approved", [change.approved_definition], change), wholeText("Held", [change.definition], change)),
    ];
  }
  return [diffPart(changes, change)];
}

function wholeText(label, lines, change) {
  const shown = lines.slice(0, MAX_WHOLE_LINES).join("\n");
  const left = lines.length - MAX_WHOLE_LINES;
  return h(
    "div",
    null,
    h("p", { class: "dim" }, label),
    h("pre", { class: "scroll json-text", tabindex: "0", role: "region", "aria-label": `${label}: ${change.tool.slice(0, 100)}` }, exactText(shown)),
    left > 0 ? h("p", { class: "dim" }, `${number(left)} more lines; the button JSON has all of them.`) : null,
  );
}

/**
 * Returns a definition as lines. Line breaks in its texts begin new lines, so that a changed
 * sentence of a long description stands out.
 */
function linesOf(definition) {
  let text = definition;
  try {
    JSON.parse(definition);
    text = layOut(definition);
  } catch {
    // What is no JSON is compared as it is.
  }
  return text.split("\n").flatMap((line) => line.split(/(?<=\\n)/));
}

/**
 * Returns a JSON text with one value or member a line. Everything stays as it is written, also what
 * a parser would drop or round, such as the first of two members of one name. Only strings get
 * their usual escapes.
 */
function layOut(json) {
  let laidOut = "";
  let depth = 0;
  let before = "";
  const newLine = () => `\n${"  ".repeat(Math.min(depth, MAX_INDENT))}`;
  for (const [token] of json.matchAll(TOKENS)) {
    if (token === "}" || token === "]") {
      depth -= 1;
      if (before !== "{" && before !== "[") laidOut += newLine();
    } else if (before === "{" || before === "[" || before === ",") {
      laidOut += newLine();
    }
    laidOut += token.startsWith('"') ? JSON.stringify(JSON.parse(token)) : token;
    if (token === ":") laidOut += " ";
    if (token === "{" || token === "[") depth += 1;
    before = token;
  }
  return laidOut;
}

/** Returns the lines of both texts in order, each of the kind `same`, `del` or `add`. */
function diff(before, after) {
  let start = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) {
    start += 1;
  }
  let end = 0;
  while (end < before.length - start && end < after.length - start && before.at(-1 - end) === after.at(-1 - end)) {
    end += 1;
  }
  const a = before.slice(start, before.length - end);
  const b = after.slice(start, after.length - end);
  return [
    ...before.slice(0, start).map((line) => ({ kind: "same", line })),
    ...longestCommon(a, b),
    ...before.slice(before.length - end).map((line) => ({ kind: "same", line })),
  ];
}

/** Returns the lines of the longest common subsequence, and the others. Both have at most `MAX_DIFF_LINES`. */
function longestCommon(a, b) {
  const width = b.length + 1;
  const lengths = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      const here = i * width + j;
      lengths[here] = a[i] === b[j] ? lengths[here + width + 1] + 1 : Math.max(lengths[here + width], lengths[here + 1]);
    }
  }
  const lines = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      lines.push({ kind: "same", line: a[i] });
      i += 1;
      j += 1;
    } else if (j === b.length || (i < a.length && lengths[(i + 1) * width + j] >= lengths[i * width + j + 1])) {
      lines.push({ kind: "del", line: a[i] });
      i += 1;
    } else {
      lines.push({ kind: "add", line: b[j] });
      j += 1;
    }
  }
  return lines;
}

function diffPart(changes, { tool }) {
  const isNear = changes.map(() => false);
  changes.forEach(({ kind }, at) => {
    if (kind !== "same") {
      isNear.fill(true, Math.max(0, at - CONTEXT), at + CONTEXT + 1);
    }
  });
  const rows = [];
  let hidden = 0;
  const closeGap = () => {
    if (hidden > 0) {
      rows.push(h("div", { class: "dim" }, `  … ${plural(hidden, "unchanged line")}`));
    }
    hidden = 0;
  };
  changes.forEach((change, at) => {
    if (!isNear[at]) {
      hidden += 1;
      return;
    }
    closeGap();
    rows.push(lineRow(change, partnerOf(changes, at)));
  });
  closeGap();
  const added = changes.filter(({ kind }) => kind === "add").length;
  const removed = changes.filter(({ kind }) => kind === "del").length;
  return h(
    "div",
    null,
    h("p", { class: "dim" }, `${plural(added, "line")} added, ${plural(removed, "line")} removed. Removed lines are approved now, added lines are held.`),
    h("div", { class: "diff scroll", tabindex: "0", role: "region", "aria-label": `Changes of the definition: ${tool.slice(0, 100)}` }, rows),
  );
}

/** Returns the line that a changed line replaces or is replaced by, if it is the only one. */
function partnerOf(changes, at) {
  const { kind } = changes[at];
  const kindAt = (place) => changes[place]?.kind ?? "same";
  if (kind === "del" && kindAt(at + 1) === "add" && kindAt(at - 1) !== "del" && kindAt(at + 2) !== "add") {
    return changes[at + 1].line;
  }
  if (kind === "add" && kindAt(at - 1) === "del" && kindAt(at + 1) !== "add" && kindAt(at - 2) !== "del") {
    return changes[at - 1].line;
  }
  return null;
}

function lineRow({ kind, line }, partner) {
  const sign = { add: "+ ", del: "- ", same: "  " }[kind];
  const word = { add: "added", del: "removed" }[kind];
  return h(
    "div",
    { class: kind === "same" ? null : kind },
    h("span", { "aria-hidden": "true" }, sign),
    word ? h("span", { class: "hidden-text" }, `${word}: `) : null,
    partner === null ? exactText(line) : markedParts(line, partner),
  );
}

/** Returns a line with its part that differs from another line marked. */
function markedParts(line, partner) {
  const [own, other] = [[...line], [...partner]];
  let start = 0;
  while (start < own.length && start < other.length && own[start] === other[start]) {
    start += 1;
  }
  let end = 0;
  while (end < own.length - start && end < other.length - start && own.at(-1 - end) === other.at(-1 - end)) {
    end += 1;
  }
  const middle = own.slice(start, own.length - end).join("");
  return [exactText(own.slice(0, start).join("")), middle ? h("mark", null, exactText(middle)) : null, exactText(own.slice(own.length - end).join(""))];
}
