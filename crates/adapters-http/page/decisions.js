// Decisions of operators about tools: the dialog that makes one, and the list of those in effect.

import { del, getIfPossible, post, scopes } from "./api.js";
import { confirmAction, clear, h, openDialog, tag, toast } from "./dom.js";
import { ago, agoNode, now } from "./format.js";

export const ACTIONS = {
  pin: { label: "Pin", kind: "ok", effect: "Always listed, before all others. A client that loads tools on demand loads it at once." },
  include: { label: "Include", kind: "ok", effect: "Always listed, too, but not in front. A client that loads tools on demand loads it when it needs it." },
  exclude: { label: "Exclude", kind: "warn", effect: "Not listed. A search still finds it, and it can be called." },
  forbid: { label: "Forbid", kind: "bad", effect: "Not listed and not found, and calls of it are refused." },
};

/** Returns what an action does, after its name. */
export const actionWords = ({ label, effect }) => [h("strong", null, label), `: ${effect.charAt(0).toLowerCase()}${effect.slice(1)}`];

const ENDS = [
  { hours: 0, label: "Until it is removed" }, { hours: 1, label: "For an hour" },
  { hours: 24, label: "For a day" }, { hours: 168, label: "For a week" },
];

/** The longest name that the control API takes. */
const MAX_NAME = 10_000;
/** The most sessions whose clients the dialog offers. */
const MAX_CLIENTS = 100;

/** What the dialog says about clients. */
const CLIENT_NOTE = "A client is a name, a version and a user. After an update it is another client, and this decision "
  + "no longer applies to it. A profile, or all clients, covers every version.";

/** Returns why this token may not decide about tools, or `null` if it may. */
export function denial() {
  return scopes().has("override") ? null : "This token has no scope override, so it may not decide about tools.";
}

/** Returns a client with its version, as readers tell clients apart. */
export function clientName({ client, client_version: version }) {
  return `${client || "a client without a name"}${version ? ` ${version}` : ""}`;
}

/** Whether a dialog waits for what it offers. */
let isOpening = false;

/**
 * Opens the dialog for a decision about a tool, unless one is about to open. `tool` has its `upstream` and `tool`, and its `name`
 * if clients see another one. `session` (`{ id, isOver, hasSharedList }`), `client` (`{ id, name }`) and
 * `profile` (a name) say where the reader is; without them, the dialog offers known ones.
 * `onSaved` is called after the decision is stored.
 */
export async function decide(question) {
  if (isOpening) return;
  isOpening = true;
  try {
    const { client = null, profile = null } = question;
    const [ofClient, ofProfile] = await Promise.all([clientPlace(client), profilePlace(profile)]);
    openDecision(question, ofClient, ofProfile);
  } finally {
    isOpening = false;
  }
}

function openDecision({ tool, action = "pin", session = null, onSaved = () => {} }, ofClient, ofProfile) {
  const places = [
    session ? { value: "session", label: "This session", ids: [{ id: session.id }], note: noteOf(session) } : null,
    ofClient,
    ofProfile,
    { value: "global", label: "All clients", ids: [{}] },
  ].filter((place) => place?.ids.length > 0);
  // Where lists do not depend on a session, riglm refuses all other decisions for one session.
  const isForSession = (chosen) => !session.isOver && (!session.hasSharedList || chosen === "forbid");
  const usual = session ? places[isForSession(action) ? 0 : 1] : places.at(-1);
  const reason = h("input", { type: "text", id: "decide-reason", maxlength: "1000", autocomplete: "off" });
  const end = h("select", { id: "decide-end" }, ENDS.map(({ hours, label }) => h("option", { value: String(hours) }, label)));
  const error = h("p", { class: "form-error", role: "alert" });
  const start = h("p", { class: "dim small" });
  const submit = h("button", { type: "submit", class: "btn primary" }, "Save the decision");
  const form = h("form", { class: "stack", on: { submit: save, change: follow } },
    h("fieldset", null, h("legend", null, "What"),
      Object.entries(ACTIONS).map(([value, one]) => h("label", null, radio("action", value, action), h("span", null, actionWords(one))))),
    h("fieldset", null, h("legend", null, "For whom"), places.map((place) => placeRow(place, usual.value))),
    places.some(({ value }) => value === "client") ? h("p", { class: "dim small" }, CLIENT_NOTE) : null,
    h("div", { class: "field" }, h("label", { for: "decide-end" }, "How long"), end),
    h("div", { class: "field" }, h("label", { for: "decide-reason" }, "Reason (optional, for the audit trail)"), reason),
    start, error,
    h("div", { class: "row end" }, submit));
  const dialog = openDialog("Decide about a tool",
    h("p", { class: "mono" }, h("span", { class: "dim" }, `${tool.upstream} `), tool.tool.slice(0, 500)),
    form);
  follow();
  form.querySelector("input:checked")?.focus();

  /** Adapts the form to what is chosen. */
  function follow(event) {
    if (event?.target.dataset?.place) form.querySelector(`input[value=${event.target.dataset.place}]`).checked = true;
    const isForbidding = new FormData(form).get("action") === "forbid";
    const own = form.querySelector("input[value=session]");
    if (own) {
      own.disabled = !isForSession(isForbidding ? "forbid" : "");
      if (own.disabled && own.checked) form.querySelector("input[name=scope]:enabled").checked = true;
    }
    clear(start, isForbidding
      ? "Calls are refused at once."
      : "From the next list on: riglm tells clients within two seconds that their list changed, and they ask for it again.");
    submit.className = `btn ${isForbidding ? "danger" : "primary"}`;
  }

  async function save(event) {
    event.preventDefault();
    const data = new FormData(form);
    const kind = data.get("scope");
    const place = places.find(({ value }) => value === kind);
    const id = data.get(`${kind}-id`) ?? place.ids[0].id;
    const body = { tool: tool.name ?? nameOf(tool), action: data.get("action"), scope: id ? { kind, id } : { kind } };
    if (Number(end.value)) body.expires_at = new Date(now() + Number(end.value) * 3_600_000).toISOString();
    if (reason.value.trim()) body.reason = reason.value.trim();
    submit.disabled = true;
    try {
      const made = await post("/override", body);
      dialog.close();
      toast(made.note ?? (body.action === "forbid" ? "Saved. Calls are refused from now on." : "Saved. It applies from the next list on."));
    } catch (failure) {
      clear(error, failure.detail ?? failure.message);
      submit.disabled = false;
      return;
    }
    await onSaved();
  }
}

/** Returns a name of a tool that tells tools of one name apart. */
function nameOf({ upstream, tool }) {
  const prefixed = `${upstream}__${tool}`;
  return prefixed.length <= MAX_NAME ? prefixed : tool;
}

/** Returns why a decision for a session cannot be made, or not in each case; `null` if it can. */
function noteOf({ isOver, hasSharedList }) {
  if (isOver) return "It is over.";
  return hasSharedList ? "Only with \"Forbid\": this client has one list for all its sessions, as its protocol revision demands." : null;
}

const radio = (name, value, chosen, more) => h("input", { type: "radio", name, value, checked: value === chosen, ...more });

function placeRow({ value, label, ids, note }, chosen) {
  const noteId = note ? `decide-${value}-note` : null;
  const choice = ids.length > 1
    ? h("select", { name: `${value}-id`, "data-place": value, "aria-label": label }, ids.map(({ id, name }) => h("option", { value: id }, name)))
    : null;
  return [
    h("div", { class: "row" }, h("label", null, radio("scope", value, chosen, { "aria-describedby": noteId }), h("span", null, label)), choice),
    note ? h("p", { class: "dim small place-note", id: noteId }, note) : null,
  ];
}

async function clientPlace(client) {
  if (client?.id) return { value: "client", label: `All sessions of ${(client.name ?? "this client").slice(0, 100)}`, ids: [{ id: client.id }] };
  const known = new Map((await getIfPossible(`/sessions?limit=${MAX_CLIENTS}`))?.sessions
    .map((one) => [one.client_id, `${clientName(one).slice(0, 100)}, user ${one.principal.slice(0, 50)}`]));
  return placeOf("client", "All sessions of a client", known);
}

async function profilePlace(profile) {
  const names = profile ? [profile] : Object.keys((await getIfPossible("/config"))?.effective.profiles ?? {});
  return placeOf("profile", "All sessions of a profile", new Map(names.map((name) => [name, name])));
}

function placeOf(value, label, known) {
  const ids = [...known].map(([id, name]) => ({ id, name }));
  // A single one needs no choice, but its name.
  return { value, label: ids.length === 1 ? `${label}: ${ids[0].name}` : label, ids };
}

/**
 * Creates the list of decisions. `label(one)` is what stands before each, `isPending(one)` whether
 * the newest list does not follow it yet, `client` (`{ id, name }`) the client of the screen,
 * whose name may be `null`, and `reload` shows them again.
 */
export function decisionList(overrides, { label = () => null, isPending = () => false, client = null, reload }) {
  return h("ul", { class: "muted-list" }, overrides.map((one) => {
    const { kind, effect } = ACTIONS[one.action] ?? {};
    return h("li", { "data-key": one.id },
      tag(one.action, kind, effect),
      label(one),
      h("span", { class: "cut", title: one.scope.id }, scopeWords(one.scope, client)),
      isPending(one) ? tag("from the next list on", "info", "The newest list was made before this decision") : null,
      h("span", { class: "dim small" },
        one.reason ? `"${one.reason}", ` : "", `by ${one.created_by}, `, agoNode(one.created_at),
        one.expires_at ? [", ends ", h("span", null, ago(one.expires_at))] : ""),
      h("button", {
        type: "button", class: "btn small", disabled: denial() !== null, title: denial(),
        "aria-label": `Remove the decision about ${one.tool.slice(0, 100)}`,
        on: { click: () => remove(one, reload) },
      }, "Remove"));
  }));
}

function scopeWords({ kind, id }, client) {
  // Decisions for everybody have no id, and screens without a client no client.
  const isOwn = client !== null && client.id === id;
  return {
    session: "for one session",
    client: isOwn && client.name === null ? "for this client" : `for the client ${isOwn ? client.name : id}`,
    profile: `for the profile ${id}`,
    global: "for all clients",
  }[kind] ?? kind;
}

async function remove(one, reload) {
  if (!(await confirmAction(`Remove the decision "${one.action}" about ${one.tool.slice(0, 200)}?`, "Remove"))) return;
  try {
    await del(`/overrides/${encodeURIComponent(one.id)}`);
    toast("Removed. The next list follows.");
  } catch (error) {
    // With 404, someone else removed it: then the new list of decisions shows it.
    if (error.status !== 404) throw error;
  }
  await reload();
}
