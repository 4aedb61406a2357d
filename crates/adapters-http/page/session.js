// One session: its lists, calls and searches, why each tool is listed or hidden, and what comes next.

import { ApiError, del, get, post, scopes } from "./api.js";
import { bars } from "./chart.js";
import { choice, clear, confirmAction, empty, h, jsonLink, notice, openDialog, section, tag, toast, toolName, update } from "./dom.js";
import { ago, agoNode, duration, now, number, percent, plural, short, timeNode } from "./format.js";
import { watch } from "./live.js";
import { table } from "./table.js";

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

/** What `shown_because` means: in short, and what follows from it. */
const BECAUSE = {
  pinned: ["Pinned by an operator", "It is always listed, before all others."],
  included: ["Included by an operator", "A decision puts it into the list."],
  whole_list: ["The list has every tool", "Nothing was left out, except what operators hide."],
  chosen: ["Likely, or used before", "It was likely when the list was selected, or the session has used it."],
  excluded: ["Hidden by an operator", "A decision, or write gating, hides it."],
  not_chosen: ["Less likely than the listed tools", "Others were more likely to be used, or the list had no room. A search finds it, and it can be called. To list it always, pin it."],
  not_listed: ["The session has no list yet", "The client has not asked for its tools."],
};

const BANDS = {
  show_all: "The confidence is low, so all tools are shown.",
  search_prominent: "The confidence is moderate, so the search comes first in the list.",
  filter: "The confidence is high.",
};

const SOURCES = {
  shown: ["in its list", ""],
  found: ["found by a search", "info"],
  hidden: ["hidden, called by name", "warn"],
  unlisted: ["listed by no upstream", "warn"],
};

const OUTCOMES = {
  ok: "ok", cached: "ok", error: "bad", timeout: "bad", refused: "bad", cancelled: "warn", unknown: "warn",
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
  const tools = toolTable(view, params);
  const words = h("div");
  const timelineControls = h("div", { class: "row" });
  const timeline = h("ol", { class: "timeline" });
  const older = h("div", { class: "row" });
  const overrides = h("div", { class: "stack" });
  clear(root, head, numbers,
    h("div", { class: "grid2" },
      nextSection,
      section("About this session", null, facts)),
    section("Tools", null, reason, toolControls, tools, words),
    section("Decisions about tools", "Those of operators that apply to this session.", overrides),
    section("Timeline", "Lists, calls and searches. A miss is the first call of a tool that the list did not have.",
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
      scopes().has("override") ? null : h("span", { class: "dim small" }, "This token has no scope override, so it may not decide about tools."));
    const rows = model.tools.filter((tool) => view.tools === "all" || tool.isListed === (view.tools === "listed"));
    tools.update(rows);
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
    update(overrides, overrideParts(view, live));
  }

  const load = async () => {
    const [detail, { overrides: all }] = await Promise.all([
      get(`/sessions/${encodeURIComponent(id)}?limit=${view.limit}`),
      get("/overrides"),
    ]);
    // A session that is over has no predictions, and asking for them is an error.
    const predicted = detail.session?.state === "past"
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

function isOfSession(view, event) {
  const own = new Set([view.id, view.forecast?.session, ...(view.detail?.session?.work_sessions ?? [])]);
  return own.has(event.session) || own.has(event.work_session);
}

const keyOf = ({ upstream, tool }) => `${upstream}\n${tool}`;

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
    tools = predicted.tools.map((tool) => ({ ...tool, id: tool.name, isListed: tool.shown, calls: used.get(keyOf(tool))?.n ?? 0 }));
  } else {
    const listed = new Map((newest?.tools ?? []).map((tool) => [keyOf(tool), { ...tool, isListed: true }]));
    for (const [key, call] of used) {
      if (!listed.has(key)) listed.set(key, { upstream: call.upstream, tool: call.tool, isListed: false, source: call.source });
    }
    tools = [...listed].map(([key, tool]) => ({ ...tool, id: key, calls: used.get(key)?.n ?? 0 }));
  }
  return { lists, calls, searches, newest, tools, nListed: tools.filter((tool) => tool.isListed).length };
}

function headParts(view) {
  const { session } = view.detail;
  const isOpen = session ? session.state === "active" : view.forecast !== null;
  return [
    h("h1", { class: "cut" }, session ? `Session of ${session.client || "a client without a name"}` : "Work session"),
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
      newest ? `${tokens(newest)} ${isCut ? "At least " : ""}${plural(lists.length, "list")} so far.` : "No list is recorded for it."),
    card("Calls", session ? number(session.calls) : atLeast(calls.length), `${plural(used, "tool")} used, ${number(failed)} failed${among}.`),
    card("Misses", atLeast(misses), `First calls of tools that the list did not have${among}.`),
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
    fact("Client", session.client || "(no name)");
    fact("User", session.principal);
    fact("Profile", session.profile);
    fact("Protocol", `${session.protocol}, ${session.transport.replace(/_/g, " ")}`);
    fact("Connected", [timeNode(session.started_at), " (", agoNode(session.started_at), ")"]);
    fact("Ended", session.ended_at
      ? [timeNode(session.ended_at), `, after ${duration((Date.parse(session.ended_at) - Date.parse(session.started_at)) * 1_000)}`]
      : null);
    fact("Looks for hidden tools", session.looks_for_hidden_tools === null
      ? "not known yet"
      : `${percent(session.looks_for_hidden_tools)} probable. Clients that do not search get longer lists.`);
    fact(session.work_sessions.length === 1 ? "Work session" : "Work sessions", session.work_sessions.length
      ? session.work_sessions.map((one) => h("div", null, h("a", { class: "mono", href: `#/sessions/${encodeURIComponent(one)}` }, one)))
      : null);
  } else if (work) {
    fact("What it is", "The calls of a client that belong to one task, possibly over several connections.");
    fact("User", work.principal);
    fact("First request", timeNode(work.started_at));
    fact("Last request", [timeNode(work.last_active_at), " (", agoNode(work.last_active_at), ")"]);
  }
  fact("List policy", view.forecast?.policy ?? model.newest?.policy);
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
        value: tool.probability, title: tool.sentence, kind: tool.shown ? null : "muted",
      })),
    }),
    h("p", { class: "small dim" },
      `The probability that the next tool is in the list is ${percent(predicted.mass)}. ${BANDS[predicted.band] ?? ""}`,
      likely.some((tool) => !tool.shown) ? " Grey bars are hidden tools." : ""),
  ];
}

function noForecastNotice({ detail }) {
  const reason = `${detail.charAt(0).toUpperCase()}${detail.slice(1)}.`;
  return notice("info", `${reason} Predictions need filtering.strategy = "prediction", learning, and a client that asked for its list.`);
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
    ? "Without predictions, hidden tools are not explained."
    : "Hidden tools are explained only while the session is open.";
  return [parts, `${why} Here are the tools of the newest list, and those that were called without being in it.`];
}

const MODES = {
  prediction: "the most likely tools", context: "tools for the context of the client", general: "a typical order",
  frequency: "the most called tools", pool: "the default pool", names: "the patterns of the operator", all: "all tools",
};

function selectionWords(list) {
  if (!list.mode) return "An older version of riglm recorded this list without its reason.";
  return `Selected: ${MODES[list.mode] ?? list.mode}${list.reason ? ` (${list.reason})` : ""}.`;
}

function toolTable(view, params) {
  const mayDecide = () => scopes().has("override");
  return table({
    label: "Tools of the session",
    className: "bounded",
    filter: true,
    filterBy: params.query.get("text") ?? "",
    onFilter: (text) => params.set({ text }),
    sortBy: params.query.get("sort") ?? "-probability",
    onSort: (sort) => params.set({ sort: sort === "-probability" ? null : sort }),
    empty: "No tool to show.",
    columns: [
      { key: "tool", label: "Tool", value: (row) => `${row.upstream} ${row.tool}`, cell: (row) => toolName(row) },
      {
        key: "because", label: "Listed or hidden, and why",
        value: (row) => `${row.isListed ? "listed" : "hidden"} ${whyWords(row)[0]} ${row.sentence ?? ""}`,
        cell: (row) => h("div", { class: "explanation" },
          h("div", { class: "row tight", title: whyWords(row)[1] }, row.isListed ? tag("listed", "ok") : tag("hidden"), whyWords(row)[0]),
          h("div", { class: "small dim", title: row.sentence }, row.sentence || whyWords(row)[1])),
      },
      {
        key: "probability", label: "Next call", align: "end", title: "The probability that it is called next",
        value: (row) => row.probability, cell: (row) => percent(row.probability),
      },
      { key: "calls", label: "Calls", align: "end", title: "Calls in the timeline of this session", cell: (row) => number(row.calls) },
      {
        key: "decide", label: "Decide", sort: false, value: () => "",
        cell: (row) => h("div", { class: "row tight" }, ["pin", "exclude", "forbid"].map((action) => h("button", {
          type: "button", class: "btn small", disabled: !mayDecide(),
          title: mayDecide() ? ACTIONS[action].effect : "This token has no scope override.",
          "aria-label": `${ACTIONS[action].label} ${row.tool.slice(0, 100)}`,
          on: { click: () => decide({ tool: row, action, session: sessionOf(view), client: clientOf(view) }) },
        }, ACTIONS[action].label))),
      },
    ],
  });
}

function whyWords(row) {
  if (row.shown_because) return BECAUSE[row.shown_because] ?? [row.shown_because, ""];
  if (row.isListed) return ["In the newest list", ""];
  return ["Called, and not in the newest list", `At the first call: ${(SOURCES[row.source] ?? [row.source])[0]}.`];
}

/** Explains the words that the table uses. */
function legend(model) {
  const words = [...new Set(model.tools.map((tool) => tool.shown_because))].filter((word) => BECAUSE[word]);
  if (words.length === 0) return null;
  return h("details", { class: "small" }, h("summary", null, "What the reasons mean"),
    h("dl", { class: "facts" }, words.map((word) => [h("dt", null, BECAUSE[word][0]), h("dd", null, BECAUSE[word][1])])));
}

function sessionOf(view) {
  if (view.detail.session?.state === "past") return null;
  return {
    id: view.forecast?.session ?? view.id,
    hasSharedList: view.detail.session?.protocol === SHARED_LISTS,
  };
}

function clientOf(view) {
  const { session, work_session: work } = view.detail;
  return session
    ? { id: session.client_id, name: session.client }
    : { id: work?.client_id, name: "" };
}

const ACTIONS = {
  pin: { label: "Pin", effect: "Always listed, before all others." },
  include: { label: "Include", effect: "Listed, wherever it fits." },
  exclude: { label: "Exclude", effect: "Not listed. A search still finds it, and it can be called." },
  forbid: { label: "Forbid", effect: "Not listed and not found, and calls of it are refused." },
};

const ENDS = [
  { hours: 0, label: "Until it is removed" }, { hours: 1, label: "For an hour" },
  { hours: 24, label: "For a day" }, { hours: 168, label: "For a week" },
];

/**
 * Opens the dialog for a decision about a tool. `tool` has its `upstream` and `tool`, and its `name`
 * if clients see another one; `session` (`{ id }`) and `client` (`{ id, name }`) may be left out.
 */
function decide({ tool, action, session, client }) {
  const places = [
    session?.id ? { value: "session", label: "This session", body: { kind: "session", id: session.id } } : null,
    client?.id ? { value: "client", label: client.name ? `All sessions of the client ${client.name.slice(0, 100)}` : "All sessions of this client", body: { kind: "client", id: client.id } } : null,
    { value: "global", label: "All clients", body: { kind: "global" } },
  ].filter(Boolean);
  const reason = h("input", { type: "text", id: "decide-reason", maxlength: "1000", autocomplete: "off" });
  const end = h("select", { id: "decide-end" }, ENDS.map(({ hours, label }) => h("option", { value: String(hours) }, label)));
  const error = h("p", { class: "form-error", role: "alert" });
  const submit = h("button", { type: "submit", class: "btn primary" }, "Save the decision");
  const usualPlace = places[session?.hasSharedList && action !== "forbid" ? 1 : 0] ?? places[0];
  const radios = (name, options, chosen) => options.map(({ value, label, effect }) => h("label", null,
    h("input", { type: "radio", name, value, checked: value === chosen }),
    h("span", null, label, effect ? h("span", { class: "dim" }, `: ${effect.charAt(0).toLowerCase()}${effect.slice(1)}`) : null)));
  // Where lists do not depend on a session, riglm refuses all other decisions for one session.
  const limitPlaces = () => {
    const own = form.querySelector("input[value=session]");
    if (!own) return;
    own.disabled = session.hasSharedList && new FormData(form).get("action") !== "forbid";
    if (own.disabled && own.checked) form.querySelector("input[name=scope]:enabled").checked = true;
  };
  const form = h("form", { class: "stack", on: { submit: save, change: limitPlaces } },
    h("fieldset", null, h("legend", null, "What"),
      radios("action", Object.entries(ACTIONS).map(([value, one]) => ({ value, ...one })), action)),
    h("fieldset", null, h("legend", null, "For whom"), radios("scope", places, usualPlace.value)),
    session?.hasSharedList
      ? h("p", { class: "dim small" }, `With protocol ${SHARED_LISTS}, lists do not depend on a session. For this session alone, only "Forbid" works.`)
      : null,
    h("div", { class: "field" }, h("label", { for: "decide-end" }, "How long"), end),
    h("div", { class: "field" }, h("label", { for: "decide-reason" }, "Reason (optional, for the audit trail)"), reason),
    error,
    h("div", { class: "row end" }, submit));
  const dialog = openDialog("Decide about a tool",
    h("p", { class: "mono" }, h("span", { class: "dim" }, `${tool.upstream} `), tool.tool.slice(0, 500)),
    form);
  limitPlaces();
  form.querySelector("input:checked")?.focus();

  async function save(event) {
    event.preventDefault();
    const { action: decided, scope } = Object.fromEntries(new FormData(form));
    const hours = Number(end.value);
    const body = { tool: tool.name ?? tool.tool, action: decided, scope: places.find(({ value }) => value === scope).body };
    if (hours) body.expires_at = new Date(now() + hours * 3_600_000).toISOString();
    if (reason.value.trim()) body.reason = reason.value.trim();
    submit.disabled = true;
    try {
      const made = await post("/override", body);
      dialog.close();
      toast(made.note ?? "Saved. Lists follow within two seconds.");
    } catch (failure) {
      clear(error, failure.detail ?? failure.message);
      submit.disabled = false;
    }
  }
}

function overrideParts(view, live) {
  const client = clientOf(view);
  const own = new Set([view.id, view.forecast?.session, view.detail.session?.id, ...(view.detail.session?.work_sessions ?? [])]);
  const applying = view.overrides.filter(({ scope }) => scope.kind === "global"
    || (scope.kind === "session" && own.has(scope.id))
    || (scope.kind === "client" && scope.id === client.id)
    || (scope.kind === "profile" && scope.id === view.detail.session?.profile));
  if (applying.length === 0) {
    return h("p", { class: "dim" }, "None. With the buttons in the table above, you can pin, exclude or forbid a tool.");
  }
  return h("ul", { class: "muted-list" }, applying.map((one) => h("li", { "data-key": one.id },
    tag(one.action, one.action === "forbid" ? "bad" : "info", ACTIONS[one.action]?.effect),
    h("span", { class: "mono cut", title: one.tool }, one.tool),
    h("span", null, scopeWords(one.scope, client)),
    h("span", { class: "dim small" },
      one.reason ? `"${one.reason}", ` : "", `by ${one.created_by}, `, agoNode(one.created_at),
      one.expires_at ? [", ends ", h("span", null, ago(one.expires_at))] : ""),
    h("button", {
      type: "button", class: "btn small", disabled: !scopes().has("override"),
      title: scopes().has("override") ? null : "This token has no scope override.",
      "aria-label": `Remove the decision about ${one.tool.slice(0, 100)}`,
      on: { click: () => remove(one, live) },
    }, "Remove"))));
}

function scopeWords({ kind, id }, client) {
  return {
    session: "for this session",
    client: `for the client ${client.name || id}`,
    profile: `for the profile ${id}`,
    global: "for all clients",
  }[kind] ?? kind;
}

async function remove(one, live) {
  const isSure = await confirmAction(`Remove the decision "${one.action}" about ${one.tool.slice(0, 200)}?`, "Remove");
  if (!isSure) return;
  await del(`/overrides/${encodeURIComponent(one.id)}`);
  toast("Removed. Lists follow within two seconds.");
  await live.now();
}

function timelineItems(view, model, draw) {
  const previous = new Map(model.lists.map((list, i) => [list, model.lists[i - 1] ?? null]));
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
      list: () => ["list", listParts(entry, previous.get(entry), key, view, draw)],
    }[entry.type]();
    return h("li", { "data-key": key }, timeNode(entry.at), h("span", null, tag(word, entry.type === "list" ? "info" : "")), h("div", { class: "stack tight" }, body));
  });
  return view.order === "newest" ? items.reverse() : items;
}

function callParts(call) {
  const [words, kind] = SOURCES[call.source] ?? [call.source, ""];
  return h("div", { class: "row" },
    toolName(call),
    call.outcome === null ? tag("running", "info") : tag(call.outcome, OUTCOMES[call.outcome] ?? ""),
    call.duration_us === null ? null : h("span", { class: "dim small", title: call.wait_us ? `and ${duration(call.wait_us)} waiting for a connection` : null }, duration(call.duration_us)),
    call.source === "shown" ? null : tag(words, kind),
    call.is_miss ? tag("miss", "warn", "The first call of a tool that the list did not have") : null);
}

function searchParts(search) {
  return [
    h("div", { class: "row" },
      search.query === null
        ? h("span", { class: "dim" }, "Words not stored")
        : h("q", null, search.query),
      tag(`${search.quality} quality`, QUALITIES[search.quality] ?? ""),
      h("span", { class: "dim small" }, `${plural(search.results.length, "result")} in ${duration(search.duration_us)}`)),
    search.results.length ? h("div", { class: "tools-inline" }, search.results.map((tool) => toolName(tool))) : null,
  ];
}

function listParts(list, before, key, view, draw) {
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
      ` ${tokens(list)} `, h("span", { class: "dim" }, `List ${number(list.epoch)}, policy ${list.policy}.`)),
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
