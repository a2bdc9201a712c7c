/** Waiting for people, for the in-flight window and for the end of a stop. */
import {NotYet, PermissionRefused, Refused, ServerUnavailable} from "./errors.js";
import type {WaitReason} from "./errors.js";
import {readClock, sleep} from "./http.js";
import type {HttpClient} from "./http.js";
import type {Answer} from "./json.js";

const WAIT_S = 45; // maximum duration of one long poll
/** Seconds between two checks of a state without a long poll. */
export const PAUSE_S = 2;
const CHECK_EVERY_S = 5;

/** Reasons of verdicts that wait, as reasons of NotYet; all others are the in-flight window. */
export const REASON_OF_VERDICT: Record<string, WaitReason> = {
  GATE_PENDING: "people",
  STOPPED: "stop",
  LEASE_HELD: "lease",
  PROBE_FAILED: "probe",
};

/** What waits need of their session. */
export interface Waiter {
  readonly http: HttpClient;
  checkActive(): void;
}

/** Limits of waits, in seconds; undefined: without a limit; 0: do not wait. */
export interface WaitOptions {
  /** The default of both others. */
  waitS?: number | undefined;
  /** Limits the waits that only a person ends. */
  waitForPeopleS?: number | undefined;
  /** Limits the waits that end by themselves. */
  waitForWindowsS?: number | undefined;
}

/** Until when to wait, on the clock of `readClock`. */
export class Limits {
  readonly people: number | null;
  readonly windows: number | null;

  constructor(how: WaitOptions) {
    const until = (seconds: number | undefined): number | null => {
      const limit = seconds ?? how.waitS;
      if (limit === undefined) return null;
      if (!(limit >= 0)) throw new RangeError("A wait is 0 or more seconds.");
      return readClock() + limit;
    };
    this.people = until(how.waitForPeopleS);
    this.windows = until(how.waitForWindowsS);
  }

  /** Return the limit for a reason of NotYet. */
  getLimit(reason: WaitReason): number | null {
    return reason === "people" || reason === "stop" ? this.people : this.windows;
  }
}

/**
 * Wait until the gate of an effect is approved.
 *
 * Throws PermissionRefused if it is not, NotYet at the limit for people. Each request is answered
 * as soon as the gate is newer than the version sent with it, so no ruling is missed.
 */
export async function waitForPermission(
  session: Waiter,
  effect: Answer,
  limits: Limits,
): Promise<void> {
  let gateId = String(effect["gate"].id);
  const until = limits.people;
  let version = 0;
  for (;;) {
    session.checkActive();
    const leftS = until === null ? WAIT_S : Math.max(0, until - readClock());
    const waitS = Math.trunc(Math.min(WAIT_S, leftS));
    const answer = await session.http
      .get(`/gates/${gateId}`, {wait: waitS, since: version}, waitS + 10)
      .catch((error: unknown) => {
        if (!(error instanceof ServerUnavailable)) throw error;
        const tool = effect["tool"] || "The effect";
        throw error.withConsequence(`${tool} was not begun; it waits for permission.`);
      });
    const gate = answer.body;
    if (gate["status"] === "approved" && !gate["stopped"]) return;
    if (gate["reason"] === "undone") {
      // The reviewer took the answer back: wait for the request that was made again.
      const again = (await session.http.get(`/effects/${effect["id"]}`)).body["gate"]?.id;
      if (again && again !== gateId) {
        gateId = String(again);
        version = 0;
        continue;
      }
    }
    if (gate["status"] !== "pending" && gate["status"] !== "approved") {
      throw buildRefusedPermission(String(effect["id"]), gate);
    }
    version = Number(gate["version"]);
    if (until !== null && readClock() >= until) throw buildNotYet(session, effect, gate);
    await sleep(answer.retryAfterS);
  }
}

/** Build the error for a gate that was not approved. */
export function buildRefusedPermission(effect: string, gate: Answer): PermissionRefused {
  const status = String(gate["status"] || "refused");
  return new PermissionRefused(effect, status, String(gate["message"] || ""), listComments(gate));
}

/** Return what people wrote on a request, oldest first. */
function listComments(gate: Answer): string[] {
  return (gate["comments"] ?? []).map((comment: Answer) => String(comment["text"]));
}

/** Build the error for a gate that is not approved, or under a stop. */
export function buildNotYet(session: Waiter, effect: Answer, gate: Answer): NotYet {
  const stopped = Boolean(gate["stopped"]);
  const sentence = stopped ? "is under a stop" : "is not approved yet";
  return new NotYet(`${effect["handle"] || effect["tool"]} ${sentence}; nothing was begun.`, {
    effect: String(effect["id"]),
    reason: stopped ? "stop" : "people",
    untilUs: stopped ? null : (gate["decide_by_us"] ?? null),
    gate: String(gate["id"]),
    gateUrl: gate["page"] ? `${session.http.url}${gate["page"]}` : "",
    comments: listComments(gate),
  });
}

/** Sleep; throws NotYet with the sentence if the sleep would pass the limit for `reason`. */
export async function sleepOrThrow(
  session: Waiter,
  seconds: number,
  limits: Limits,
  sentence: string,
  why: {effect?: string; reason: WaitReason; untilUs?: number | null},
): Promise<void> {
  const until = limits.getLimit(why.reason);
  if (until !== null && readClock() + seconds > until) {
    const ending = "Nothing was begun; try again later.";
    throw new NotYet(`${sentence.replace(/\.+$/, "")}. ${ending}`, why);
  }
  for (let left = seconds; left > 0; left -= CHECK_EVERY_S) {
    await sleep(Math.min(left, CHECK_EVERY_S));
    session.checkActive();
  }
}

/** Return the reason of NotYet for a refusal that ends, or null for any other. */
export function getPauseReason(refusal: Refused): WaitReason | null {
  if (refusal.code === "STOPPED") return "stop";
  if (refusal.status === 429) return refusal.code === "BREAKER_OPEN" ? "breaker" : "pace";
  return null;
}

/** Return how long until a moment of the server's clock, rounded up slightly. */
export function secondsUntil(
  untilUs: number | null,
  nowUs: number | null,
  otherwise: number,
): number {
  if (untilUs === null) return otherwise;
  return Math.max((untilUs - (nowUs ?? Date.now() * 1000)) / 1_000_000, 0) + 0.05;
}
