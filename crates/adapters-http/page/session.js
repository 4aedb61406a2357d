// One session: its lists, calls and searches, why each tool is listed or hidden, and what comes next.

import { ApiError, get } from "./api.js";
import { bars } from "./chart.js";
import { ACTIONS, actionWords, clientName, decide, decisionList, denial } from "./decisions.js";
import { choice, clear, empty, h, jsonLink, notice, plain, prose, section, tag, toolName, update } from "./dom.js";
import { agoNode, dayTimeNode, duration, number, percent, plural, short, timeNode } from "./format.js";
import { watch } from "./live.js";
import { MISS, matchWords } from "./sessions.js";
import { table } from "./table.js";
import { FAILURES } from "./tool.js";

export const title = "Session";

const USUAL_ENTRIES = 200;
const MOST_ENTRIES = 1_000;
const MAX_TOOLS = 1_000;
const N_NEXT = 8;

// Revisions in which lists do not depend on a session.
const SHARED_LISTS = "2026-07-28";

const OF_SESSION = [
  "tool_called", "request_ended", "list_shown", "list_change_told", "searched", "session_closed",
  "context_shifted", "tools_seen", "override_changed", "pause_changed", "config_changed",
];

/** What `shown_because` means: in short, and what follows from it. `SELECTED` has the other values. */
const BECAUSE = {
  pinned: ["Pinned by an operator", "It is always listed, before all others."],
  included: ["Included by an operator", "A decision puts it into the list."],
  whole_list: ["The list has every tool", "Nothing was left out, except what operators hide."],
  excluded: ["Hidden by an operator", "A decision, or write gating, hides it."],
  became_likely: ["Became likely after this list was made", "By the present prediction, the next list has it. Until then a search finds it, and it can be called."],
  pinned_next: ["Pinned after this list was made", "The next list has it, before all others."],
  included_next: ["Included after this list was made", "The next list has it."],
  excluded_next: ["Hidden after this list was made", "The next list does not have it."],
  not_listed: ["The session has no list yet", "The client has not asked for its tools."],
  joined_since: ["Selected after this list was made", "riglm has selected another list since. The client gets it when it asks for its tools again. Until then a search finds the tool, and it can be called."],
  left_since: ["Left out after this list was made", "riglm has selected another list since. The client gets it when it asks for its tools again."],
};

/** Why a list has a tool, and why it lacks one, by the mode in which its tools were selected. */
const SELECTED = {
  prediction: {
    listed: ["Likely when the list was made", "By the prediction of that time, or it had been used shortly before."],
    hidden: ["Less likely than the listed tools when the list was made", "Others were more likely to be used, or the list had no room."],
  },
  general: {
    listed: ["Nothing was learned yet: the tools of all servers in turn", "Of each server, tools that find something come first."],
    hidden: ["Nothing was learned yet, and the list had no room", "It comes later in the order of all servers in turn."],
  },
  frequency: {
    listed: ["Among the most called tools", "The calls of the last 30 days stood in for a prediction."],
    hidden: ["Called less often than the listed tools", "The calls of the last 30 days stood in for a prediction."],
  },
  context: {
    listed: ["Fits the context of the client, or was likely", "The client declared a context. Likely tools may fill the rest of the list."],
    hidden: ["Does not fit the context of the client", "Or it fits, and the list had no room."],
  },
  pool: {
    listed: ["In the default pool", "The configuration names it in filtering.pools."],
    hidden: ["In no default pool", "The configuration does not name it in filtering.pools."],
  },
  names: {
    listed: ["Its name is allowed", "By filtering.allow or filtering.deny of the configuration."],
    hidden: ["Its name is not allowed", "By filtering.allow or filtering.deny of the configuration."],
  },
  all: {
    listed: BECAUSE.whole_list,
    hidden: ["Left out of a list of all tools", "Its server did not answer then."],
  },
};

/** The same for lists of older versions, which did not record the mode. */
const SELECTED_SOMEHOW = {
  listed: ["In the newest list", "The record does not say why."],
  hidden: ["Left out of the newest list", "The record does not say why."],
};

const USED = ["Used in this session", "It was called. The list had it from the start, or keeps it because it was used."];

/** The modes in whose lists a tool can be because it was used. */
const KEEP_USED = ["prediction", "general", "frequency", "context"];

/** What follows for a tool that was not selected: in an open session, and in one without predictions. */
const HIDDEN_NOW = "A search finds it, and it can be called. To list it always, pin it.";
const HIDDEN_THEN = "Or an operator hid it: the record does not tell which. A search could find it, and it could be called.";

/** The decisions that the table of tools offers. */
const OFFERED = ["pin", "exclude", "forbid"];

/** What the next list changes. */
const NEXT = {
  became_likely: "listed in the next list",
  pinned_next: "listed in the next list",
  included_next: "listed in the next list",
  excluded_next: "hidden in the next list",
  joined_since: "listed in the next list",
  left_since: "hidden in the next list",
};

const BANDS = {
  show_all: "The confidence is low, so all tools are shown.",
  search_prominent: "The confidence is moderate, so the search comes first in the list.",
  filter: "The confidence is high.",
};

const SOURCES = {
  shown: ["in an earlier list", ""],
  found: ["found by a search", "info"],
  hidden: ["hidden, called by name", "warn"],
  unlisted: ["listed by no upstream", "warn"],
};

/** The words for a tool that an answer named, if it was no result of a search that is shown here. */
const NAMED = ["named by riglm", "info",
  "It stood beside the results of a search, or in a recommendation, in the answer to a declared context, or in the results of a search that is not shown here."];

const OUTCOMES = {
  ok: "ok", cached: "ok", error: "bad", timeout: "bad", refused: "bad", cancelled: "warn", unknown: "warn",
};

/** How the lists of each policy behave. */
const POLICIES = {
  epoch: "They stay the same for a while, so that the prompt cache of the client stays valid.",
  append: "They only grow, so that the prompt cache of the client stays valid.",
  hints: "They have every tool, and mark those that the client loads at once.",
  conformal: "Each one follows the newest prediction.",
  all: "They have every tool.",
  allowlist: "They have the tools whose names the configuration allows.",
  denylist: "They have all tools but those whose names the configuration denies.",
};

const QUALITIES = { high: "ok", medium: "info", low: "warn" };

/** Fills `root`. View options: `tools` (`listed` or `hidden`), `text`, `sort`, `order`, `entries`. */
export async function show(root, params) {
  const id = params.parts[0];
  const { query } = params;
  const view = {
    id,
    limit: USUAL_ENTRIES,
    tools: ["listed", "hidden"].includes(query.get("tools")) ? query.get("tools") : "all",
    order: query.get("order") === "oldest" ? "oldest" : "newest",
    entries: ["call", "list", "search"].includes(query.get("entries")) ? query.get("entries") : "all",
    openLists: new Set(),
    detail: null,
    forecast: null,
    noForecast: null,
    overrides: [],
  };
  const set = (key, value, usual) => { view[key] = value; params.set({ [key]: value === usual ? null : value }); draw(); };

  const head = h("div", { class: "screen-head" });
  const numbers = h("div", { class: "cards" });
  const facts = h("div");
  const next = h("div", { class: "stack" });
  const nextSection = section("What next", "The tools that this session will most probably call next.", next);
  const reason = h("p");
  const toolControls = h("div", { class: "row" });
  const tools = h("div");
  // One with predictions, and one without: the session may end while the page is open.
  const tables = {};
  const words = h("dl", { class: "facts small" });
  const timelineControls = h("div", { class: "row" });
  const timeline = h("ol", { class: "timeline" });
  const older = h("div", { class: "row" });
  const overrides = h("div", { class: "stack" });
  clear(root, head, numbers,
    h("div", { class: "grid2" },
      nextSection,
      section("About this session", null, facts)),
    section("Tools", null, reason, words, h("p", { class: "small dim" }, OFFERED.map((action) => [actionWords(ACTIONS[action]), " "])), toolControls, tools),
    section("Decisions about tools", "Those of operators for this session, its client, its profile, or all clients.", overrides),
    section("Timeline", `Lists, calls and searches. ${MISS}`,
      timelineControls, timeline, older));

  function draw() {
    const model = modelOf(view);
    update(head, headParts(view));
    update(numbers, numberCards(view.detail, model));
    update(facts, factList(view, model));
    nextSection.hidden = view.noForecast?.status === 404;
    update(next, nextParts(view));
    update(reason, reasonText(view, model));
    update(toolControls,
      choice("Tools to show", [
        { value: "all", label: `All ${number(model.tools.length)}` },
        { value: "listed", label: `Listed ${number(model.nListed)}` },
        { value: "hidden", label: `Hidden ${number(model.tools.length - model.nListed)}` },
      ], view.tools, (value) => set("tools", value, "all")),
      denial() ? h("span", { class: "dim small" }, denial()) : null);
    const rows = model.tools.filter((tool) => view.tools === "all" || tool.isListed === (view.tools === "listed"));
    const kind = view.forecast ? "predicted" : "recorded";
    tables[kind] ??= toolTable(view, params, () => live.now());
    update(tools, tables[kind]);
    tables[kind].update(rows);
    update(words, legend(model));
    update(timelineControls,
      choice("Entries to show", [
        { value: "all", label: "All" }, { value: "list", label: "Lists" },
        { value: "call", label: "Calls" }, { value: "search", label: "Searches" },
      ], view.entries, (value) => set("entries", value, "all")),
      choice("Order", [{ value: "newest", label: "Newest first" }, { value: "oldest", label: "Oldest first" }],
        view.order, (value) => set("order", value, "newest")));
    update(timeline, timelineItems(view, model, draw));
    update(older, olderParts(view, live));
    update(overrides, overrideParts(view, model, live));
  }

  const load = async () => {
    const [detail, { overrides: all }] = await Promise.all([
      get(`/sessions/${encodeURIComponent(id)}?limit=${view.limit}`),
      get("/overrides"),
    ]);
    // A session that is over has no predictions, and asking for them is an error.
    const predicted = recordOf({ detail }).state === "past"
      ? { error: new ApiError(404, "The session is over.") }
      : await forecast(id);
    Object.assign(view, { detail, overrides: all, forecast: predicted.answer ?? null, noForecast: predicted.error ?? null });
    draw();
  };
  const live = watch(OF_SESSION, load, {
    isRelevant: (event) => (!event.session && !event.work_session) || isOfSession(view, event),
  });
  try {
    await load();
  } catch (error) {
    live.stop();
    if (![404, 409].includes(error.status)) throw error;
    clear(root, h("h1", null, title), missingSession(id, error));
  }
  return live;
}

function missingSession(id, error) {
  const sessions = h("a", { class: "btn", href: "#/sessions" }, "All sessions");
  return error.status === 409
    ? empty("Nothing is recorded", `${error.detail}. Sessions can be shown only if they are recorded.`, sessions)
    : empty("This session is not known", `${error.detail}. A new session is recorded within a second or two; an old one is deleted after the retention period.`, sessions);
}

/** Requests the predictions. Returns `{ answer }`, or `{ error }` if nothing is predicted. */
async function forecast(id) {
  try {
    return { answer: await get(`/predictions/${encodeURIComponent(id)}?limit=${MAX_TOOLS}`) };
  } catch (error) {
    if (error.status !== 404 && error.status !== 409) throw error;
    return { error };
  }
}

/** Returns the identifiers of the session, of its work sessions, and of the connection of a work session. */
function ownIds({ id, forecast: predicted, detail }) {
  const { session, work_session: work } = detail ?? {};
  return new Set([id, predicted?.session, session?.id, work?.session, ...(session?.work_sessions ?? [])].filter(Boolean));
}

function isOfSession(view, event) {
  const own = ownIds(view);
  return own.has(event.session) || own.has(event.work_session);
}

const keyOf = ({ upstream, tool }) => `${upstream}\n${tool}`;

/** Whether the next list has a tool, by what the prediction says of it. */
const IN_NEXT = { pinned_next: true, included_next: true, became_likely: true, excluded_next: false };

/** Returns what the next list changes for a tool that the selected list has and the one of the client does not, or the reverse. */
function sinceThen(tool, isListed) {
  const isInNext = IN_NEXT[tool.shown_because] ?? tool.shown;
  if (isInNext === isListed) return null;
  return isInNext ? "joined_since" : "left_since";
}

/** Puts together what the answers say about each tool. */
function modelOf({ detail, forecast: predicted }) {
  const lists = detail.timeline.filter((entry) => entry.type === "list");
  const calls = detail.timeline.filter((entry) => entry.type === "call");
  const searches = detail.timeline.filter((entry) => entry.type === "search");
  const newest = lists.at(-1) ?? null;
  const used = new Map();
  for (const call of calls) {
    const one = used.get(keyOf(call)) ?? { ...call, n: 0 };
    one.n += 1;
    used.set(keyOf(call), one);
  }
  let tools;
  if (predicted) {
    // Several sessions may share their lists: riglm may have selected another one, which this client has not got.
    const listed = newest && newest.epoch !== predicted.epoch ? new Set(newest.tools.map(keyOf)) : null;
    tools = predicted.tools.map((tool) => {
      const isListed = listed ? listed.has(keyOf(tool)) : tool.shown;
      return {
        ...tool,
        id: tool.name,
        isListed,
        shown_because: isListed === tool.shown ? tool.shown_because : sinceThen(tool, isListed),
        mode: listed ? newest.mode : predicted.mode,
        calls: used.get(keyOf(tool))?.n ?? 0,
      };
    });
  } else {
    const listed = new Map((newest?.tools ?? []).map((tool) => [keyOf(tool), { ...tool, isListed: true }]));
    for (const [key, call] of used) {
      if (!listed.has(key)) listed.set(key, { upstream: call.upstream, tool: call.tool, isListed: false, source: call.source, named_by: call.named_by });
    }
    for (const tool of detail.hidden_tools ?? []) {
      if (!listed.has(keyOf(tool))) listed.set(keyOf(tool), { ...tool, isListed: false });
    }
    tools = [...listed].map(([key, tool]) => ({ ...tool, id: key, mode: newest?.mode, calls: used.get(key)?.n ?? 0 }));
  }
  return { lists, calls, searches, newest, tools, nListed: tools.filter((tool) => tool.isListed).length };
}

function headParts(view) {
  const record = recordOf(view);
  // No call of a new work session is recorded yet.
  const isOpen = record.state === null ? view.forecast !== null : record.state === "active";
  const client = record.client === null ? "" : ` of ${record.client || "a client without a name"}`;
  return [
    h("h1", { class: "cut", title: client ? clientName(record) : null }, `${view.detail.session ? "Session" : "Work session"}${client}`),
    tag(isOpen ? "open" : "over", isOpen ? "ok" : ""),
    jsonLink(`/sessions/${encodeURIComponent(view.id)}?limit=${view.limit}`),
    isOpen ? predictionsLink(view) : null,
  ];
}

function predictionsLink(view) {
  const link = jsonLink(`/predictions/${encodeURIComponent(view.id)}?limit=${MAX_TOOLS}`);
  link.textContent = "JSON of predictions";
  return link;
}

function card(label, big, explanation) {
  return h("section", { class: "card" }, h("h2", null, label), h("p", { class: "big" }, big), h("p", { class: "small dim" }, explanation));
}

function numberCards({ session, misses, is_cut: isCut }, { newest, lists, calls, searches, tools }) {
  const failed = calls.filter((call) => OUTCOMES[call.outcome] === "bad").length;
  const used = tools.filter((tool) => tool.calls > 0).length;
  // Older entries are not loaded, so there may be more than these.
  const atLeast = (n) => `${number(n)}${isCut ? "+" : ""}`;
  const among = isCut ? " among the newest entries" : "";
  return [
    card("Tools in the newest list",
      newest ? [number(newest.tools.length), h("small", null, ` of ${number(newest.available_tools)}`)] : "–",
      newest ? `${tokens(newest)} Tools of upstreams; those of riglm itself come on top. ${isCut ? "At least " : ""}${plural(lists.length, "list")} so far.` : "No list is recorded for it."),
    card("Calls", session ? number(session.calls) : atLeast(calls.length), `${plural(used, "tool")} used, ${number(failed)} failed${among}.`),
    card("Misses", atLeast(misses), `First calls of tools that the list did not have${among}: the client searched for them or called them by name.`),
    card("Searches", atLeast(searches.length), `Searches of the client for hidden tools${among}.`),
  ];
}

function tokens(list) {
  if (list.shown_tokens === null || !list.available_tokens) return "";
  return `${short(list.shown_tokens)} of ${short(list.available_tokens)} tokens (${percent(list.shown_tokens / list.available_tokens)}).`;
}

function factList(view, model) {
  const { session, work_session: work } = view.detail;
  const rows = [];
  const fact = (name, value) => value !== null && value !== undefined && rows.push(h("dt", null, name), h("dd", null, value));
  if (session) {
    fact("Client", clientName(session));
    fact("User", session.principal);
    fact("Profile", session.profile);
    fact("Protocol", `${session.protocol}, ${session.transport.replace(/_/g, " ")}`);
    fact("Connected", [timeNode(session.started_at), " (", agoNode(session.started_at), ")"]);
    fact("Ended", session.ended_at
      ? [timeNode(session.ended_at), `, after ${duration((Date.parse(session.ended_at) - Date.parse(session.started_at)) * 1_000)}`]
      : null);
    fact("Looks for hidden tools (estimate)", session.looks_for_hidden_tools === null
      ? "not known yet"
      : `${percent(session.looks_for_hidden_tools)} probable, by what this client did in all its sessions. Clients that do not search get longer lists.`);
    fact(session.work_sessions.length === 1 ? "Work session" : "Work sessions", session.work_sessions.length
      ? session.work_sessions.map((one) => h("div", null, h("a", { href: `#/sessions/${encodeURIComponent(one)}`, title: one }, "begun ", dayTimeNode(beginningOf(one)))))
      : null);
  } else if (work) {
    fact("Client", work.client === null ? null : clientName(work));
    fact("User", work.principal);
    fact("Protocol", work.protocol);
    fact("Newest connection", work.session === null ? null : h("a", { href: `#/sessions/${encodeURIComponent(work.session)}`, class: "mono" }, work.session));
    fact("First request", timeNode(work.started_at));
    fact("Last request", [timeNode(work.last_active_at), " (", agoNode(work.last_active_at), ")"]);
  }
  const policy = view.forecast?.policy ?? model.newest?.policy;
  fact("Its lists", POLICIES[policy] ?? policy);
  fact("Identifier", h("span", { class: "mono" }, view.id));
  return h("dl", { class: "facts" }, rows);
}

function nextParts(view) {
  const { forecast: predicted, noForecast } = view;
  if (!predicted) return noForecastNotice(noForecast);
  const likely = predicted.tools.slice(0, N_NEXT);
  return [
    bars({
      label: "Most probable next calls", unit: "%", max: 1,
      rows: likely.map((tool) => ({
        label: toolName(tool),
        value: tool.probability, title: plain(tool.sentence), kind: tool.shown ? null : "muted",
      })),
    }),
    h("p", { class: "small dim" },
      `The probability that the next tool is in the list is ${percent(predicted.mass)}. ${BANDS[predicted.band] ?? ""}`,
      likely.some((tool) => !tool.shown) ? " Grey bars are hidden tools." : ""),
  ];
}

function noForecastNotice({ detail }) {
  // The reason may be a key of the configuration, which follows below.
  const reason = detail.includes("filtering.") ? "The lists of this session do not follow predictions." : `${detail.charAt(0).toUpperCase()}${detail.slice(1)}.`;
  return notice("info", `${reason} Predictions need a client that asked for its list, learning, and in the section [filtering] of the configuration:`,
    h("code", null, 'strategy = "prediction"'));
}

function reasonText(view, { newest, tools, nListed }) {
  const because = view.forecast?.list_because ?? newest?.because ?? (newest ? selectionWords(newest) : null);
  const parts = because ? [h("strong", null, because), " "] : [];
  if (view.forecast) {
    const cut = view.forecast.tools.length < view.forecast.available_tools
      ? ` Here are the ${number(view.forecast.tools.length)} most likely of ${number(view.forecast.available_tools)}.` : "";
    const onDemand = view.forecast.policy === "hints"
      ? "This client loads tools on demand: its list has every tool, and riglm marks those to load at once. " : "";
    const hidden = nListed < tools.length ? "Hidden tools are not lost: the client finds them by a search, and can call them by name." : "";
    return [parts, onDemand, hidden, cut];
  }
  if (!newest) return [parts, "Without a list there is nothing to explain yet."];
  const why = view.noForecast.status === 409
    ? "Without predictions, tools have no probabilities."
    : "Probabilities are kept only for open sessions.";
  return [parts, `${why} Here are the tools of the newest list, those that it left out, and those that were called without being in it.`];
}

const MODES = {
  prediction: "the most likely tools", context: "tools for the context of the client", general: "a typical order",
  frequency: "the most called tools", pool: "the default pool", names: "the patterns of the operator", all: "all tools",
};

function selectionWords(list) {
  if (!list.mode) return "An older version of riglm recorded this list without its reason.";
  return `Selected: ${MODES[list.mode] ?? list.mode}${list.reason ? ` (${list.reason})` : ""}.`;
}

function toolTable(view, params, reload) {
  return table({
    label: "Tools of the session",
    className: "bounded stacked",
    filter: true,
    filterBy: params.query.get("text") ?? "",
    onFilter: (text) => params.set({ text }),
    sortBy: params.query.get("sort") ?? "-probability",
    onSort: (sort) => params.set({ sort: sort === "-probability" ? null : sort }),
    empty: "No tool to show.",
    columns: [
      { key: "tool", label: "Tool", value: (row) => `${row.upstream} ${row.tool}`, cell: (row) => toolName(row) },
      {
        key: "because", label: view.forecast ? "In its list now, and why" : "In its newest list, and why",
        value: (row) => `${row.isListed ? "listed" : "hidden"} ${whyWords(row)[0]} ${NEXT[row.shown_because] ?? ""}`,
        cell: (row) => h("div", { class: "why", title: whyWords(row)[1] },
          row.isListed ? tag("listed", "ok") : tag("hidden"), " ",
          NEXT[row.shown_because] ? [tag(NEXT[row.shown_because], "info"), " "] : null,
          whyWords(row)[0]),
      },
      view.forecast ? {
        key: "probability", label: "Next call, by the prediction now", title: "The probability that it is called next, and the reasons. It follows each call; the list does not.",
        value: (row) => row.probability,
        cell: (row) => h("div", { class: "explanation", title: plain(row.sentence) }, percent(row.probability), " ",
          h("span", { class: "small dim" }, prose(row.sentence.replace(/^.*? likely: /, "")))),
      } : null,
      { key: "calls", label: "Calls", align: "end", title: "Calls in the timeline of this session", cell: (row) => number(row.calls) },
      {
        key: "decide", label: "Decide", sort: false, value: () => "",
        cell: (row) => h("div", { class: "row tight" }, OFFERED.map((action) => h("button", {
          type: "button", class: "btn small", disabled: denial() !== null, title: denial() ?? ACTIONS[action].effect,
          "aria-label": `${ACTIONS[action].label} ${row.tool.slice(0, 100)}`,
          on: { click: () => decide({ tool: row, action, session: sessionOf(view), client: clientOf(view), profile: view.detail.session?.profile, onSaved: reload }) },
        }, ACTIONS[action].label))),
      },
    ].filter(Boolean),
  });
}

function whyWords(row) {
  const { shown_because: because, mode, isListed } = row;
  if (BECAUSE[because]) return BECAUSE[because];
  const { listed, hidden } = SELECTED[mode] ?? SELECTED_SOMEHOW;
  if (row.source === "unlisted") return ["Called, but listed by no upstream", "No list could have it."];
  if (row.source) return [`${hidden[0]}; called all the same: ${sourceWords(row)[0]}`, `${hidden[1]} ${HIDDEN_THEN}`];
  if (isListed) return row.calls > 0 && KEEP_USED.includes(mode) ? USED : listed;
  return [hidden[0], `${hidden[1]} ${because ? HIDDEN_NOW : HIDDEN_THEN}`];
}

/** Returns from where the client knew a called tool: the words, the kind of their tag, and more about it. */
function sourceWords({ source, named_by: by }) {
  return source === "found" && by !== "search" ? NAMED : SOURCES[source] ?? [source, ""];
}

/** Returns when a work session began: its identifier (UUID version 7) begins with the milliseconds. */
function beginningOf(id) {
  return new Date(parseInt(id.replaceAll("-", "").slice(0, 12), 16)).toISOString();
}

/** Explains the words that the table uses. */
function legend(model) {
  const words = new Map(model.tools.map(whyWords));
  return [...words].map(([word, meaning]) => [h("dt", null, word), h("dd", null, meaning)]);
}

/** Returns what is recorded of a session: of its connection, or of the newest one of a work session. */
function recordOf({ detail }) {
  return detail.session ?? detail.work_session;
}

function sessionOf(view) {
  const record = recordOf(view);
  return {
    id: view.forecast?.session ?? view.id,
    isOver: record.state === "past",
    hasSharedList: record.protocol === SHARED_LISTS,
  };
}

function clientOf(view) {
  const record = recordOf(view);
  return { id: record.client_id, name: record.client === null ? null : clientName(record) };
}

function overrideParts(view, model, live) {
  const client = clientOf(view);
  const own = ownIds(view);
  const applying = view.overrides.filter(({ scope }) => scope.kind === "global"
    || (scope.kind === "session" && own.has(scope.id))
    || (scope.kind === "client" && scope.id === client.id)
    || (scope.kind === "profile" && scope.id === view.detail.session?.profile));
  if (applying.length === 0) {
    return h("p", { class: "dim" }, "None. With the buttons in the table above, you can pin, exclude or forbid a tool.");
  }
  const waiting = new Set(model.tools.filter((tool) => NEXT[tool.shown_because] && tool.shown_because !== "became_likely")
    .flatMap(({ name, upstream, tool }) => [name, tool, `${upstream}__${tool}`]));
  return decisionList(applying, {
    client,
    label: (one) => h("span", { class: "mono cut", title: one.tool }, one.tool),
    isPending: (one) => one.action !== "forbid" && waiting.has(one.tool),
    reload: () => live.now(),
  });
}

function timelineItems(view, model, draw) {
  const entries = view.detail.timeline.filter((entry) => view.entries === "all" || entry.type === view.entries);
  if (entries.length === 0) return h("li", { class: "dim" }, "Nothing is recorded yet. Entries appear by themselves.");
  const keys = new Map();
  const items = entries.map((entry) => {
    // Two lists may have the same time and number.
    const base = entry.type === "call" ? entry.id : `${entry.type}-${entry.at}-${entry.epoch ?? ""}`;
    const n = keys.get(base) ?? 0;
    keys.set(base, n + 1);
    const key = `${base}-${n}`;
    const [word, body] = {
      call: () => ["call", callParts(entry)],
      search: () => ["search", searchParts(entry)],
      list: () => ["list", listParts(entry, { view, model, key, draw })],
    }[entry.type]();
    return h("li", { "data-key": key }, timeNode(entry.at), h("span", null, tag(word, entry.type === "list" ? "info" : "")), h("div", { class: "stack tight" }, body));
  });
  return view.order === "newest" ? items.reverse() : items;
}

function callParts(call) {
  const [words, kind, more] = sourceWords(call);
  const failure = FAILURES[call.outcome];
  return [
    h("div", { class: "row" },
      toolName(call),
      call.outcome === null ? tag("running", "info") : tag(call.outcome, OUTCOMES[call.outcome] ?? ""),
      call.duration_us === null ? null : h("span", { class: "dim small", title: call.wait_us ? `and ${duration(call.wait_us)} waiting for a connection` : null }, duration(call.duration_us)),
      call.source === "shown" ? null : tag(words, kind, more),
      call.is_miss ? tag("miss", "warn", MISS) : null),
    call.error ? h("q", { class: "small" }, call.error) : failure ? h("div", { class: "small dim" }, failure) : null,
  ];
}

function searchParts(search) {
  return [
    h("div", { class: "row" },
      search.query === null
        ? h("span", { class: "dim" }, "Words not stored: see ", h("code", null, "logging.include_arguments"))
        : h("q", null, search.query),
      tag(matchWords(search.quality), QUALITIES[search.quality] ?? ""),
      h("span", { class: "dim small" }, `${plural(search.results.length, "result")} in ${duration(search.duration_us)}`)),
    search.results.length ? h("div", { class: "tools-inline" }, search.results.map((tool) => toolName(tool))) : null,
  ];
}

function listParts(list, { view, model, key, draw }) {
  const at = model.lists.indexOf(list);
  const before = model.lists[at - 1];
  const isOpen = view.openLists.has(key);
  const toggle = (event) => {
    const { open } = event.currentTarget;
    if (open === view.openLists.has(key)) return;
    if (open) view.openLists.add(key);
    else view.openLists.delete(key);
    draw();
  };
  return [
    h("div", null, h("strong", null, `${number(list.tools.length)} of ${plural(list.available_tools, "tool")}`),
      // Without the oldest entries, the first ones are not known.
      ` ${tokens(list)} `, view.detail.is_cut ? null : h("span", { class: "dim" }, `List ${number(at + 1)} of ${number(model.lists.length)}.`)),
    h("div", { class: "small" }, list.because ?? selectionWords(list), list.is_fallback ? [" ", tag("fallback", "warn")] : null),
    before ? h("div", { class: "small dim" }, difference(before, list)) : null,
    h("details", { on: { toggle } }, h("summary", { class: "small" }, "Tools of this list"),
      isOpen ? h("div", { class: "tools-inline" }, list.tools.map((tool) => toolName(tool))) : null),
  ];
}

function difference(before, list) {
  const old = new Set(before.tools.map(keyOf));
  const current = new Set(list.tools.map(keyOf));
  const added = list.tools.filter((tool) => !old.has(keyOf(tool)));
  const removed = before.tools.filter((tool) => !current.has(keyOf(tool)));
  if (!added.length && !removed.length) return "The same tools as in the list before.";
  const few = (tools) => (tools.length > 6 ? plural(tools.length, "tool") : tools.map((tool, i) => [i ? " " : "", toolName(tool)]));
  return [added.length ? ["New: ", few(added), ". "] : null, removed.length ? ["No longer listed: ", few(removed), "."] : null];
}

function olderParts(view, live) {
  if (!view.detail.is_cut) return null;
  if (view.limit >= MOST_ENTRIES) {
    return h("p", { class: "dim small" }, `Older entries are not shown: at most ${number(MOST_ENTRIES)} of each kind. riglm calls has them.`);
  }
  return h("button", {
    type: "button", class: "btn",
    on: { click: async () => { view.limit = MOST_ENTRIES; await live.now(); } },
  }, "Load older entries");
}
