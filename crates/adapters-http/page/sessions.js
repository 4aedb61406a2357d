// All sessions, the newest first.

import { get } from "./api.js";
import { clientName } from "./decisions.js";
import { choice, clear, empty, h, jsonLink, tag, update } from "./dom.js";
import { duration, number, percent, short, timeNode } from "./format.js";
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

/** The columns of a table of sessions that say what their lists did. */
export const LIST_COLUMNS = [
  {
    key: "listed", label: "Tools listed", align: "end", title: "Tools in the newest list, and all of the upstreams; tools of riglm itself come on top",
    value: (row) => row.lists?.shown_tools,
    cell: (row) => (row.lists ? `${number(row.lists.shown_tools)} of ${number(row.lists.available_tools)}` : "no list"),
  },
  { key: "calls", label: "Calls", align: "end", cell: (row) => `${number(row.calls)}${row.has_more_calls ? "+" : ""}` },
  {
    key: "misses", label: "Misses", align: "end", title: "Tools that were called although the list did not have them at their first call",
    value: (row) => row.lists?.misses,
    cell: (row) => (row.lists?.misses ? tag(number(row.lists.misses), "warn") : number(row.lists?.misses)),
  },
  { key: "searches", label: "Searches", align: "end", value: (row) => row.lists?.searches, cell: (row) => number(row.lists?.searches) },
  {
    key: "saved", label: "Tokens saved", align: "end", title: "Tool definitions that prompts did not carry, if each call and each search is one prompt",
    value: (row) => row.lists?.tokens_saved, cell: (row) => short(row.lists?.tokens_saved),
  },
];

/** Fills `root`. View options: `state`, `sort` and `text` (the filter). */
export async function show(root, params) {
  const { query } = params;
  const view = { state: STATES.some(({ value }) => value === query.get("state")) ? query.get("state") : "", cursor: null };
  const rows = new Map();
  const head = h("div", { class: "screen-head" });
  const end = h("div", { class: "row" });
  const list = sessionsTable(params);
  const parts = [head,
    h("p", { class: "lead" }, "A session is one connection of a client. A work session is the calls of one task: a session may have several, and one may last over several sessions. Open a session to see its lists, calls and searches, and why each tool is listed or hidden."),
    h("section", { class: "card", "aria-label": "Sessions" }, list, end)];

  const path = (limit, cursor) => `/sessions?limit=${limit}${view.state ? `&state=${view.state}` : ""}${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ""}`;
  const draw = () => {
    // Before the first answer, and after a time without recording.
    if (head.parentNode !== root) clear(root, parts);
    update(head, h("h1", null, title), choice("State", STATES, view.state, pick), jsonLink(path(FIRST_PAGE)));
    list.update([...rows.values()]);
    update(end,
      view.cursor ? h("button", { type: "button", class: "btn", on: { click: loadMore } }, `Load ${NEXT_PAGE} older sessions`) : null,
      h("span", { class: "dim small" }, rows.size === 0 ? "" : view.cursor
        ? `${number(rows.size)} sessions are loaded. Sorting and the filter apply to these.`
        : "These are all recorded sessions."));
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
      { key: "started_at", label: "Started", value: (row) => Date.parse(row.started_at), cell: (row) => timeNode(row.started_at) },
      { key: "lasted", label: "Lasted", align: "end", value: lasted, cell: (row) => duration(lasted(row)) },
      ...LIST_COLUMNS,
      {
        key: "looks", label: "Looks for hidden tools", align: "end", value: (row) => row.looks_for_hidden_tools,
        title: "The estimated probability that the client searches for a tool that it needs and that its list hides. Clients that do not search get longer lists.",
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
