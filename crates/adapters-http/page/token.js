// The token of the control API. It is asked for once, is kept for this tab, and is never part of
// an address.

import { loadScopes, send } from "./api.js";
import { clear, h } from "./dom.js";

const KEY = "riglm.token";
const CODE = /^#code=([^&]+)/;

let token = null;
let onRejected = () => {};

/** Returns the token, or `null`. */
export function current() {
  return token;
}

/** Calls `fn(reason)` when the token is refused or the reader signs out. */
export function whenRejected(fn) {
  onRejected = fn;
}

function keep(value) {
  token = value;
  try {
    if (value) sessionStorage.setItem(KEY, value);
    else sessionStorage.removeItem(KEY);
  } catch {
    // Without storage the token lasts as long as the page.
  }
}

function stored() {
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return null;
  }
}

/** Forgets the token and asks for another one. */
export function reject(reason) {
  if (token === null) return;
  keep(null);
  onRejected(reason);
}

/** Forgets the token. */
export function signOut() {
  reject("");
}

/** Returns whether the address has a one-time code of `riglm open`. */
export function hasCode() {
  return CODE.test(location.hash);
}

/**
 * Takes the token from the one-time code in the address, or from the storage of the tab. Returns
 * the reason if there is none.
 */
export async function restore() {
  const code = CODE.exec(location.hash)?.[1];
  if (code === undefined) {
    token = stored();
    return token ? null : "";
  }
  // The code leaves the address before anything else: a code is valid once, but a reload or a
  // bookmark of it would only show an error.
  history.replaceState(null, "", "#/now");
  try {
    const answer = await send("POST", "/page/tokens", { body: { code: decodeURIComponent(code) }, token: null });
    keep((await answer.json()).token);
    return null;
  } catch (error) {
    token = stored();
    if (token) return null;
    return error.status === 404
      ? "This link was used before, or is older than a minute. Run riglm open again."
      : `The link could not be used: ${error.detail ?? error.message}`;
  }
}

/** Tries a token and keeps it if it may read. Returns the reason if it cannot be used. */
async function tryToken(value) {
  // A header cannot carry other characters.
  if (!/^[\x21-\x7e]+$/.test(value)) {
    return "A token has no spaces and no special characters. Copy the whole line of the file.";
  }
  try {
    const { scopes } = await (await send("GET", "/token", { token: value })).json();
    if (!scopes.includes("read")) {
      return `This token does not have the scope "read" (it has: ${scopes.join(", ") || "none"}). Use another one.`;
    }
    keep(value);
    await loadScopes();
    return null;
  } catch (error) {
    if (error.status === 401) return "riglm does not know this token. Copy the whole line, without quotes.";
    return error.detail ?? error.message;
  }
}

/** Shows the form for the token. Resolves when there is a valid one. */
export function ask(root, reason) {
  return new Promise((resolve) => {
    const message = h("p", { class: "form-error", id: "token-error", role: "alert" }, reason);
    const input = h("input", {
      id: "token", name: "riglm-token", type: "password", required: true, autocomplete: "off",
      spellcheck: "false", autocapitalize: "off", "aria-describedby": "token-error token-help",
    });
    const button = h("button", { class: "btn primary", type: "submit" }, "Open the page");
    const submit = async (event) => {
      event.preventDefault();
      const value = input.value.trim();
      if (!value) return;
      button.disabled = true;
      // A header cannot carry other characters.
      const error = await tryToken(value);
      button.disabled = false;
      if (error === null) {
        resolve();
        return;
      }
      clear(message, error);
      input.setAttribute("aria-invalid", "true");
      input.select();
    };
    clear(root,
      h("form", { class: "card token-form", on: { submit } },
        h("h1", null, "Open the riglm page"),
        h("p", null, "This page shows which tools riglm lists to its clients, and why. It needs the token of the control API."),
        h("div", { class: "field" },
          h("label", { for: "token" }, "Token"),
          input),
        message,
        h("div", { class: "row" }, button),
        h("div", { id: "token-help", class: "dim" },
          h("p", null, "On the machine of riglm, either run ", h("code", null, "riglm open"),
            ", which opens this page with a one-time link, or paste the output of ",
            h("code", null, "cat DATA_DIR/control.token"), ". By default, DATA_DIR is ",
            h("code", null, "~/.local/share/riglm"), "."),
          h("p", null, "The token stays in this tab until you close it or sign out. It is never part of an address."))));
    input.focus();
  });
}
