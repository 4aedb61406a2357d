// The screen of the set-up: what is wrong and how to cure it, the clients, and the upstreams.

import { get, getIfPossible } from "./api.js";
import { clientName } from "./decisions.js";
import { clear, empty, h, jsonLink, notice, prose, section, tag, toast, update } from "./dom.js";
import { agoNode, number, plural } from "./format.js";
import { watch } from "./live.js";

export const title = "Set-up";

const LEVELS = {
  problem: { kind: "bad", word: "problem" },
  warning: { kind: "warn", word: "warning" },
  ok: { kind: "ok", word: "ok" },
};
const ORDER = ["problem", "warning"];

const UPSTREAM_STATES = {
  available: { kind: "ok", text: "It answered the last time." },
  unavailable: { kind: "bad", text: "The last attempt to reach it failed." },
  starting: { kind: "", text: "Its first start is in progress." },
  unused: { kind: "", text: "No session has connected to it yet." },
};

/** What the files of a client say about riglm. */
const CLIENT_STATES = {
  yes: { kind: "ok", word: "has riglm" },
  no: { kind: "warn", word: "without riglm", needs: "install" },
  unreadable: { kind: "bad", word: "file not readable", advice: "Repair its file, or its permissions." },
  "other address": { kind: "bad", word: "other address", needs: "install" },
  "no key": { kind: "bad", word: "no key", needs: "install" },
  "program missing": { kind: "bad", word: "program missing", needs: "install" },
};

// Commands in the texts of cures. Other words of a text stay text.
const COMMAND =
  /\briglm (?:login [\w.-]+|model (?:pull [\w./:-]+|list)|(?:config|service|db) [a-z-]+|(?:clients|connect|demo|doctor|health|import|init|install|open|serve|setup|uninstall)\b)(?: --[a-z-]+(?: (?!-)[^\s,;]+)?)*|\bchmod \d+ [^,\n]+/g;

/** What commands of cures do, for texts that do not say so themselves. */
const PURPOSES = [
  ["riglm import", "takes over the servers of your clients"],
  ["riglm init", "writes a configuration file to begin with"],
  ["riglm install", "adds riglm to the client"],
  ["riglm login", "logs in to the server, in a browser"],
  ["riglm model pull", "downloads the model"],
  ["riglm model list", "names the models"],
  ["riglm serve", "starts the proxy in the terminal"],
  ["riglm service install", "runs the proxy in the background, from your login on"],
  ["riglm service status", "says whether the service runs"],
  ["riglm db check", "looks for damage in the database"],
  ["riglm health", "says whether the proxy is ready"],
  ["chmod", "keeps other users out"],
];

/** Returns what a command does, in brackets; `null` if the words after it may say so. */
function purposeOf(line, wordsAfter) {
  const [, purpose] = PURPOSES.find(([start]) => line.startsWith(start)) ?? [];
  const isExplained = /^\s*(?!and\b|or\b)\w/.test(wordsAfter);
  return purpose && !isExplained ? h("span", { class: "dim small" }, `(${purpose})`) : null;
}

/** The name of riglm in clients, as `riglm install` writes it. */
const ENTRY_NAME = "riglm";

/** Returns a JSON text in Base64, as UTF-8. */
const base64 = (value) => btoa(String.fromCharCode(...new TextEncoder().encode(JSON.stringify(value))));

/** The links with which clients add a server, after they have asked their user. */
const LINKS = {
  cursor: (entry) => `https://cursor.com/en/install-mcp?name=${ENTRY_NAME}&config=${encodeURIComponent(base64(entry))}`,
  kiro: (entry) => `https://kiro.dev/launch/mcp/add?name=${ENTRY_NAME}&config=${encodeURIComponent(JSON.stringify(entry))}`,
  "lm-studio": (entry) => `lmstudio://add_mcp?name=${ENTRY_NAME}&config=${encodeURIComponent(base64(entry))}`,
  vscode: (entry) => `vscode:mcp/install?${encodeURIComponent(JSON.stringify({ name: ENTRY_NAME, ...entry }))}`,
};

/** Creates the link that adds riglm to a client; `null` if the client has none. */
function installLink(client) {
  const link = LINKS[client.id];
  if (!link || !client.entry) return null;
  const href = link(client.entry);
  const isSite = href.startsWith("https:");
  const site = isSite ? new URL(href).host : null;
  return h("a", {
    class: "btn small", href, rel: "noreferrer", target: isSite ? "_blank" : null,
    title: `${site ? `${site} hands` : "It hands"} the address of riglm to ${client.name}, which asks before it adds riglm.`,
  }, `Add to ${client.name}`);
}

/** Fills `root` with the set-up. */
export async function show(root) {
  const overall = h("div", { class: "stack" });
  const checks = h("div", { class: "stack" });
  const clients = h("div", { class: "stack" });
  const address = h("div", { class: "stack" });
  const upstreams = h("div", { class: "stack" });
  clear(
    root,
    h("div", { class: "screen-head" }, h("h1", null, title), jsonLink("/setup")),
    h("p", { class: "lead" }, "What riglm needs: servers that answer, and clients that use it."),
    checks,
    upstreams,
    clients,
    address,
    overall,
  );
  const loadUpstreams = async () => {
    const answer = await get("/upstreams");
    update(upstreams, upstreamPart(answer.upstreams));
  };
  const loadSetup = async () => {
    try {
      const [setup, overview] = await Promise.all([get("/setup"), getIfPossible("/overview")]);
      update(checks, checkPart(setup.checks));
      update(clients, clientPart(setup.clients, overview));
      update(address, addressPart(setup.clients));
    } catch (error) {
      // The upstreams are worth showing without the checks.
      if (error.status !== 404 && error.status !== 503 && error.status !== 500) {
        throw error;
      }
      update(checks, notice("warning", `The checks cannot be shown: ${error.detail}. In a terminal, riglm doctor makes the same.`));
      update(clients);
      update(address);
    }
  };
  await Promise.all([loadUpstreams(), loadSetup()]);
  update(overall, documents());
  const states = watch(["upstream_changed", "tools_seen", "session_opened", "session_closed", "change_held", "config_changed"], loadUpstreams);
  // riglm makes the checks every ten seconds at most.
  const slow = watch(["upstream_changed", "session_introduced", "session_closed", "config_changed"], loadSetup, { pause: 10_000 });
  return {
    stop() {
      states.stop();
      slow.stop();
    },
  };
}

function checkPart(checks) {
  const fine = checks.filter((check) => check.status === "ok");
  const others = ORDER.flatMap((status) => checks.filter((check) => check.status === status));
  const [problems, warnings] = ORDER.map((status) => checks.filter((check) => check.status === status).length);
  const list = (items) => h("ul", { class: "muted-list lined" }, items.map((check) => h("li", null, checkRow(check))));
  let heading = "Everything is fine";
  let subtitle = "Neither a problem nor a warning was found.";
  if (problems > 0) {
    heading = plural(problems, "problem");
    subtitle = "Cure these first.";
  } else if (others.length > 0) {
    heading = plural(warnings, "warning");
    subtitle = "Nothing is broken.";
  }
  return section(
    heading,
    subtitle,
    others.length > 0 ? list(others) : null,
    fine.length > 0
      ? h("details", { "data-key": "fine" }, h("summary", null, `${plural(fine.length, "check")} without a problem`), list(fine))
      : null,
  );
}

function checkRow(check) {
  const { kind, word } = LEVELS[check.status] ?? { kind: "", word: check.status };
  return h(
    "div",
    { class: "stack" },
    h("div", { class: "row" }, tag(word, kind), h("strong", null, check.check), h("span", null, prose(check.text))),
    check.cure ? cure(withCommands(check.cure)) : null,
  );
}

function cure(...parts) {
  return h("p", null, h("span", { class: "dim" }, "Cure: "), parts);
}

/** Returns a text with its commands as code, each with a button that copies it. */
function withCommands(text) {
  // A command may stand between backticks.
  const words = text.replace(/`([^`]*)`/g, (quoted, inner) => (inner.match(COMMAND)?.[0] === inner ? inner : quoted));
  const parts = [];
  let from = 0;
  for (const match of words.matchAll(COMMAND)) {
    const end = match.index + match[0].length;
    parts.push(prose(words.slice(from, match.index)), command(match[0]), purposeOf(match[0], words.slice(end)));
    from = end;
  }
  return [...parts, prose(words.slice(from))];
}

function command(line) {
  const code = h("code", null, line);
  return h("span", null, code, copyButton(code));
}

/** Creates the button that copies the text of an element; `name` says what that is. */
function copyButton(code, name = code.textContent) {
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      toast("Copied.");
    } catch {
      // Without access to the clipboard, the command is selected for the keyboard.
      getSelection().selectAllChildren(code);
      toast("Selected: copy it with the keyboard.");
    }
  };
  return h("button", { type: "button", class: "btn quiet", "aria-label": `Copy ${name}`, on: { click: copy } }, "Copy");
}

/** Names the clients that are connected, each once; `null` if there is none, or if they are not known. */
function connectedPart(overview) {
  const open = overview?.open_sessions ?? [];
  if (open.length === 0) {
    return null;
  }
  const names = [...new Set(open.map(clientName))].join(", ");
  return h("p", null, tag("connected", "ok"), ` ${names}${overview.more_open_sessions ? ", and others" : ""}`);
}

/** Returns the address for clients, and an entry of a file that many clients read. */
function addressPart(clients) {
  const entry = (clients.find((client) => client.id === "claude-code" && client.entry) ?? clients.find((client) => client.entry?.url))?.entry;
  if (!entry) {
    return section(
      "Address for clients",
      null,
      h("p", null, "It is not known here: riglm serves one client over its standard input and output, or its key has no variable. ", command("riglm clients"), " says more."),
    );
  }
  const snippet = h("code", null, JSON.stringify({ mcpServers: { [ENTRY_NAME]: entry } }, null, 2));
  return section(
    "Address for clients",
    "For a client that riglm does not know, or that you set up yourself.",
    h("p", null, command(entry.url)),
    h("p", null, "Many clients read such an entry from a JSON file; docs/clients.md has the notations of the others:"),
    h("pre", { class: "scroll json-text", tabindex: "0", "aria-label": "Entry for a client" }, snippet),
    h("div", { class: "row" }, copyButton(snippet, "the entry for a client")),
  );
}

function clientPart(clients, overview) {
  const installed = clients.filter((client) => client.is_installed);
  const others = clients.filter((client) => !client.is_installed);
  if (clients.length === 0) {
    return section("Clients", null, connectedPart(overview), empty("No clients are known", "The user of riglm has no home directory, so its clients cannot be found."));
  }
  const withRiglm = installed.filter((client) => client.riglm === "yes").length;
  return section(
    "Clients",
    installed.length > 0
      ? `${number(withRiglm)} of ${number(installed.length)} installed clients have riglm.`
      : null,
    connectedPart(overview),
    installed.length > 0
      ? h("ul", { class: "muted-list lined" }, installed.map((client) => h("li", { "data-key": client.id }, clientRow(client))))
      : empty(
          "No MCP client is installed on this machine",
          h("span", null, "Install one that riglm knows, and run ", command("riglm setup"), ": it adds riglm to your clients. For others, use the address below."),
        ),
    others.length > 0
      ? h(
          "details",
          { "data-key": "others" },
          h("summary", null, `${plural(others.length, "client")} that riglm knows, not installed here`),
          h("p", { class: "dim" }, others.map((client) => client.name).join(", ")),
          elsewhere(others),
        )
      : null,
  );
}

/** Returns links for clients that were not found, such as portable ones. */
function elsewhere(others) {
  const links = others.map(installLink).filter(Boolean);
  return links.length > 0
    ? [h("p", null, "If one of these is installed in another place, its link adds riglm to it:"), h("div", { class: "row" }, links)]
    : null;
}

function clientRow(client) {
  const state = CLIENT_STATES[client.riglm] ?? { kind: "", word: client.riglm };
  const files = client.files.length > 0 ? client.files.join("\n") : null;
  return h(
    "div",
    { class: "stack" },
    h(
      "div",
      { class: "row" },
      h("strong", null, client.name),
      tag(state.word, state.kind, files),
      h("span", { class: "dim" }, client.last_seen ? ["last seen ", agoNode(client.last_seen)] : "not seen yet"),
    ),
    state.needs === "install"
      ? cure(withCommands(`riglm install --client ${client.id}`), installLink(client) ? [" or ", installLink(client)] : null)
      : null,
    state.advice ? h("p", { class: "dim" }, state.advice, files ? ` (${client.files.join(", ")})` : null) : null,
    client.riglm === "yes" && !client.last_seen
      ? h("p", { class: "dim" }, "Start it anew, so that it connects.")
      : null,
  );
}

/** A program and a server on the network, as the configuration file names them. */
const SERVER_ENTRIES = `[upstreams.files]
command = ["npx", "-y", "@modelcontextprotocol/server-filesystem", "/home/me/documents"]

[upstreams.search]
url = "https://search.example/mcp"`;

/** Says how servers are added: by a command, or in the configuration file. */
function addServers() {
  const entries = h("code", null, SERVER_ENTRIES);
  return [
    h("p", null, command("riglm import"), " takes over the servers of your MCP clients, and ", command("riglm init"), " writes a configuration file."),
    h("p", null, "In the configuration file, ", h("code", null, "riglm.toml"), ", servers look like this:"),
    h("pre", { class: "scroll json-text", tabindex: "0", "aria-label": "Entries for servers" }, entries),
    h("div", { class: "row" }, copyButton(entries, "the entries for servers")),
    h("p", { class: "dim small" }, "riglm uses them as soon as you save the file."),
  ];
}

function upstreamPart(upstreams) {
  if (upstreams.length === 0) {
    return section(
      "Upstreams",
      null,
      empty("No upstream is configured", "riglm has no servers to offer."),
      addServers(),
    );
  }
  const rank = { unavailable: 0, starting: 1, available: 2, unused: 3 };
  const sorted = [...upstreams].sort((a, b) => rank[a.state] - rank[b.state]);
  const down = upstreams.filter((upstream) => upstream.state === "unavailable").length;
  return section(
    "Upstreams",
    down > 0 ? `${number(down)} of ${number(upstreams.length)} cannot be reached.` : "The servers behind riglm.",
    h("ul", { class: "muted-list lined" }, sorted.map((upstream) => h("li", { "data-key": upstream.name }, upstreamRow(upstream)))),
    h("details", { "data-key": "add" }, h("summary", null, "Add a server"), addServers()),
    h("div", { class: "row end" }, jsonLink("/upstreams")),
  );
}

function upstreamRow(upstream) {
  const { kind, text } = UPSTREAM_STATES[upstream.state] ?? { kind: "", text: "" };
  const facts = [
    upstream.tool_set ? plural(upstream.tool_set.tools, "tool") : "tools not listed yet",
    plural(upstream.connections, "connection"),
  ];
  if (upstream.waiting > 0) {
    facts.push(`${plural(upstream.waiting, "session")} waiting for one`);
  }
  if (upstream.left_out > 0) {
    facts.push(`missing in ${plural(upstream.left_out, "list")}, because it was starting or down`);
  }
  if (upstream.tool_set?.changes > 0) {
    facts.push(`tools changed ${plural(upstream.tool_set.changes, "time")} since the start`);
  }
  return h(
    "div",
    { class: "stack" },
    h(
      "div",
      { class: "row" },
      tag(upstream.state, kind, text),
      h("a", { class: "cut mono", href: `#/tools?upstream=${encodeURIComponent(upstream.name)}` }, upstream.name),
      h("span", { class: "dim" }, facts.join(", ")),
      upstream.held.length > 0 ? h("a", { href: "#/changes" }, `${plural(upstream.held.length, "held change")}`) : null,
    ),
    // A server may have written it, so it offers no commands.
    upstream.reason ? h("p", null, prose(upstream.reason)) : null,
  );
}

function documents() {
  const names = [
    ["docs/clients.md", "how each client is connected"],
    ["docs/doctor.md", "all checks, as riglm doctor makes them"],
    ["docs/why-is-my-tool-not-listed.md", "states of upstreams, and why a tool is hidden"],
    ["docs/configuration.md", "every key of the configuration"],
  ];
  return section(
    "To read",
    "These documents are in the folder docs of the source of riglm: look where you got the program.",
    h("dl", { class: "facts" }, names.map(([name, text]) => [h("dt", null, h("code", null, name)), h("dd", null, text)])),
  );
}
