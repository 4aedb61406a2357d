// Requests to the control API.

import { syncClock } from "./format.js";
import { current, reject } from "./token.js";

const TIMEOUT_MS = 20_000;

/** An error of the control API: its status (0 if there was no answer) and the reason. */
export class ApiError extends Error {
  constructor(status, detail) {
    super(detail);
    this.name = "ApiError";
    this.status = status;
    this.detail = detail;
  }
}

/**
 * Sends a request with a token and returns the answer as it is.
 *
 * Throws `ApiError`. If the token is not valid (any longer), the page asks for another one.
 */
export async function send(method, path, { body, token = current(), signal } = {}) {
  const headers = {};
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
      redirect: "error",
      signal: signal ?? AbortSignal.timeout(TIMEOUT_MS),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    const detail = error.name === "TimeoutError"
      ? "riglm did not answer within 20 seconds."
      : "riglm does not answer. Does it still run?";
    throw new ApiError(0, detail);
  }
  if (response.ok) return response;
  const problem = await response.json().catch(() => null);
  if (response.status === 401 && token === current()) reject("This token is not valid (any longer).");
  throw new ApiError(response.status, problem?.detail ?? `riglm answered with the status ${response.status}.`);
}

async function json(method, path, options) {
  const response = await send(method, path, options);
  const body = response.status === 204 ? null : await response.json();
  syncClock(body?.at ?? response.headers.get("date"));
  return body;
}

/** Requests a path and returns the JSON of the answer. Throws `ApiError`. */
export const get = (path) => json("GET", path);

/** Requests a path that a view can do without. Returns `null` instead of an error. */
export async function getIfPossible(path) {
  try {
    return await get(path);
  } catch {
    return null;
  }
}

/** Posts a body as JSON and returns the JSON of the answer. Throws `ApiError`. */
export const post = (path, body) => json("POST", path, { body });

/** Deletes what a path names. Throws `ApiError`. */
export const del = (path) => json("DELETE", path);

let known = new Set();

/** Asks riglm what the token may do. Throws `ApiError`. */
export async function loadScopes() {
  known = new Set((await get("/token")).scopes);
}

/** Returns the scopes of the token: `read`, `override`, `config`, `data`. */
export function scopes() {
  return known;
}
