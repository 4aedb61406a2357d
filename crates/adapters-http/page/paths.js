// The screen of paths: which tool is called after which.

import { get } from "./api.js";
import { choice, clear, empty, h, jsonLink, section, toolHref, toolName, update } from "./dom.js";
import { number, percent, plural } from "./format.js";
import { watch } from "./live.js";
import { table } from "./table.js";
import { graph, matrix } from "./chart.js";
import { recordingOff } from "./tools.js";

export const title = "Paths";

/** The most transitions that are fetched. */
const LIMIT = 500;
/** The numbers of tools in the matrix that can be chosen. */
const SIZES = [12, 16, 20];
const USUAL_SIZE = 16;
/** The most edges of the graph: more cannot be read. */
const MAX_EDGES = 50;
/** The most loops that are named. */
const MAX_LOOPS = 10;

/** The most frequent transitions first. */
const USUAL_ORDER = "-count";

const PATH = `/paths?limit=${LIMIT}`;

/** Fills `root` with the paths. The query has `tools`, `graph`, and the view of the table. */
export async function show(root, params) {
  const size = Number(params.query.get("tools"));
  const view = {
    size: SIZES.includes(size) ? size : USUAL_SIZE,
    hasGraph: params.query.get("graph") === "1",
  };
  const top = h("div", { class: "stack" });
  const list = transitionTable(params);
  const listPart = section("All transitions", "A call of the left tool, and the next call of the session.", list);
  clear(
    root,
    h("div", { class: "screen-head" }, h("h1", null, title), jsonLink(PATH)),
    h("p", { class: "lead" }, "Which tool is called after which. riglm predicts the next tools from these paths."),
    top,
  );

  let paths = null;
  const draw = () => {
    if (paths.transitions.length === 0) {
      clear(top, nothingYet());
      listPart.remove();
      return;
    }
    update(
      top,
      matrixPart(paths, view, change),
      loopPart(paths.transitions),
      graphPart(paths.transitions, view, change),
    );
    if (!listPart.parentNode) {
      root.append(listPart);
    }
    list.update(paths.transitions);
  };
  const change = (changes) => {
    Object.assign(view, changes);
    params.set({ tools: view.size === USUAL_SIZE ? null : view.size, graph: view.hasGraph ? 1 : null });
    draw();
  };
  const load = async () => {
    paths = await get(PATH);
    draw();
  };
  try {
    await load();
  } catch (error) {
    if (error.status !== 409) {
      throw error;
    }
    clear(top, recordingOff(error));
  }
  return watch(["tool_called"], load, { pause: 2000 });
}

function nothingYet() {
  return empty(
    "No paths yet",
    "A path appears as soon as a session calls two tools, one after the other. riglm predicts from them.",
    h("a", { class: "btn", href: "#/sessions" }, "Sessions"),
    h("a", { class: "btn", href: "#/setup" }, "Set-up"),
  );
}

// Names of upstreams have no spaces.
const keyOf = (tool) => `${tool.upstream} ${tool.tool}`;
const pairKey = (from, to) => JSON.stringify([keyOf(from), keyOf(to)]);

/** Returns the tools with the most calls in the transitions, the strongest first. */
function strongestTools(transitions, size) {
  const tools = new Map();
  for (const { from, to, count } of transitions) {
    for (const tool of [from, to]) {
      const one = tools.get(keyOf(tool)) ?? { tool, weight: 0 };
      one.weight += count;
      tools.set(keyOf(tool), one);
    }
  }
  const sorted = [...tools.values()].sort((a, b) => b.weight - a.weight);
  return { tools: sorted.slice(0, size).map((one) => one.tool), all: sorted.length };
}

function itemOf(tool) {
  return { tool, label: tool.tool, title: keyOf(tool), href: toolHref(tool) };
}

function matrixPart(paths, view, change) {
  const { tools, all } = strongestTools(paths.transitions, view.size);
  const cells = new Map(paths.transitions.map((one) => [pairKey(one.from, one.to), one]));
  const cell = (row, column) => cells.get(pairKey(row.tool, column.tool));
  const words = (row, column) => {
    const one = cell(row, column);
    return `${row.label} → ${column.label}: ${plural(one.count, "time")}, ${percent(one.share)} of the calls after it`;
  };
  const shown = tools.length < all ? `The ${tools.length} most used of ${plural(all, "tool")}.` : "";
  const cut =
    paths.transitions_total > paths.transitions.length
      ? ` Only the ${number(paths.transitions.length)} most frequent of ${number(paths.transitions_total)} transitions are used here.`
      : "";
  const sizes = SIZES.map((size) => ({ value: size, label: `${size} tools` }));
  return section(
    "What is called after what",
    `Row: a tool. Column: the tool that is called next. The stronger the colour, the more probable. ${shown}${cut}`,
    all > SIZES[0] ? h("div", null, choice("Number of tools", sizes, view.size, (size) => change({ size }))) : null,
    matrix({
      rows: tools.map(itemOf),
      columns: tools.map(itemOf),
      value: (row, column) => cell(row, column)?.share ?? null,
      title: words,
      label: "Share of the calls after a tool",
    }),
  );
}

function loopPart(transitions) {
  const loops = transitions.filter((one) => keyOf(one.from) === keyOf(one.to)).slice(0, MAX_LOOPS);
  const counts = new Map(transitions.map((one) => [pairKey(one.from, one.to), one.count]));
  const pairs = [];
  for (const { from, to, count } of transitions) {
    const back = counts.get(pairKey(to, from)) ?? 0;
    // Each pair once: the more frequent direction stands for it.
    const isFirst = count > back || (count === back && keyOf(from) < keyOf(to));
    if (keyOf(from) !== keyOf(to) && back > 0 && isFirst) {
      pairs.push({ from, to, count: Math.min(count, back) });
    }
  }
  pairs.sort((a, b) => b.count - a.count);
  return h(
    "div",
    { class: "grid2" },
    section(
      "Loops",
      "Tools that are called again right after themselves. Long loops may be paging, or an agent that is stuck.",
      loops.length > 0
        ? h(
            "ul",
            { class: "muted-list" },
            loops.map((one) =>
              h(
                "li",
                { class: "row" },
                toolName(one.from),
                h("span", { class: "dim" }, `${plural(one.count, "time")}, ${percent(one.share)} of the calls after it`),
              ),
            ),
          )
        : h("p", { class: "dim" }, "No tool was called twice in a row."),
    ),
    section(
      "Back and forth",
      "Pairs of tools that are called in turns.",
      pairs.length > 0
        ? h(
            "ul",
            { class: "muted-list" },
            pairs.slice(0, MAX_LOOPS).map((one) =>
              h(
                "li",
                { class: "row" },
                toolName(one.from),
                h("span", { class: "dim" }, "and"),
                toolName(one.to),
                h("span", { class: "dim" }, `${plural(one.count, "time")} in both directions`),
              ),
            ),
          )
        : h("p", { class: "dim" }, "No pair of tools is called in turns."),
    ),
  );
}

function transitionTable(params) {
  const tool = (key, label, member) => ({
    key,
    label,
    value: (one) => `${one[member].upstream} ${one[member].tool}`,
    cell: (one) => toolName(one[member]),
  });
  return table({
    columns: [
      tool("from", "From", "from"),
      tool("to", "To", "to"),
      {
        key: "count",
        label: "Times",
        align: "end",
        value: (one) => one.count,
        cell: (one) => number(one.count),
      },
      {
        key: "share",
        label: "Share",
        title: "Share of all calls after the left tool",
        align: "end",
        value: (one) => one.share,
        cell: (one) => percent(one.share),
      },
    ],
    rowKey: (one) => pairKey(one.from, one.to),
    label: "Transitions between tools",
    sortBy: params.query.get("sort") ?? USUAL_ORDER,
    onSort: (sort) => params.set({ sort: sort === USUAL_ORDER ? null : sort }),
    filter: true,
    filterBy: params.query.get("text") ?? "",
    onFilter: (text) => params.set({ text }),
  });
}

function graphPart(transitions, view, change) {
  const toggle = h(
    "button",
    {
      class: "btn",
      type: "button",
      "aria-expanded": String(view.hasGraph),
      on: { click: () => change({ hasGraph: !view.hasGraph }) },
    },
    view.hasGraph ? "Hide the graph" : "Draw the graph",
  );
  const edges = transitions.filter((one) => keyOf(one.from) !== keyOf(one.to)).slice(0, MAX_EDGES);
  const subtitle =
    edges.length === MAX_EDGES
      ? `The ${MAX_EDGES} strongest transitions. Loops are left out.`
      : "All transitions. Loops are left out.";
  return section("Graph", subtitle, h("div", null, toggle), view.hasGraph ? graphOf(edges) : null);
}

function graphOf(edges) {
  const nodes = new Map();
  for (const { from, to } of edges) {
    for (const tool of [from, to]) {
      nodes.set(keyOf(tool), { id: keyOf(tool), ...itemOf(tool) });
    }
  }
  return graph({
    nodes: [...nodes.values()],
    edges: edges.map((one) => ({
      from: keyOf(one.from),
      to: keyOf(one.to),
      weight: one.count,
      title: `${one.from.tool} → ${one.to.tool}: ${plural(one.count, "time")}`,
    })),
    label: "Transitions between tools",
  });
}
