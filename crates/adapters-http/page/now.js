// The first screen: what riglm does at present, and what it did in a period.

import { get } from "./api.js";
import { choice, clear, empty, h, jsonLink, notice, prose, section, tag, toolName, update } from "./dom.js";
import { agoNode, number, percent, plural, short, time, timeNode } from "./format.js";
import { mayCount, subscribe, watch } from "./live.js";
import { GROSS, LIST_COLUMNS, NET, demoNotice, matchWords } from "./sessions.js";
import { table } from "./table.js";

export const title = "Now";

const PERIODS = [1, 7, 30];
const MAX_FEED = 8;

/** The events that change what this screen shows. */
const CHANGES = [
  "session_introduced", "session_closed", "tool_called", "request_ended", "list_shown", "searched",
  "tools_seen", "upstream_changed", "pause_changed", "config_changed", "change_held",
];
/** riglm computes the numbers every five seconds at most. */
const SETTLE_MS = 5_500;

/** Fills `root`. The view option `days` is the period. */
export async function show(root, params) {
  const wanted = Number(params.query.get("days"));
  const view = { days: PERIODS.includes(wanted) ? wanted : 1 };
  const head = h("div", { class: "screen-head" });
  const notices = h("div", { class: "stack" });
  const numbers = h("div", { class: "cards" });
  const period = h("p", { class: "dim small" });
  const sessions = sessionTable();
  const more = h("p", { class: "small" });
  const upstreams = h("ul", { class: "muted-list" });
  const feed = h("ol", { class: "muted-list feed" });
  clear(root, head,
    h("p", { class: "lead" }, "riglm stands between MCP clients and their servers. It learns which tools a session needs, "
      + "lists those, and lets the client search for all others. So prompts carry fewer tool definitions."),
    notices, numbers, period,
    section("Open sessions", "A row is one connection of a client; it may have several work sessions. The numbers count since it began, and not only in the chosen period. Open one to see why each tool is listed or hidden.", sessions, more),
    h("div", { class: "grid2" },
      section("Upstreams", "The MCP servers behind riglm.", upstreams),
      section("Happening now", "Calls, searches and lists since you opened this view.", feed)));

  const load = async () => {
    const { days } = view;
    const answer = await get(`/overview?days=${days}`);
    // An older answer must not replace the one for a period that was chosen since.
    if (days !== view.days) return;
    update(head, headParts(view, pick));
    update(notices, noticesOf(answer));
    update(numbers, cards(answer, days));
    update(period, periodText(answer));
    sessions.update(answer.open_sessions ?? []);
    sessions.hidden = answer.open_sessions === null;
    update(more, sessions.hidden ? "Sessions are not known, because recording is off." : null,
      answer.more_open_sessions ? h("a", { href: "#/sessions?state=active" }, "More sessions are open: show all") : null);
    update(upstreams, answer.upstreams.map(upstreamItem));
  };
  const live = watch(CHANGES, load, { settle: SETTLE_MS, isRelevant: mayCount });
  const pick = async (days) => {
    view.days = days;
    params.set({ days: days === 1 ? null : days });
    update(head, headParts(view, pick));
    await live.now();
  };
  const stopFeed = follow(feed);
  try {
    await load();
  } catch (error) {
    live.stop();
    stopFeed();
    throw error;
  }
  return { stop() { live.stop(); stopFeed(); } };
}

function headParts(view, pick) {
  return [
    h("h1", null, "Now"),
    choice("Period", PERIODS.map((days) => ({ value: days, label: days === 1 ? "24 hours" : `${days} days` })), view.days, pick),
    jsonLink(`/overview?days=${view.days}`),
  ];
}

function noticesOf(answer) {
  const shown = [];
  if (answer.paused) {
    const end = answer.paused_until ? `The pause ends at ${time(answer.paused_until)}.` : "";
    shown.push(["warning", `riglm is paused: every list has all tools, and safeguards are off. ${end}`, "riglm resume"]);
  }
  if (!answer.recording) {
    shown.push(["warning", "Recording is off: riglm stores no calls and learns nothing, and this page has no numbers. Remove recording.mode = \"off\" from the configuration."]);
  }
  if (answer.strategy === "none") {
    shown.push(["info", "Lists have all tools. To list only those that a session probably needs, write this into the section [filtering] of the configuration:", 'strategy = "prediction"']);
  } else if (answer.strategy !== "prediction") {
    shown.push(["info", "Lists follow the names of tools. For lists that follow what was learned, write this into the section [filtering] of the configuration:", 'strategy = "prediction"']);
  }
  return [demoNotice(answer.open_sessions), shown.map(([kind, words, command]) => notice(kind, words, command ? h("code", null, command) : null))];
}

function card(label, big, ...more) {
  return h("section", { class: "card" }, h("h2", null, label), h("p", { class: "big" }, big),
    more.map((line) => h("p", { class: "small dim" }, line)));
}

function cards(answer, days) {
  const { totals } = answer;
  if (!totals) return [];
  if (totals.sessions === 0 && totals.calls === 0) return [nothingYet(answer, days)];
  return [listCard(answer), savedCard(totals), coverageCard(totals), callCard(totals)];
}

function nothingYet({ upstreams, open_sessions: open }, days) {
  if (open?.length) {
    return empty("A client is connected, and has not listed or called a tool yet", "Give it a task. Its list and its calls appear here by themselves.");
  }
  if (days < 30 && upstreams.some((upstream) => upstream.state === "available" && upstream.tool_set)) {
    return empty(`No client asked for tools in the last ${days === 1 ? "24 hours" : `${days} days`}`,
      "Start a client that is connected to riglm, or choose a longer period above. The command riglm clients lists your clients, and the address for others.",
      h("a", { class: "btn", href: "#/setup" }, "Check the set-up"));
  }
  return empty("Connect your first client",
    h("span", null, "Run ", h("code", null, "riglm setup"), " in a terminal: it adds riglm to your MCP clients. ",
      h("code", null, "riglm clients"), " lists them, and the address of riglm for others. Then restart the client and give it a task."),
    h("a", { class: "btn", href: "#/setup" }, "Check the set-up"));
}

/** Returns a mean with one decimal only where it matters. */
const mean = (sum, n) => (n ? short(sum / n) : "–");

/** Returns what the numbers count. */
const countedWords = (answer) => `${plural(answer.totals.sessions, "work session")} on ${plural(answer.counted_sessions, "connection")}`;

function listCard(answer) {
  const { totals } = answer;
  const { sessions } = totals;
  return card("Tools in a list",
    sessions ? [mean(totals.shown_tools, sessions), h("small", null, ` of ${mean(totals.available_tools, sessions)}`)] : "–",
    sessions
      ? `Average of the newest lists of ${countedWords(answer)}; ${number(totals.sessions_hiding)} of these lists hide tools. Tools of riglm itself, such as the search, come on top.`
      : "No list was recorded.");
}

function savedCard(totals) {
  const share = totals.available_tokens ? totals.shown_tokens / totals.available_tokens : null;
  return card("Tool definitions in a prompt",
    share === null ? "–" : [percent(1 - share), h("small", null, " fewer tokens")],
    share === null
      ? "No tokens were counted."
      : `Lists have ${short(totals.shown_tokens / totals.sessions)} of the ${short(totals.available_tokens / totals.sessions)} tokens of all definitions, on average.`,
    [h("strong", null, `${GROSS.name}: ${short(totals.tokens_saved)}. `), GROSS.text],
    [h("strong", null, `${NET.name}: ${short(totals.cost_avoided)}. `), NET.text, " ",
      h("a", { href: "#/learning?prices=open" }, "Prices and assumptions")]);
}

function coverageCard(totals) {
  const used = totals.tools_used;
  return card("First uses listed", used ? percent(totals.first_uses_covered / used) : "–",
    used
      ? `The list had ${number(totals.first_uses_covered)} of ${plural(used, "tool")} when a work session first called them. ${plural(totals.misses, "miss")}: the list did not have the tool, and the client searched for it or called it by name.`
      : "No work session used a tool yet.");
}

function callCard(totals) {
  const { calls, failed_calls: failed } = totals;
  return card("Calls", short(calls),
    calls ? `${number(failed)} failed (${percent(failed / calls)}).` : "No tool was called.",
    `${plural(totals.searches, "search")} for hidden tools.`);
}

function periodText(answer) {
  if (!answer.totals) return null;
  const cut = answer.is_cut ? " Only the newest connections count; older ones were left out." : "";
  return [`Since ${time(answer.since)}: ${countedWords(answer)}; a connection without a work session counts as one.${cut} riglm ${answer.version} runs since `, timeNode(answer.started_at), "."];
}

/** Returns the address of a session. */
const sessionHref = (id) => `#/sessions/${encodeURIComponent(id)}`;

function sessionTable() {
  return table({
    label: "Open sessions",
    empty: empty("No client is connected", h("span", null, "Sessions appear here as soon as a client connects. ", h("code", null, "riglm clients"), " lists your clients, and the address of riglm.")),
    columns: [
      { key: "client", label: "Client", cell: (row) => h("a", { href: sessionHref(row.id), class: "cut", title: row.client }, row.client || "(no name)") },
      { key: "started_at", label: "Connected", cell: (row) => agoNode(row.started_at) },
      { key: "protocol", label: "Protocol" },
      { key: "transport", label: "Transport", value: (row) => row.transport.replace(/_/g, " ") },
      { key: "profile", label: "Profile", value: (row) => row.profile },
      ...LIST_COLUMNS,
    ],
  });
}

const STATES = { available: ["ok", "available"], unavailable: ["bad", "unavailable"], unused: ["", "not used yet"], starting: ["", "starting"] };

function upstreamItem(upstream) {
  const [kind, word] = STATES[upstream.state] ?? ["", upstream.state];
  const facts = [
    upstream.tool_set ? plural(upstream.tool_set.tools, "tool") : null,
    plural(upstream.connections, "connection"),
    upstream.waiting ? `${plural(upstream.waiting, "session")} waiting` : null,
    upstream.left_out ? `missing in ${plural(upstream.left_out, "list")}` : null,
  ].filter(Boolean).join(", ");
  const held = upstream.held?.length
    ? h("a", { href: "#/changes" }, `${plural(upstream.held.length, "held change")}`)
    : null;
  return h("li", { "data-key": upstream.name },
    tag(word, kind),
    h("a", { class: "mono cut", href: `#/tools?upstream=${encodeURIComponent(upstream.name)}`, title: upstream.name }, upstream.name),
    h("span", { class: "dim small" }, facts),
    held,
    h("span", { class: "small reason" }, upstream.reason ? prose(upstream.reason)
      : (upstream.state === "unused" ? "Nothing has connected to it yet, so its tools are not known." : null)));
}

/** Shows events as sentences, the newest first. Returns the function that ends this. */
function follow(feed) {
  let items = [];
  const nothing = h("li", { class: "dim waiting" }, "Waiting for the next call, search or list.");
  const draw = () => update(feed, items.length ? items : nothing);
  let frame = 0;
  draw();
  const stop = subscribe(["tool_called", "searched", "list_shown", "session_introduced"], (event) => {
    if (event.type === "resync") return;
    items = [feedItem(event), ...items].slice(0, MAX_FEED);
    // A busy riglm sends hundreds of events a second; the page draws them once per frame.
    frame ||= requestAnimationFrame(() => { frame = 0; draw(); });
  });
  return () => { stop(); cancelAnimationFrame(frame); };
}

let feedCount = 0;

const SOURCES = {
  shown: " from its list",
  found: ", which riglm had named, because its list did not have it",
  hidden: " by name, although its list did not have it",
  unlisted: ", which no upstream lists",
};

function feedItem(event) {
  const id = event.session ?? event.work_session;
  const who = id
    ? h("a", { href: sessionHref(id), class: "cut", title: event.client }, event.client || "A client")
    : event.client ?? "A client";
  const { data } = event;
  const sentence = {
    tool_called: () => [who, " called ", toolName(data), SOURCES[data.source] ?? "", data.is_first_use && data.source !== "shown" ? [" ", tag("miss", "warn")] : null],
    searched: () => [who, ` searched for tools: ${plural(data.n_matches, "result")}, ${matchWords(data.quality)}`],
    list_shown: () => [who, ` got a list of ${number(data.n_shown)} of ${plural(data.n_available, "tool")}`],
    session_introduced: () => [who, " connected"],
  }[event.type]();
  return h("li", { "data-key": `event-${++feedCount}` }, timeNode(event.at), h("span", null, sentence));
}
