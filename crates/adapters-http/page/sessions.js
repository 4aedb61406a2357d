// All sessions, the newest first.

import { get } from "./api.js";
import { clientName } from "./decisions.js";
import { choice, clear, empty, h, jsonLink, notice, tag, update } from "./dom.js";
import { dayTimeNode, duration, number, percent, plural, short } from "./format.js";
import { watch } from "./live.js";
import { table } from "./table.js";

export const title = "Sessions";

const FIRST_PAGE = 100;
// Later pages are larger, so that thousands of sessions are a few clicks.
const NEXT_PAGE = 500;

const STATES = [
  { value: "", label: "All" },
  { value: "active", label: "Open" },
  { value: "past", label: "Over" },
];

/** What a miss is. */
export const MISS = "A miss is the first call of a tool in a work session whose list did not have it: the client searched for it or called it by name.";

/** What lists saved, by the names that all screens use for it. */
export const GROSS = {
  name: "Tokens saved (gross)",
  text: "Tokens of tool definitions that the prompts of calls did not carry, if each call is one prompt.",
};
export const NET = {
  name: "Cost avoided (net)",
  text: "Equal to the price of as many uncached prompt tokens, after searches and changed lists. It is less than the gross number, because cached tokens cost less.",
};

/** The name of the client of `riglm demo`. */
const DEMO_CLIENT = "riglm-demo";

/** Returns what a reader must know of the numbers if sessions are those of the demonstration. */
export function demoNotice(sessions) {
  return sessions?.some(({ client }) => client === DEMO_CLIENT)
    ? notice("info", "Demonstration: these sessions were recorded before and are played by a script; their times are spread over the last days.")
    : null;
}

/** Returns the quality of the answer to a search. */
export const matchWords = (quality) => `${quality} quality of the best matches`;

/** The columns of a table of sessions that say what their lists did. */
export const LIST_COLUMNS = [
  {
    key: "listed", label: "Tools listed", align: "end", title: "Tools in the newest list, and all of the upstreams; tools of riglm itself come on top",
    value: (row) => row.lists?.shown_tools,
    cell: (row) => (row.lists ? `${number(row.lists.shown_tools)} of ${number(row.lists.available_tools)}` : "no list"),
  },
  { key: "calls", label: "Calls", align: "end", cell: (row) => `${number(row.calls)}${row.has_more_calls ? "+" : ""}` },
  {
    key: "misses", label: "Misses", align: "end", title: MISS,
    value: (row) => row.lists?.misses,
    cell: (row) => (row.lists?.misses ? tag(number(row.lists.misses), "warn") : number(row.lists?.misses)),
  },
  { key: "searches", label: "Searches", align: "end", value: (row) => row.lists?.searches, cell: (row) => number(row.lists?.searches) },
  {
    key: "saved", label: GROSS.name, align: "end", title: GROSS.text,
    value: (row) => row.lists?.tokens_saved, cell: (row) => short(row.lists?.tokens_saved),
  },
];

/** Fills `root`. View options: `state`, `sort` and `text` (the filter). */
export async function show(root, params) {
  const { query } = params;
  const view = { state: STATES.some(({ value }) => value === query.get("state")) ? query.get("state") : "", cursor: null };
  const rows = new Map();
  const head = h("div", { class: "screen-head" });
  const notices = h("div", { class: "stack" });
  const end = h("div", { class: "row" });
  const list = sessionsTable(params);
  const parts = [head,
    h("p", { class: "lead" }, "A row is one connection of a client; it may have several work sessions, each with the calls of one task, and a work session may last over several connections. Now and Learning count work sessions. Open a row to see its lists, calls and searches, and why each tool is listed or hidden."),
    notices, h("section", { class: "card", "aria-label": "Sessions" }, list, end)];

  const path = (limit, cursor) => `/sessions?limit=${limit}${view.state ? `&state=${view.state}` : ""}${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ""}`;
  const draw = () => {
    // Before the first answer, and after a time without recording.
    if (head.parentNode !== root) clear(root, parts);
    update(head, h("h1", null, title), choice("State", STATES, view.state, pick), jsonLink(path(FIRST_PAGE)));
    update(notices, demoNotice([...rows.values()]));
    list.update([...rows.values()]);
    update(end,
      view.cursor ? h("button", { type: "button", class: "btn", on: { click: loadMore } }, `Load ${NEXT_PAGE} older connections`) : null,
      h("span", { class: "dim small" }, rows.size === 0 ? "" : view.cursor
        ? `${plural(rows.size, "connection")} are loaded. Sorting and the filter apply to these.`
        : `${number(rows.size)} in all: every recorded connection.`));
  };
  const add = (sessions) => sessions.forEach((session) => rows.set(session.id, session));
  let isMoreLoaded = false;
  const load = async () => {
    const { state } = view;
    const answer = await get(path(FIRST_PAGE));
    if (state !== view.state) return;
    // Without a known session in the first page, there may be unknown ones after it: start over.
    if (isMoreLoaded && !answer.sessions.some(({ id }) => rows.has(id))) isMoreLoaded = false;
    // The state of a session changes; sessions that the filter no longer has disappear.
    const oldest = answer.sessions.at(-1)?.started_at ?? "";
    for (const [id, session] of rows) {
      if (!isMoreLoaded || session.started_at >= oldest) rows.delete(id);
    }
    const older = [...rows.values()];
    rows.clear();
    add(answer.sessions);
    add(older);
    if (!isMoreLoaded) view.cursor = answer.next_cursor;
    draw();
  };
  const loadMore = async (event) => {
    const button = event.currentTarget;
    const { state, cursor } = view;
    button.disabled = true;
    // From now on, the rows before the cursor stay.
    isMoreLoaded = true;
    try {
      const answer = await get(path(NEXT_PAGE, cursor));
      if (state !== view.state || cursor !== view.cursor) return;
      add(answer.sessions);
      view.cursor = answer.next_cursor;
      draw();
    } finally {
      button.disabled = false;
    }
  };
  const live = watch(["session_introduced", "session_closed", "tool_called"], load, { pause: 5_000 });
  const pick = async (state) => {
    view.state = state;
    view.cursor = null;
    isMoreLoaded = false;
    rows.clear();
    params.set({ state });
    await live.now();
  };
  try {
    await load();
  } catch (error) {
    if (error.status !== 409) {
      live.stop();
      throw error;
    }
    clear(root, h("h1", null, title),
      empty("No session is recorded", `${error.detail}. Remove recording.mode = "off" from the configuration, and riglm records sessions and learns from them.`));
  }
  return live;
}

function sessionsTable(params) {
  // In microseconds; an open session has not lasted a known time.
  const lasted = (row) => (row.ended_at ? (Date.parse(row.ended_at) - Date.parse(row.started_at)) * 1_000 : null);
  return table({
    label: "Sessions",
    rows: [],
    sortBy: params.query.get("sort") ?? "-started_at",
    onSort: (sort) => params.set({ sort: sort === "-started_at" ? null : sort }),
    filter: true,
    filterBy: params.query.get("text") ?? "",
    onFilter: (text) => params.set({ text }),
    empty: empty("No session",
      h("span", null, "A session appears here as soon as a client connects. ", h("code", null, "riglm clients"), " lists your clients, and the address of riglm."),
      h("a", { class: "btn", href: "#/setup" }, "Check the set-up")),
    columns: [
      {
        key: "client", label: "Client",
        cell: (row) => h("a", { href: `#/sessions/${encodeURIComponent(row.id)}`, class: "cut", title: clientName(row) }, row.client || "(no name)"),
      },
      { key: "state", label: "State", value: (row) => (row.state === "active" ? "open" : "over"), cell: (row) => (row.state === "active" ? tag("open", "ok") : tag("over")) },
      { key: "started_at", label: "Started", value: (row) => Date.parse(row.started_at), cell: (row) => dayTimeNode(row.started_at) },
      { key: "lasted", label: "Lasted", align: "end", value: lasted, cell: (row) => duration(lasted(row)) },
      ...LIST_COLUMNS,
      {
        key: "looks", label: "Looks for hidden tools (estimate)", align: "end", value: (row) => row.looks_for_hidden_tools,
        title: "An estimate about the client, from all its sessions: the probability that it searches for a tool that it needs and that its list hides. Clients that do not search get longer lists.",
        cell: (row) => percent(row.looks_for_hidden_tools),
      },
      { key: "protocol", label: "Protocol" },
      { key: "transport", label: "Transport", value: (row) => row.transport.replace(/_/g, " ") },
      { key: "profile", label: "Profile" },
      { key: "principal", label: "User", cell: (row) => h("span", { class: "cut", title: row.principal }, row.principal) },
      { key: "id", label: "Connection", cell: (row) => h("span", { class: "mono cut dim", title: row.id }, row.id.slice(-12)) },
    ],
  });
}
