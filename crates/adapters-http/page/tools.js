// The screen of all tools: what each definition costs, how it is used, and what is never used.

import { get } from "./api.js";
import { choice, clear, empty, h, jsonLink, section, tag, toolHref, update } from "./dom.js";
import { duration, number, percent, plural, short, timeNode } from "./format.js";
import { mayCount, watch } from "./live.js";
import { table } from "./table.js";
import { bars } from "./chart.js";

export const title = "Tools";

/** The most tools that are fetched. */
const MAX_TOOLS = 5000;
/** The most tools in one answer. */
const PAGE = 1000;
/** With fewer calls, a percentile says little. */
export const ENOUGH_CALLS = 20;
/** The most upstreams that have a bar. */
const MAX_BARS = 12;
const DAYS = [1, 7, 30, 90];
const USUAL_DAYS = 30;
/** The largest definitions first. */
const USUAL_ORDER = "-definition";
const ONLY = ["", "never", "failing"];

/** Fills `root` with the tools. The query has `days`, `upstream`, `only` and the view of the table. */
export async function show(root, params) {
  const view = readView(params.query);
  let found = null;

  const controls = h("div", { class: "row" });
  const content = h("div", { class: "stack" });
  const about = h("p", { class: "dim" });
  const summary = h("div", { class: "stack" });
  const list = tableOf(view, params);
  const all = section("All tools", null, about, list);
  const json = h("span");
  clear(
    root,
    h("div", { class: "screen-head" }, h("h1", null, title), json),
    h("p", { class: "lead" }, "What each definition costs a prompt, and how each tool is used."),
    controls,
    content,
  );

  const draw = () => {
    if (found.tools.length === 0) {
      clear(content, nothingYet());
      return;
    }
    if (!all.parentNode) {
      clear(content, summary, all);
    }
    update(controls, controlsOf(view, found.tools, change));
    update(json, jsonLink(pathOf(view.days, null)));
    drawSummary(summary, found.tools, view);
    const shown = found.tools.filter((tool) => matches(tool, view));
    list.update(shown);
    update(about, aboutRows(shown.length, found, view));
  };
  const change = (changes) => {
    Object.assign(view, changes);
    params.set({ ...changes, days: view.days === USUAL_DAYS ? null : view.days });
    draw();
    if ("days" in changes) {
      live.now();
    }
  };
  const load = async () => {
    const { days } = view;
    const answer = await fetchTools(days);
    // An older answer must not replace the one for a period that was chosen since.
    if (days === view.days) {
      found = answer;
      draw();
    }
  };

  try {
    await load();
  } catch (error) {
    if (error.status !== 409) {
      throw error;
    }
    clear(content, recordingOff(error));
  }
  const live = watch(["tool_called", "request_ended", "tools_seen", "change_held"], load, { pause: 2000, isRelevant: mayCount });
  return live;
}

/** Returns the empty state of a screen that needs stored rows, while riglm stores none. */
export function recordingOff(error) {
  return empty(
    "Nothing is recorded",
    `This view is about stored calls: ${error.detail}. Remove recording.mode = "off" from the configuration, and riglm records calls and learns from them.`,
  );
}

function nothingYet() {
  return empty(
    "No upstream has listed tools yet",
    "Tools appear here when a client connects through riglm and asks for its list.",
    h("a", { class: "btn", href: "#/setup" }, "Look at the set-up"),
  );
}

function readView(query) {
  const days = Number(query.get("days"));
  const only = query.get("only");
  return {
    days: DAYS.includes(days) ? days : USUAL_DAYS,
    upstream: query.get("upstream") ?? "",
    only: ONLY.includes(only) ? only : "",
  };
}

function pathOf(days, cursor) {
  const query = new URLSearchParams({ days, limit: PAGE });
  if (cursor) {
    query.set("cursor", cursor);
  }
  return `/tools?${query}`;
}

async function fetchTools(days) {
  const tools = [];
  let cursor = null;
  do {
    const page = await get(pathOf(days, cursor));
    tools.push(...page.tools);
    cursor = page.next_cursor;
  } while (cursor && tools.length < MAX_TOOLS);
  return { tools, isCut: cursor !== null };
}

function matches(tool, view) {
  if (view.upstream && tool.upstream !== view.upstream) {
    return false;
  }
  if (view.only === "never") {
    return tool.calls === 0;
  }
  return view.only !== "failing" || tool.errors > 0;
}

function errorShare(tool) {
  return tool.calls > 0 ? tool.errors / tool.calls : null;
}

function tableOf(view, params) {
  const columns = [
    {
      key: "tool",
      label: "Tool",
      value: (tool) => tool.tool,
      cell: (tool) =>
        h(
          "span",
          { class: "row" },
          h("a", { class: "cut mono", href: toolHref(tool), title: tool.tool.slice(0, 2000) }, tool.tool),
          unusedTag(tool, view),
        ),
    },
    { key: "upstream", label: "Upstream", value: (tool) => tool.upstream },
    {
      key: "calls",
      label: "Calls",
      align: "end",
      value: (tool) => tool.calls,
      cell: (tool) => number(tool.calls),
    },
    {
      key: "errors",
      label: "Errors",
      title: "Share of the calls that failed, and their number",
      align: "end",
      value: errorShare,
      cell: (tool) => errorCell(tool),
    },
    {
      key: "p95",
      label: "p95",
      title: `95 % of the calls were answered within this time; only for tools with at least ${ENOUGH_CALLS} calls`,
      align: "end",
      value: (tool) => (tool.calls < ENOUGH_CALLS ? null : tool.latency_us?.p95 ?? null),
      cell: (tool) => (tool.calls > 0 && tool.calls < ENOUGH_CALLS ? h("span", { class: "dim small" }, "too few calls") : duration(tool.latency_us?.p95)),
    },
    tokenColumn("definition", "Definition (tokens)", "definition_tokens", "Tokens of the definition"),
    tokenColumn("result", "Result (tokens)", "result_tokens", "Mean tokens of the newest results"),
    {
      key: "last",
      label: "Last call",
      value: (tool) => tool.last_call ?? null,
      cell: (tool) => (tool.last_call ? timeNode(tool.last_call) : "–"),
    },
  ];
  return table({
    columns,
    rowKey: (tool) => `${tool.upstream} ${tool.tool}`,
    label: "Tools",
    empty: "No tool matches these filters.",
    sortBy: params.query.get("sort") ?? USUAL_ORDER,
    onSort: (sort) => params.set({ sort: sort === USUAL_ORDER ? null : sort }),
    filter: true,
    filterBy: params.query.get("text") ?? "",
    onFilter: (text) => params.set({ text }),
  });
}

function unusedTag(tool, view) {
  if (tool.calls > 0) {
    return null;
  }
  return tool.last_call ? tag(onlyText("never", view.days).toLowerCase(), "warn") : tag("never used", "warn");
}

function tokenColumn(key, label, member, text) {
  return {
    key,
    label,
    title: `${text}; – if unknown`,
    align: "end",
    value: (tool) => tool[member] ?? null,
    cell: (tool) => (tool[member] == null ? "–" : number(Math.round(tool[member]))),
  };
}

function errorCell(tool) {
  if (tool.calls === 0) {
    return "–";
  }
  if (!tool.errors) {
    return "0";
  }
  const share = errorShare(tool);
  const text = `${percent(share)} (${number(tool.errors)})`;
  return h("span", { class: share >= 0.1 ? "tag bad" : "tag warn" }, text);
}

function controlsOf(view, tools, change) {
  const names = [...new Set(tools.map((tool) => tool.upstream))].sort();
  // An upstream of the address that has no tools stays selectable, so that the filter is visible.
  if (view.upstream && !names.includes(view.upstream)) {
    names.push(view.upstream);
  }
  const upstream = h(
    "select",
    { on: { change: (event) => change({ upstream: event.target.value }) } },
    h("option", { value: "" }, "All upstreams"),
    names.map((name) => h("option", { value: name }, name)),
  );
  upstream.value = view.upstream;
  return [
    choice("Period", DAYS.map((days) => ({ value: days, label: daysText(days) })), view.days, (days) => change({ days })),
    choice("Tools", ONLY.map((only) => ({ value: only, label: onlyText(only, view.days) })), view.only, (only) => change({ only })),
    h("label", { class: "row" }, h("span", { class: "dim" }, "Upstream"), upstream),
  ];
}

/** Returns the name of a filter. */
function onlyText(only, days) {
  return { never: `Not used in ${daysText(days)}`, failing: "Failing" }[only] ?? "All";
}

function daysText(days) {
  return days === 1 ? "1 day" : `${days} days`;
}

function aboutRows(shown, found, view) {
  const all = plural(found.tools.length, "tool");
  const parts = [shown === found.tools.length ? all : `${number(shown)} of ${all}`];
  if (found.isCut) {
    parts.push(`only the first ${number(MAX_TOOLS)} tools, by name, are shown here`);
  }
  parts.push(`calls and errors of ${view.days === 1 ? "the last day" : `the last ${view.days} days`}`);
  return `${parts.join("; ")}.`;
}

/** Draws the numbers of the chosen upstream, and the sizes of all. */
function drawSummary(summary, all, view) {
  const tools = all.filter((tool) => !view.upstream || tool.upstream === view.upstream);
  const known = tools.filter((tool) => tool.definition_tokens != null);
  const calls = sum(tools, "calls");
  const errors = sum(tools, "errors");
  const never = tools.filter((tool) => tool.calls === 0);
  const unknown = tools.length - known.length;
  const period = `in ${daysText(view.days)}`;
  const allDefinitions =
    `tokens: what every prompt would carry if all tools${view.upstream ? " of this upstream" : ""} were listed. In lists it is slightly more, because names there may begin with that of the upstream.` +
    (unknown > 0 ? ` ${plural(unknown, "definition")} not stored, so not included.` : "");
  const unused =
    `of ${plural(tools.length, "tool")}. ` +
    `Their definitions have ${short(sum(never, "definition_tokens"))} tokens.`;
  const failed = calls > 0 ? `${percent(errors / calls)} of them failed.` : "No calls yet.";
  update(
    summary,
    h(
      "div",
      { class: "cards" },
      card(view.upstream ? `Definitions of ${view.upstream}` : "All definitions", short(sum(known, "definition_tokens")), allDefinitions),
      card(onlyText("never", view.days), number(never.length), unused),
      card(`Calls ${period}`, short(calls), failed),
    ),
    perUpstream(all),
  );
}

/** Creates a card with one number and its explanation. */
export function card(label, value, text) {
  return h(
    "div",
    { class: "card" },
    h("div", { class: "dim" }, label),
    h("div", { class: "big" }, value),
    h("p", { class: "dim" }, text),
  );
}

function perUpstream(tools) {
  const upstreams = new Map();
  for (const tool of tools) {
    const one = upstreams.get(tool.upstream) ?? { tools: 0, tokens: 0 };
    one.tools += 1;
    one.tokens += tool.definition_tokens ?? 0;
    upstreams.set(tool.upstream, one);
  }
  const sorted = [...upstreams].sort(([, a], [, b]) => b.tokens - a.tokens);
  const rows = sorted.slice(0, MAX_BARS).map(([name, one]) => ({
    label: name,
    value: one.tokens,
    shown: plural(one.tokens, "token"),
    title: plural(one.tools, "tool"),
    href: `#/tools?upstream=${encodeURIComponent(name)}`,
  }));
  const left = sorted.length - rows.length;
  return section(
    "Tokens of the definitions of each upstream",
    left > 0 ? `The ${MAX_BARS} largest; ${number(left)} more are in the table.` : null,
    bars({ rows, label: "Tokens of the definitions of each upstream" }),
  );
}

function sum(tools, member) {
  return tools.reduce((total, tool) => total + (tool[member] ?? 0), 0);
}
