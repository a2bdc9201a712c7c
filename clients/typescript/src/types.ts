/** Data types of acts, probes and results. */
import {encodeBody, isObject, parseJson} from "./json.js";
import type {Answer, Json} from "./json.js";

/** Statuses of a session that accepts no new effects. */
export const ENDED: readonly string[] = ["completed", "failed", "cancelled"];
const RESULT_BYTES = 200_000;

/** The result of an act: return it where the remote names what happened. */
export class Result {
  readonly outcome: "ok" | "error" | "unknown";
  readonly reference: string;
  readonly result: unknown;

  constructor(
    fields: {outcome?: "ok" | "error" | "unknown"; reference?: string; result?: unknown} = {},
  ) {
    this.outcome = fields.outcome ?? "ok";
    this.reference = fields.reference ?? "";
    this.result = fields.result ?? null;
  }
}

/** An attempt whose outcome a probe finds. `arguments` is undefined if they cannot be read. */
export interface AttemptInfo {
  effect: string;
  handle: string;
  effectKey: string;
  tool: string;
  arguments: any;
  attempt: number;
  remoteKey: string;
  reference: string;
}

/** The function that acts: it gets the remote key of the attempt. */
export type Act = (remoteKey: string) => unknown;
/** Null or false: it did not happen. True or a reference: it happened. Several: more than once. */
export type ProbeAnswer = string | boolean | null | undefined | readonly string[];
/** A function that asks the remote whether an attempt happened. */
export type Probe = (attempt: AttemptInfo) => ProbeAnswer | Promise<ProbeAnswer>;

/** What Gatebook allows for an effect now. `untilUs` is a time of the server's clock. */
export interface Verdict {
  effect: string;
  handle: string;
  answer: string;
  reason: string;
  row: string;
  sentence: string;
  untilUs: number | null;
  attempt: number;
  remoteKey: string;
  needsPermission: boolean;
  nowUs: number | null;
  effectJson: Answer;
}

/** Read an answer of /verdict or /probe, or the `verdict` of a refusal. */
export function readVerdict(answer: Answer, effect = "", nowUs: number | null = null): Verdict {
  const effectJson: Answer = isObject(answer["effect"]) ? answer["effect"] : {};
  return {
    effect: String(effectJson["id"] || effect),
    handle: String(effectJson["handle"] || ""),
    answer: String(answer["verdict"] || ""),
    reason: String(answer["reason"] || ""),
    row: String(answer["row"] || ""),
    sentence: String(answer["sentence"] || ""),
    untilUs: answer["until_us"] ?? null,
    attempt: Number(answer["attempt"] || effectJson["attempt"] || 0),
    remoteKey: String(answer["remote_key"] || ""),
    needsPermission: Boolean(answer["needs_permission"]),
    nowUs: answer["as_of_us"] ?? nowUs,
    effectJson,
  };
}

/** The state and outcome of an effect; `alreadyDone` if nothing was done now. */
export interface EffectResult {
  effect: string;
  handle: string;
  effectKey: string;
  tool: string;
  state: string;
  outcome: string;
  /** Whether it happened and succeeded. */
  ok: boolean;
  reference: string;
  attempt: number;
  result: unknown;
  alreadyDone: boolean;
  redacted: boolean;
  erased: boolean;
}

/** Read an effect object of the API. */
export function readResult(effect: Answer, result: unknown = null, alreadyDone = false): EffectResult {
  return {
    effect: String(effect["id"]),
    handle: String(effect["handle"] || ""),
    effectKey: String(effect["effect_key"] || ""),
    tool: String(effect["tool"] || ""),
    state: String(effect["state"] || ""),
    outcome: String(effect["outcome"] || ""),
    ok: effect["outcome"] === "ok",
    reference: String(effect["external_reference"] || ""),
    attempt: Number(effect["attempt"] || 0),
    result,
    alreadyDone,
    redacted: false,
    erased: false,
  };
}

/** Read an answer of /result. */
export function readStoredResult(stored: Answer): EffectResult {
  return {
    ...readResult({...stored, id: stored["effect"]}, stored["result"] ?? null, true),
    redacted: Boolean(stored["redacted"]),
    erased: stored["stored"] === "erased",
  };
}

/** A planned effect and its permission; `answer` is what may be done now. */
export interface PlannedEffect {
  effect: string;
  handle: string;
  session: string;
  effectKey: string;
  callId: string;
  tool: string;
  /** `proceed`, `wait`, `blocked`, `done`, or `ambiguous`: settle `openEffect` first. */
  answer: string;
  mayProceed: boolean;
  state: string;
  permission: string;
  intentDigest: string;
  attempt: number;
  gate: string;
  gateUrl: string;
  openEffect: string;
  effectJson: Answer;
}

/** Read an effect object of the API of the Gatebook at `url`. */
export function readPlanned(effect: Answer, url: string): PlannedEffect {
  const gate: Answer = isObject(effect["gate"]) ? effect["gate"] : {};
  const text = (name: string): string => String(effect[name] || "");
  return {
    effect: String(effect["id"]),
    handle: text("handle"),
    session: text("session"),
    effectKey: text("effect_key"),
    callId: text("call_id"),
    tool: text("tool"),
    answer: text("answer"),
    mayProceed: effect["answer"] === "proceed",
    state: text("state"),
    permission: text("permission"),
    intentDigest: text("intent_digest"),
    attempt: Number(effect["attempt"] || 0),
    gate: String(gate["id"] || ""),
    gateUrl: gate["page"] ? `${url}${gate["page"]}` : "",
    openEffect: text("open_effect"),
    effectJson: effect,
  };
}

/** A dispatched attempt: act now, with `remoteKey`, and report the outcome. */
export interface Dispatched {
  effect: string;
  handle: string;
  effectKey: string;
  tool: string;
  attempt: number;
  remoteKey: string;
  /** No request of the attempt may live longer, in seconds. */
  requestLifetimeS: number;
}

/** Read an answer of /dispatch. */
export function readDispatched(dispatch: Answer): Dispatched {
  return {
    effect: String(dispatch["id"]),
    handle: String(dispatch["handle"] || ""),
    effectKey: String(dispatch["effect_key"] || ""),
    tool: String(dispatch["tool"] || ""),
    attempt: Number(dispatch["attempt"]),
    remoteKey: String(dispatch["remote_key"] || ""),
    requestLifetimeS: Number(dispatch["request_lifetime_s"] || 300),
  };
}

/** Return the API value and the reference for what a probe returned; throws TypeError. */
export function parseProbeAnswer(answer: unknown): [string, string] {
  if (answer === null || answer === undefined || answer === false) return ["miss", ""];
  if (answer === true) return ["hit", ""];
  if (typeof answer === "string" && answer) return ["hit", answer];
  if (Array.isArray(answer)) {
    if (!answer.length) return ["miss", ""];
    return answer.length > 1 ? ["several", ""] : parseProbeAnswer(answer[0]);
  }
  throw new TypeError("A probe returns null, true, a reference or a list of references.");
}

/** Return a result as JSON that Gatebook accepts, or a note: what happened must be reported. */
export function toSendableJson(result: unknown): Json {
  try {
    const text = encodeBody(result ?? null);
    const size = new TextEncoder().encode(text).length;
    if (size <= RESULT_BYTES) return parseJson(text) as Json;
    return {left_out: `${size} bytes; store it as an artifact`};
  } catch (error) {
    return {left_out: `not JSON: ${replaceHalfPairs(String(error)).slice(0, 200)}`};
  }
}

/** Return text without halves of surrogate pairs, cut to a number of characters. */
export function replaceHalfPairs(text: string, characters = 4_000): string {
  return text.slice(0, characters).replace(/\p{Surrogate}/gu, "�");
}
