// The screen of one tool: its calls, its neighbours, its definition, and the overrides on it.

import { del, get, post, scopes } from "./api.js";
import { choice, clear, confirmAction, empty, h, jsonLink, notice, section, toast, toolName, update } from "./dom.js";
import { duration, now, number, percent, plural, timeNode } from "./format.js";
import { mayCount, watch } from "./live.js";
import { bars } from "./chart.js";
import { recordingOff } from "./tools.js";

export const title = "Tool";

const DAYS = [1, 7, 30, 90];
const USUAL_DAYS = 30;
/** The longest name of a tool in an event, in characters. */
const MAX_EVENT_NAME = 200;
/** riglm cuts descriptions to this length, in characters. */
const MAX_DESCRIPTION = 300;
/** The longest name that the control API takes for an override. */
const MAX_NAME = 10_000;
/** The most clients that the form suggests. */
const MAX_CLIENTS = 100;

const OUTCOMES = {
  ok: "answered",
  error: "failed",
  timeout: "no answer in time",
  cancelled: "cancelled by the client",
  unknown: "end unknown",
  refused: "refused by a safeguard",
  cached: "answered from the cache",
};

const ACTIONS = {
  pin: "Pin: always in the list",
  include: "Include: in the list",
  exclude: "Exclude: not in the list, but can be called",
  forbid: "Forbid: in no list, and calls are refused",
};

const SCOPES = {
  global: "All clients",
  client: "One client",
  profile: "One profile",
};

const EXPIRIES = [
  ["", "never"],
  ["3600", "in an hour"],
  ["86400", "in a day"],
  ["604800", "in a week"],
];

/** Fills `root` with a tool. The parts of the address are its upstream and its name; the query has `days`. */
export async function show(root, params) {
  const [upstream, name] = params.parts;
  if (!upstream || !name) {
    const all = h("a", { class: "btn", href: "#/tools" }, "All tools");
    clear(root, h("h1", null, title), empty("This address names no tool", "The address of a tool is #/tools/UPSTREAM/NAME.", all));
    return { stop() {} };
  }
  const tool = { upstream, tool: name };
  const view = { days: Number(params.query.get("days")) };
  if (!DAYS.includes(view.days)) {
    view.days = USUAL_DAYS;
  }
  const mayOverride = scopes().has("override");

  const controls = h("div", { class: "row" });
  const heading = h("div", { class: "stack" });
  const statistics = h("div", { class: "stack" });
  const decisions = h("div", { class: "stack" });
  // The names by which an override may refer to the tool, and all overrides.
  let aliases = [name, overrideName(tool)];
  let known = null;
  const drawOwn = () => {
    const own = known?.filter((one) => aliases.includes(one.tool));
    if (own) {
      drawOverrides(decisions, own, mayOverride, loadOverrides);
    }
  };
  const loadOverrides = async () => {
    known = (await get("/overrides")).overrides;
    drawOwn();
  };
  const overrides = section(
    "Decisions about this tool",
    "Those of operators. Lists follow within two seconds.",
    decisions,
    overrideForm(tool, mayOverride, loadOverrides),
  );
  const json = h("span");
  clear(
    root,
    h("div", { class: "screen-head" }, h("h1", { class: "cut", title: name.slice(0, 2000) }, name), json),
    controls,
    heading,
    statistics,
    overrides,
  );

  const drawControls = () => {
    const options = DAYS.map((days) => ({ value: days, label: days === 1 ? "1 day" : `${days} days` }));
    update(
      controls,
      h("a", { class: "btn quiet", href: "#/tools" }, "All tools"),
      choice("Period", options, view.days, pick),
    );
    update(json, jsonLink(statisticsPath(tool, view.days)));
  };
  const pick = (days) => {
    view.days = days;
    params.set({ days: days === USUAL_DAYS ? null : days });
    drawControls();
    calls.now();
  };
  const loadStatistics = async () => {
    const { days } = view;
    const stats = await get(statisticsPath(tool, days));
    if (days === view.days) {
      drawHeading(heading, stats);
      drawStatistics(statistics, stats, days);
      overrides.hidden = false;
      aliases = stats.aliases;
      drawOwn();
    }
  };

  drawControls();
  try {
    await Promise.all([loadStatistics(), loadOverrides()]);
  } catch (error) {
    if (error.status === 404) {
      overrides.hidden = true;
      clear(heading, empty("This tool is not known", error.detail, h("a", { class: "btn", href: "#/tools" }, "All tools")));
    } else if (error.status === 409) {
      clear(heading, recordingOff(error));
    } else {
      throw error;
    }
  }
  const nameInEvents = [...name].slice(0, MAX_EVENT_NAME).join("");
  const isOfTool = (event) => mayCount(event) && (!event.data?.tool || event.data.tool === nameInEvents);
  const calls = watch(["tool_called", "request_ended", "tools_seen"], loadStatistics, { pause: 2000, isRelevant: isOfTool });
  const changes = watch(["override_changed"], loadOverrides);
  return {
    stop() {
      calls.stop();
      changes.stop();
    },
  };
}

function statisticsPath(tool, days) {
  const query = new URLSearchParams({ upstream: tool.upstream, days });
  return `/tools/${encodeURIComponent(tool.tool)}/stats?${query}`;
}

/** Returns the name that overrides of the tool get. The prefix tells tools of one name apart. */
function overrideName(tool) {
  const prefixed = `${tool.upstream}__${tool.tool}`;
  return prefixed.length <= MAX_NAME ? prefixed : tool.tool;
}

function drawHeading(heading, stats) {
  const tokens = (value) => (value === null ? "unknown" : plural(Math.round(value), "token"));
  const facts = [
    ["Upstream", stats.upstream],
    ["Definition", tokens(stats.definition_tokens ?? null)],
    ["Mean result", tokens(stats.result_tokens ?? null)],
    ["Last call", timeNode(stats.last_call)],
    ["First seen", timeNode(stats.first_seen)],
    ["Definitions so far", number(stats.definitions)],
    ["Hash", h("code", { title: stats.definition_hash }, stats.definition_hash.slice(0, 12))],
  ];
  update(
    heading,
    stats.description ? h("p", { class: "lead" }, stats.description, [...stats.description].length >= MAX_DESCRIPTION ? "…" : "") : null,
    h("dl", { class: "facts" }, facts.map(([term, fact]) => [h("dt", null, term), h("dd", null, fact)])),
  );
}

function drawStatistics(statistics, stats, days) {
  const period = days === 1 ? "the last day" : `the last ${days} days`;
  if (stats.calls === 0) {
    update(
      statistics,
      empty(
        `Not called in ${period}`,
        "Its definition is in the catalog all the same. If no client needs it, exclude it below.",
      ),
      neighbours(stats),
    );
    return;
  }
  const outcomes = Object.entries(stats.outcomes).sort(([, a], [, b]) => b - a);
  if (stats.open > 0) {
    outcomes.push(["open", stats.open]);
  }
  const rows = outcomes.map(([outcome, count]) => ({
    label: OUTCOMES[outcome] ?? (outcome === "open" ? "no end recorded" : outcome),
    value: count,
    shown: plural(count, "call"),
    title: percent(count / stats.calls),
  }));
  const rate =
    stats.ok_rate == null ? "No call has ended yet." : `${percent(stats.ok_rate)} of the ended calls succeeded.`;
  const latency = [
    ["Median", stats.latency_us.p50],
    ["95 %", stats.latency_us.p95],
    ["99 %", stats.latency_us.p99],
  ].filter(([, value]) => value != null);
  update(
    statistics,
    h(
      "div",
      { class: "grid2" },
      section(`${plural(stats.calls, "call")} in ${period}`, rate, bars({ rows, max: stats.calls, label: "Outcomes" })),
      section(
        "Latency",
        "The share of calls that were answered within this time; times are accurate to 10 %.",
        latency.length > 0
          ? bars({
              rows: latency.map(([label, value]) => ({
                label,
                value,
                shown: duration(value),
                title: `${label} of the calls within ${duration(value)}`,
              })),
              label: "Latency",
            })
          : h("p", { class: "dim" }, "No call has ended yet."),
      ),
    ),
    neighbours(stats),
  );
}

function neighbours(stats) {
  const followers = stats.followed_by.map((next) => ({
    label: toolName(next),
    value: next.count,
    shown: plural(next.count, "call"),
    title: `called next ${plural(next.count, "time")}`,
  }));
  const partners = stats.used_with.map((other) => ({
    label: toolName(other),
    value: other.sessions,
    shown: plural(other.sessions, "session"),
    title: `in ${plural(other.sessions, "session")} with this tool, ${other.mean_distance.toFixed(1)} calls apart on average`,
  }));
  const chart = (rows, label, none) => (rows.length > 0 ? bars({ rows, label }) : h("p", { class: "dim" }, none));
  return h(
    "div",
    { class: "grid2" },
    section(
      "Followed by",
      "The tools that were called next, at any time.",
      chart(followers, "Followed by", "No tool was called after this one."),
    ),
    section(
      "Used with",
      "The tools that were called in the same sessions, at any time.",
      chart(partners, "Used with", "No session used it together with another tool."),
    ),
  );
}

function drawOverrides(decisions, overrides, mayOverride, reload) {
  if (overrides.length === 0) {
    update(decisions, h("p", { class: "dim" }, "No decision. Predictions say whether it is listed."));
    return;
  }
  update(
    decisions,
    h(
      "ul",
      { class: "muted-list" },
      overrides.map((one) => h("li", { "data-key": one.id }, overrideRow(one, mayOverride, reload))),
    ),
  );
}

function overrideRow(one, mayOverride, reload) {
  const scope = one.scope.id ? `${one.scope.kind} ${one.scope.id}` : "all clients";
  const remove = async () => {
    if (!(await confirmAction(`Remove the decision "${one.action}" for ${scope}?`, "Remove"))) {
      return;
    }
    try {
      await del(`/overrides/${encodeURIComponent(one.id)}`);
      toast("Removed.");
    } catch (error) {
      // With 404, someone else removed it: then the new list shows it.
      if (error.status !== 404) {
        throw error;
      }
    }
    await reload();
  };
  const kind = { forbid: "bad", exclude: "warn" }[one.action] ?? "ok";
  return h(
    "div",
    { class: "row" },
    h("span", { class: `tag ${kind}` }, one.action),
    h("span", { class: "cut", title: scope }, `for ${scope}`),
    h("span", { class: "dim" }, `by ${one.created_by}, `, timeNode(one.created_at)),
    one.expires_at ? h("span", { class: "dim" }, "until ", timeNode(one.expires_at)) : null,
    one.reason ? h("span", null, one.reason) : null,
    mayOverride ? h("button", { class: "btn quiet", type: "button", on: { click: remove } }, "Remove") : null,
  );
}

function overrideForm(tool, mayOverride, onDone) {
  if (!mayOverride) {
    return notice(
      "info",
      "This token may not decide about tools: it has no scope override. Use the token of control.token, " +
        "or a key of control.keys with this scope.",
    );
  }
  const action = select(ACTIONS, "pin");
  const kind = select(SCOPES, "global");
  const known = h("datalist", { id: "override-scopes" });
  const scope = h("input", { type: "text", list: "override-scopes", autocomplete: "off", maxlength: "10000" });
  const scopeField = h("label", { class: "field" }, h("span", null, "Name"), scope);
  const reason = h("input", { type: "text", autocomplete: "off", maxlength: "1000" });
  const expiry = h(
    "select",
    null,
    EXPIRIES.map(([seconds, text]) => h("option", { value: seconds }, text)),
  );
  const result = h("div", { role: "status" });
  const showScope = async () => {
    scopeField.hidden = kind.value === "global";
    scope.required = kind.value !== "global";
    scope.value = "";
    const names = await scopeNames(kind.value);
    clear(
      known,
      names.map(([value, text]) => h("option", { value }, text)),
    );
  };
  kind.addEventListener("change", showScope);
  scopeField.hidden = true;

  const decide = async (event) => {
    event.preventDefault();
    const whom = kind.value === "global" ? "all clients" : `the ${kind.value} ${scope.value}`;
    const text = `Forbid ${tool.tool} for ${whom}? Calls of it are refused at once.`;
    if (action.value === "forbid" && !(await confirmAction(text, "Forbid"))) {
      return;
    }
    const body = {
      tool: overrideName(tool),
      action: action.value,
      scope: kind.value === "global" ? { kind: "global" } : { kind: kind.value, id: scope.value },
    };
    if (reason.value.trim()) {
      body.reason = reason.value.trim();
    }
    if (expiry.value) {
      body.expires_at = new Date(now() + Number(expiry.value) * 1000).toISOString();
    }
    submit.disabled = true;
    try {
      const made = await post("/override", body);
      clear(result, notice("info", made.note ? `Stored, but: ${made.note}` : "In effect."));
      reason.value = "";
      await onDone();
    } catch (error) {
      clear(result, notice("error", error.detail ?? error.message));
    } finally {
      submit.disabled = false;
    }
  };
  const submit = h("button", { class: "btn", type: "submit" }, "Save the decision");
  return h(
    "form",
    { class: "row fields", "aria-label": "New decision", on: { submit: decide } },
    field("Action", action),
    field("For", kind),
    scopeField,
    known,
    field("Reason", reason),
    field("Expires", expiry),
    submit,
    result,
  );
}

/** Returns names for a kind of scope, each with a text. Without them, a name can still be typed. */
async function scopeNames(kind) {
  try {
    if (kind === "client") {
      const { sessions } = await get(`/sessions?limit=${MAX_CLIENTS}`);
      const clients = new Map(
        sessions.map((one) => [one.client_id, one.client]),
      );
      return [...clients];
    }
    if (kind === "profile") {
      const { effective } = await get("/config");
      return Object.keys(effective.profiles ?? {}).map((name) => [name, name]);
    }
  } catch {
    // The form works without suggestions.
  }
  return [];
}

function select(texts, value) {
  const control = h(
    "select",
    null,
    Object.entries(texts).map(([key, text]) => h("option", { value: key }, text)),
  );
  control.value = value;
  return control;
}

function field(label, control) {
  return h("label", { class: "field" }, h("span", null, label), control);
}
