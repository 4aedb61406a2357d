// The screen of learning: whether the lists get better, what they save, and the experiments.

import { get, getIfPossible } from "./api.js";
import { choice, clear, empty, h, jsonLink, notice, section, tag, update } from "./dom.js";
import { now, number, percent, plural, short, timeNode } from "./format.js";
import { watch } from "./live.js";
import { table } from "./table.js";
import { diagonal, line } from "./chart.js";
import { GROSS, MISS, NET, demoNotice } from "./sessions.js";
import { card, recordingOff } from "./tools.js";

export const title = "Learning";

const DAYS = [7, 30, 90, 365];
const USUAL_DAYS = 30;
/** With fewer sessions or days, a trend says little. */
const ENOUGH = { sessions: 20, days: 3 };

/** What the numbers of the cost model mean. Other numbers are shown by their names. */
const PRICES = {
  cached_read: "Price of a token that is read from the prompt cache",
  cache_write: "Price of a token that is written to the prompt cache",
  tokens_per_tool: "Tokens of one definition, where the real number is not known",
  context_tokens: "Tokens of the prompt after the tools, on average",
  search: "Price of a search with a short answer, in tokens",
  inline_search: "Price of a search with definitions in the answer, in tokens",
};

const METRICS = {
  click_through: "a recommended tool was selected",
  success: "a recommended tool was selected and worked",
  call_success: "a call was answered without error",
  coverage: "a tool was listed at its first call",
};

const STATES = {
  running: ["ok", "running"],
  disabled: ["", "switched off"],
  stopped: ["warn", "stopped"],
};

const VERDICTS = {
  better: ["ok", "better"],
  worse: ["bad", "worse"],
  undecided: ["", "undecided"],
};

/** Fills `root` with the results of learning. The query has `days`; `prices=open` leads to the prices. */
export async function show(root, params) {
  const view = { days: Number(params.query.get("days")) };
  if (!DAYS.includes(view.days)) {
    view.days = USUAL_DAYS;
  }
  const about = h("div", { class: "stack" });
  const controls = h("div", { class: "row" });
  const results = h("div", { class: "stack" });
  const experiments = h("div", { class: "stack" });
  const json = h("span");
  clear(
    root,
    h("div", { class: "screen-head" }, h("h1", null, title), json),
    h("p", { class: "lead" }, "Whether the lists get better, and what they save."),
    about,
    controls,
    results,
    experiments,
  );

  const drawControls = () => {
    const options = DAYS.map((days) => ({ value: days, label: `${days} days` }));
    update(controls, choice("Period", options, view.days, pick));
    update(json, jsonLink(pathOf(view.days)));
  };
  const pick = (days) => {
    view.days = days;
    params.set({ days: days === USUAL_DAYS ? null : days });
    drawControls();
    live.now();
  };
  const load = async () => {
    const { days } = view;
    const answer = await get(pathOf(days));
    if (days === view.days) {
      drawLearning(results, answer, days);
    }
  };
  const loadAbout = async () => {
    const newest = await getIfPossible("/sessions?limit=1");
    update(about, demoNotice(newest?.sessions));
  };
  const loadExperiments = async () => {
    try {
      await drawExperiments(experiments);
    } catch (error) {
      update(experiments, notice("error", `The experiments cannot be shown: ${error.detail ?? error.message}`));
    }
  };

  drawControls();
  try {
    await load();
  } catch (error) {
    if (error.status !== 409) {
      throw error;
    }
    clear(results, recordingOff(error));
  }
  // The experiments come after the first paint: their reports read many rows.
  loadExperiments();
  loadAbout();
  if (params.query.get("prices") === "open") {
    openPrices(results);
  }
  // riglm computes the answer twice a minute at most.
  const live = watch(["list_shown", "session_closed", "searches_over"], load, { pause: 30_000 });
  const settings = watch(["config_changed"], loadExperiments);
  return {
    stop() {
      live.stop();
      settings.stop();
    },
  };
}

/** Opens the prices, and scrolls to them as soon as the screen is in the page. */
function openPrices(results) {
  const prices = results.querySelector("[data-key=assumptions]");
  if (prices) {
    prices.open = true;
    setTimeout(() => prices.scrollIntoView());
  }
}

const pathOf = (days) => `/learning?days=${days}`;

/** Returns the share of first uses whose tool was listed, or `null` without first uses. */
const coverageOf = (part) => (part.tools_used > 0 ? 1 - part.misses / part.tools_used : null);
const searchesOf = (part) => (part.sessions > 0 ? part.searches / part.sessions : null);
const shownOf = (part) => (part.available_tools > 0 ? part.shown_tools / part.available_tools : null);

function drawLearning(results, answer, days) {
  const { total } = answer;
  if (total.sessions === 0) {
    update(
      results,
      empty(
        `No work sessions in the last ${days} days`,
        "riglm learns from the calls of its clients. Connect a client and work with it: the first day appears here at once.",
        h("a", { class: "btn", href: "#/setup" }, "Set-up"),
      ),
    );
    return;
  }
  update(
    results,
    littleDataNotice(total, answer.days, days),
    answer.is_cut
      ? notice("warning", "Not all connections of this period are included: only the newest 2,000. The first days may look better or worse than they were.")
      : null,
    totals(total),
    answer.days.length < 2 ? null : h(
      "div",
      { class: "grid2" },
      trend("First uses listed", `Tools that were listed at their first call, of all that work sessions used. The others are misses. ${MISS}`, answer.days, coverageOf, percent, 1),
      trend("Searches per work session", "Fewer searches for the same work means better lists.", answer.days, searchesOf, (n) => n.toFixed(1)),
      trend("List size", "Tools in the list, as a share of all tools that the client could have got.", answer.days, shownOf, percent),
      trend(GROSS.name, GROSS.text, answer.days, (day) => day.tokens_saved, short),
      trend(NET.name, `${NET.text} Below 0, riglm cost more than it saved.`, answer.days, (day) => day.cost_avoided, short),
    ),
    calibration(answer.calibration),
    assumptions(answer),
    daysTable(answer.days),
  );
}

function littleDataNotice(total, days, period) {
  if (total.sessions >= ENOUGH.sessions && days.length >= ENOUGH.days) {
    return null;
  }
  const text =
    `There are only ${plural(total.sessions, "work session")} on ${plural(days.length, "day")} of the last ${period} days. ` +
    `With fewer than ${ENOUGH.sessions} work sessions or ${ENOUGH.days} days, the numbers are right, but a trend is not visible yet.`;
  return notice("info", text);
}

function totals(total) {
  const coverage = coverageOf(total);
  const searches = searchesOf(total);
  const shown = shownOf(total);
  return h(
    "div",
    { class: "cards" },
    card(
      "First uses listed",
      coverage === null ? "–" : percent(coverage),
      coverage === null
        ? "No tool was used yet."
        : `The list had ${number(total.tools_used - total.misses)} of ${plural(total.tools_used, "tool")} when a work session first called them: ${plural(total.misses, "miss")}.`,
    ),
    card("Searches per work session", searches === null ? "–" : searches.toFixed(1), `${plural(total.searches, "search")} in ${plural(total.sessions, "work session")}. A connection without a work session counts as one.`),
    card(
      "List size",
      shown === null ? "–" : percent(shown),
      shown === null ? "No list was shown yet." : `${number(total.shown_tools)} of ${number(total.available_tools)} tools were listed, over all work sessions.`,
    ),
    card(GROSS.name, short(total.tokens_saved), GROSS.text),
    card(NET.name, short(total.cost_avoided), costText(total)),
  );
}

function costText(total) {
  if (total.cost_avoided < 0) {
    return `${NET.text} riglm cost more than it saved: lists changed often, or were short of tools.`;
  }
  return NET.text;
}

const dayFormat = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });
const dayText = (x) => withToday(dayFormat.format(new Date(x)), x);

/** Marks the present day, whose numbers still grow. */
function withToday(text, day) {
  const isToday = new Date(day).toISOString().slice(0, 10) === new Date(now()).toISOString().slice(0, 10);
  return isToday ? `${text} (today, so far)` : text;
}

function trend(label, subtitle, days, valueOf, yFormat, yMax) {
  const points = days.map((day) => ({ x: Date.parse(day.day), y: valueOf(day) }));
  const known = points.filter((point) => point.y !== null);
  const part =
    known.length >= 2
      ? line({ points, label, yFormat, xFormat: dayText, yMax, xLabel: "day (UTC)" })
      : h("p", { class: "dim" }, known.length === 1 ? `${dayText(known[0].x)}: ${yFormat(known[0].y)}. A line needs a second day.` : "No day has a value yet.");
  return section(label, subtitle, part);
}

/** Whether as many calls were of listed tools as riglm expected when it selected the lists. */
function calibration(all) {
  return section(
    "Calibration",
    "Whether as many calls were of listed tools as riglm expected when it selected the lists. It counts all calls, not only first uses, under lists that a prediction selected: others have no expectation.",
    all.calls === 0 ? h("p", { class: "dim" }, noCalibration(all)) : calibrationResults(all),
  );
}

function noCalibration(all) {
  if (all.lists > 0) {
    return `No call was made yet under the ${plural(all.lists, "list")} with an expectation.`;
  }
  return (
    "No list of this period has an expectation. Only lists that hide tools, and whose tools a prediction selected, have one: " +
    "not those from before riglm had learned, lists of all tools, lists by name patterns or by context, and those of older versions."
  );
}

function calibrationResults(all) {
  const points = all.bins.filter((bin) => bin.calls > 0).map((bin) => ({
    x: bin.expected,
    y: bin.actual,
    weight: bin.calls,
    title:
      `Expected ${percent(bin.from)} to ${percent(bin.to)}: ${percent(bin.expected)} on average, ${percent(bin.actual)} listed. ` +
      `${plural(bin.calls, "call")}, ${plural(bin.lists, "list")}`,
  }));
  return [
    h("p", null, `riglm expected ${percent(all.expected)} of calls on listed tools; ${percent(all.actual)} were.`),
    h(
      "p",
      { class: "dim" },
      `${plural(all.calls, "call")}, ${plural(all.lists, "list")}. Points below the line: riglm expected too much. ` +
        "An agent uses what it is shown, so the listed share is higher than it would be with other lists.",
    ),
    diagonal({ points, label: "Calibration", weightLabel: "calls", xLabel: "expected share of calls on listed tools", yLabel: "Actual share" }),
  ];
}

function assumptions(answer) {
  const prices = Object.entries(answer.prices).map(([name, value]) => [
    h("dt", null, PRICES[name] ?? name),
    h("dd", null, number(value), h("code", { class: "dim" }, ` ${name}`)),
  ]);
  return h(
    "details",
    { class: "card", "data-key": "assumptions" },
    h("summary", null, "Prices and assumptions behind these numbers"),
    h("p", { class: "dim" }, "1 is the price of a prompt token that is neither read from a cache nor written to one."),
    h("dl", { class: "facts" }, prices),
    h("ul", { class: "bulleted" }, (answer.assumptions ?? []).map((sentence) => h("li", null, sentence.charAt(0).toUpperCase() + sentence.slice(1)))),
  );
}

function daysTable(days) {
  const amount = (key, label, value, text) => ({
    key,
    label,
    align: "end",
    value,
    cell: (day) => (value(day) === null ? "–" : text(value(day))),
  });
  const rows = table({
    columns: [
      { key: "day", label: "Day (UTC)", value: (day) => day.day, cell: (day) => withToday(day.day, day.day) },
      amount("sessions", "Work sessions", (day) => day.sessions, number),
      amount("coverage", "First uses listed", coverageOf, percent),
      amount("searches", "Searches per work session", searchesOf, (n) => n.toFixed(1)),
      amount("shown", "List size", shownOf, percent),
      amount("tokens", GROSS.name, (day) => day.tokens_saved, (n) => number(Math.round(n))),
      amount("cost", NET.name, (day) => day.cost_avoided, (n) => number(Math.round(n))),
    ],
    rows: days,
    rowKey: (day) => day.day,
    label: "Days",
    sortBy: "-day",
  });
  return h("details", { class: "card", "data-key": "days" }, h("summary", null, `${plural(days.length, "day")} as a table`), rows);
}

async function drawExperiments(experiments) {
  const { experiments: all } = await get("/experiments");
  if (all.length === 0) {
    update(
      experiments,
      section(
        "Experiments",
        null,
        empty(
          "No experiment is configured",
          "An experiment gives some clients a different treatment and measures the difference. It is a section recommend.experiments.NAME of the configuration; docs/experiments.md describes it.",
        ),
      ),
    );
    return;
  }
  const reports = await Promise.all(all.map((one) => reportOf(one)));
  update(
    experiments,
    section("Experiments", "One arm is the control; the others are compared with it.", reports),
  );
}

async function reportOf(experiment) {
  const path = `/experiments/${encodeURIComponent(experiment.name)}`;
  const [kind, word] = STATES[experiment.state] ?? ["", experiment.state];
  const head = h("div", { class: "row" }, h("h3", null, experiment.name), tag(word, kind), jsonLink(path));
  const stopped = experiment.stop
    ? h(
        "p",
        { class: "dim" },
        `Stopped by ${experiment.stop.stopped_by}, `,
        timeNode(experiment.stop.stopped_at),
        experiment.stop.reason ? `: ${experiment.stop.reason}` : "",
      )
    : null;
  try {
    const report = await get(path);
    return h("div", { class: "stack", "data-key": experiment.name }, head, stopped, reportPart(report));
  } catch (error) {
    const text = `No results: ${error.detail ?? error.message}`;
    return h("div", { class: "stack", "data-key": experiment.name }, head, stopped, notice("error", text));
  }
}

function reportPart(report) {
  const { experiment, arms } = report;
  const unit = experiment.unit === "principal" ? "principal" : "work session";
  const hours = number(report.window_seconds / 3600);
  const metric = METRICS[experiment.metric] ?? experiment.metric;
  const about =
    `Changes: ${experiment.changes.join(", ")}. Success: ${metric}, within ${hours} h, once per ${unit}. ` +
    `Significance level ${report.alpha}.`;
  const units = arms.reduce((total, arm) => total + arm.units, 0);
  const waiting = arms.reduce((total, arm) => total + arm.open_units, 0);
  const little =
    units === 0
      ? h("p", null, `No ${unit} has a value yet${waiting > 0 ? `; ${number(waiting)} of them count when their ${hours} h are over` : ""}.`)
      : null;
  return [
    h("p", { class: "dim" }, about),
    report.is_complete ? null : notice("warning", "There is more data than one report counts: only the oldest part is included."),
    little,
    h(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": `Arms of ${experiment.name}` },
      h(
        "table",
        null,
        h(
          "thead",
          null,
          h("tr", null, ["Arm", "Share", "Units", "Open", "Mean", "Difference", "Interval", "p", "Verdict"].map((label) => h("th", { scope: "col" }, label))),
        ),
        h("tbody", null, arms.map((arm) => armRow(arm, experiment.control))),
      ),
    ),
  ];
}

function armRow(arm, control) {
  const compared = arm.comparison;
  const [kind, word] = VERDICTS[compared?.verdict] ?? ["", compared?.verdict ?? ""];
  const points = (value) => (value == null ? "–" : `${value > 0 ? "+" : ""}${(value * 100).toFixed(1)} points`);
  const interval =
    compared && compared.lower != null && compared.upper != null ? `${points(compared.lower)} to ${points(compared.upper)}` : "–";
  return h(
    "tr",
    { "data-key": arm.name },
    h("th", { scope: "row" }, h("span", { class: "cut mono", title: arm.name }, arm.name)),
    h("td", null, percent(arm.share)),
    h("td", null, number(arm.units)),
    h("td", null, number(arm.open_units)),
    h("td", null, arm.mean === null ? "–" : percent(arm.mean)),
    h("td", null, compared ? points(compared.difference) : "–"),
    h("td", null, interval),
    h("td", null, compared ? compared.p_value.toPrecision(2) : "–"),
    h("td", null, arm.name === control ? "control" : compared ? tag(word, kind, `${plural(compared.pairs, "pair")} of units`) : "–"),
  );
}
