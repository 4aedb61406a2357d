// A client of riglm for agents on the SDK of a model provider.

// The longest time for a tool call; riglm itself ends calls after limits.call_timeout.
const DEADLINE_MS = 120_000;

/** The tools of one conversation. */
export class Riglm {
  readonly #base: string;
  readonly #headers: Record<string, string>;

  constructor(provider: "anthropic" | "openai") {
    const url = process.env.RIGLM_URL ?? "http://127.0.0.1:8642";
    this.#base = `${url.replace(/\/$/, "")}/sdk/${provider}`;
    // Each conversation has a key of its own: its list of tools stays the same.
    this.#headers = { "X-Riglm-Session": crypto.randomUUID(), "Content-Type": "application/json" };
    if (process.env.RIGLM_KEY) {
      this.#headers.Authorization = `Bearer ${process.env.RIGLM_KEY}`;
    }
  }

  /** Returns the `tools` of a request to the provider. */
  async tools<T>(task: string): Promise<T[]> {
    const list = await this.#send<{ tools: T[] }>(`?${new URLSearchParams({ query: task })}`);
    return list.tools;
  }

  /** Returns the results of the blocks with which a model searches and calls tools. */
  call<T>(blocks: unknown[]): Promise<T[]> {
    return this.#send<T[]>("/call", JSON.stringify(blocks));
  }

  async #send<T>(path: string, body?: string): Promise<T> {
    const response = await fetch(this.#base + path, {
      method: body === undefined ? "GET" : "POST",
      headers: this.#headers,
      body,
      signal: AbortSignal.timeout(DEADLINE_MS),
    });
    const answer = await response.json();
    if (!response.ok) {
      throw new Error(`riglm: ${response.status} ${answer.detail}`);
    }
    return answer as T;
  }
}
