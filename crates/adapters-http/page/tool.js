// The screen of one tool: its calls, its neighbours, its definition, and the overrides on it.

import { get } from "./api.js";
import { decide, decisionList, denial } from "./decisions.js";
import { choice, clear, empty, h, jsonLink, notice, prose, section, toolName, update } from "./dom.js";
import { duration, number, percent, plural, timeNode } from "./format.js";
import { mayCount, watch } from "./live.js";
import { bars } from "./chart.js";
import { ENOUGH_CALLS, recordingOff } from "./tools.js";

export const title = "Tool";

const DAYS = [1, 7, 30, 90];
const USUAL_DAYS = 30;
/** The longest name of a tool in an event, in characters. */
const MAX_EVENT_NAME = 200;
/** riglm cuts descriptions to this length, in characters. */
const MAX_DESCRIPTION = 300;

const OUTCOMES = {
  ok: "answered",
  error: "failed",
  timeout: "no answer in time",
  cancelled: "cancelled by the client",
  unknown: "end unknown",
  refused: "refused by a safeguard or an operator",
  cached: "answered from the cache",
};

/** Why a call with such an outcome has no result. */
export const FAILURES = {
  error: "The server answered with an error, or could not be reached.",
  timeout: "The server did not answer within limits.call_timeout.",
  refused: "A safeguard or an operator forbids it, so it was not sent to the server. The client got the reason.",
  cancelled: "The client cancelled it.",
  unknown: "riglm stopped while it ran, so its end is not known.",
};

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
  const controls = h("div", { class: "row" });
  const heading = h("div", { class: "stack" });
  const statistics = h("div", { class: "stack" });
  const decisions = h("div", { class: "stack" });
  // The names by which an override may refer to the tool, and all overrides.
  let aliases = [name, `${upstream}__${name}`];
  let known = null;
  const drawOwn = () => {
    const own = known?.filter((one) => aliases.includes(one.tool));
    if (own) {
      update(decisions, own.length > 0
        ? decisionList(own, { reload: loadOverrides })
        : h("p", { class: "dim" }, "No decision. Predictions say whether it is listed."));
    }
  };
  const loadOverrides = async () => {
    known = (await get("/overrides")).overrides;
    drawOwn();
  };
  const overrides = section(
    "Decisions about this tool",
    "Those of operators. They apply from the next list on; calls of a forbidden tool are refused at once.",
    decisions,
    denial()
      ? notice("info", `${denial()} Use the token of control.token, or a key of control.keys with this scope.`)
      : h("div", { class: "row" }, h("button", {
        type: "button",
        class: "btn",
        on: { click: () => decide({ tool, onSaved: loadOverrides }) },
      }, "Decide about this tool")),
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
    stats.description ? h("p", { class: "lead" }, prose(stats.description),
      [...stats.description].length >= MAX_DESCRIPTION ? h("span", { class: "small" }, `… (the first ${MAX_DESCRIPTION} characters)`) : null) : null,
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
  const failures = outcomes.filter(([outcome]) => FAILURES[outcome]);
  const isEnough = stats.calls >= ENOUGH_CALLS;
  const latency = [
    ["Median", stats.latency_us.p50],
    ["95 %", isEnough ? stats.latency_us.p95 : null],
    ["99 %", isEnough ? stats.latency_us.p99 : null],
  ].filter(([, value]) => value != null);
  update(
    statistics,
    h(
      "div",
      { class: "grid2" },
      section(`${plural(stats.calls, "call")} in ${period}`, rate, bars({ rows, max: stats.calls, label: "Outcomes" }),
        failures.length > 0
          ? h("dl", { class: "facts small" }, failures.map(([outcome]) => [h("dt", null, OUTCOMES[outcome]), h("dd", null, FAILURES[outcome])]))
          : null),
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
        isEnough ? null : h("p", { class: "dim small" }, `Too few calls for 95 % and 99 %: fewer than ${ENOUGH_CALLS}.`),
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
