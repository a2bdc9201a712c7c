/** HTTP requests by fetch, each under one idempotency key, retried until answered. */
import {Refused, ServerUnavailable} from "./errors.js";
import {encodeBody, isObject, newKey, parseJson} from "./json.js";
import type {Answer} from "./json.js";

const RETRY_STATUSES: readonly number[] = [500, 502, 503, 504];
const FIRST_RETRY_S = 0.1;
const MAX_RETRY_S = 2;
const TIMEOUT_S = 10;

/** A 2xx response; `nowUs` is the server's time, if sent. */
export interface HttpAnswer {
  status: number;
  body: Answer;
  retryAfterS: number;
  nowUs: number | null;
}

/** Wait for some time. */
export function sleep(seconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, Math.max(0, seconds) * 1000));
}

/** Return the seconds of a clock that never goes back. */
export function readClock(): number {
  return performance.now() / 1000;
}

/** Sends requests to the Gatebook at `url`. */
export class HttpClient {
  readonly url: string;

  constructor(
    url: string,
    private readonly token: string,
    private readonly patienceS: number,
    private readonly fetcher: typeof fetch,
  ) {
    if (!url || !token) {
      const missing = url ? "a token (token, or GATEBOOK_TOKEN)" : "an address (url, or GATEBOOK_URL)";
      throw new TypeError(`Gatebook needs ${missing}.`);
    }
    if (!/^https?:\/\//.test(url)) {
      throw new TypeError(`The address ${url} is not valid. It must begin with http:// or https://.`);
    }
    this.url = url.replace(/\/+$/, "");
  }

  /** Read; empty parameters are left out. Throws ServerUnavailable, Refused. */
  get(
    path: string,
    params: Record<string, string | number | null | undefined> = {},
    timeoutS = TIMEOUT_S,
  ): Promise<HttpAnswer> {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(params)) {
      if (value !== "" && value !== null && value !== undefined) query.set(name, String(value));
    }
    const asked = query.toString();
    return this.ask("GET", asked ? `${path}?${asked}` : path, undefined, "", timeoutS);
  }

  /** Send one command, under `key` or a new one. Throws ServerUnavailable, Refused. */
  async post(path: string, body: unknown, key = newKey()): Promise<HttpAnswer> {
    return this.ask("POST", path, encodeBody(body), key, TIMEOUT_S);
  }

  private async ask(
    method: string,
    path: string,
    body: string | undefined,
    key: string,
    timeoutS: number,
  ): Promise<HttpAnswer> {
    const headers: Record<string, string> = {Authorization: `Bearer ${this.token}`};
    if (body !== undefined) {
      headers["Content-Type"] = "application/json";
      headers["Idempotency-Key"] = key;
    }
    let until: number | null = null;
    let waitS = FIRST_RETRY_S;
    for (;;) {
      let reason: string;
      let retryAfterS = 0;
      try {
        const response = await this.fetcher(`${this.url}/api/v1${path}`, {
          method,
          headers,
          redirect: "manual",
          signal: AbortSignal.timeout(timeoutS * 1000),
          ...(body === undefined ? {} : {body}),
        });
        const text = await response.text();
        retryAfterS = readRetryAfter(response);
        if (!RETRY_STATUSES.includes(response.status)) return readAnswer(response, text, retryAfterS);
        reason = `HTTP ${response.status}`;
      } catch (error) {
        if (error instanceof Refused) throw error;
        const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
        reason = cause instanceof Error ? cause.message || cause.name : String(cause);
      }
      // Counted from the first failure: a long poll may have taken long before.
      until ??= readClock() + this.patienceS;
      const pauseS = Math.max(waitS, retryAfterS);
      if (readClock() + pauseS > until) {
        throw new ServerUnavailable(`Gatebook does not answer at ${this.url} (${reason}).`);
      }
      await sleep(pauseS);
      waitS = Math.min(2 * waitS, MAX_RETRY_S);
    }
  }
}

function readAnswer(response: Response, text: string, retryAfterS: number): HttpAnswer {
  let body: unknown;
  try {
    body = parseJson(text);
  } catch {
    body = null;
  }
  if (!isObject(body)) {
    throw new Refused(response.status, {
      code: "not_gatebook",
      detail: "The server at this address is not a Gatebook. Check the address",
    });
  }
  if (!response.ok) throw new Refused(response.status, {...body, retry_after_s: retryAfterS});
  const now = Date.parse(response.headers.get("Date") ?? "");
  return {
    status: response.status,
    body,
    retryAfterS,
    nowUs: Number.isNaN(now) ? null : Math.trunc(now / 1000) * 1_000_000,
  };
}

function readRetryAfter(response: Response): number {
  const value = response.headers.get("Retry-After") ?? "";
  return /^\d+$/.test(value) ? Number(value) : 0;
}
