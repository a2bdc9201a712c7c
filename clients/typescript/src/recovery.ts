/** Recovery after a crash: settle every open effect of a session as far as possible. */
import type {Effects, EffectRequest, OnWait} from "./effects.js";
import {needsCompensation} from "./effects.js";
import {HumanDecisionRequired, NotYet, PermissionRefused, Rejected} from "./errors.js";
import type {Answer} from "./json.js";
import type {Act, Probe, Verdict} from "./types.js";
import type {Limits} from "./waiting.js";

/** The functions of a tool. Only a tool with `act` is repeated from its stored plan. */
export interface ToolHandlers {
  act?: (args: any, remoteKey: string) => unknown;
  probe?: Probe;
}

/**
 * What was done with one open effect.
 *
 * `found`: it had happened, and is recorded now. `replayed`: it was repeated now. `refused`: people
 * or the remote refused it. `due`: it did not happen, and may when the program reaches it.
 * `waiting`: nothing may be done yet. `unresolved`: a person decides.
 */
export type StepResult = "found" | "replayed" | "refused" | "due" | "waiting" | "unresolved";

/** One open effect and what was done with it. */
export interface Step {
  effect: string;
  handle: string;
  effectKey: string;
  tool: string;
  result: StepResult;
  verdict: Verdict;
  because: string;
}

/** What `recover` did. `safe`: nothing waits and nothing needs a person. */
export interface Recovery {
  steps: Step[];
  safe: boolean;
}

const OPEN: readonly Record<string, string>[] = [
  {state: "dispatched"},
  {state: "failed"},
  {state: "acknowledged", outcome: "unknown"},
  {state: "planned"},
];

/** Settle what earlier processes left open; `acts` maps effect keys to what repeats them. */
export async function recoverEffects(
  effects: Effects,
  handlers: ReadonlyMap<string, ToolHandlers>,
  acts: Readonly<Record<string, Act>>,
  limits: Limits,
  onWait: OnWait,
): Promise<Recovery> {
  await effects.sendUnsentReports();
  const steps: Step[] = [];
  const settled = new Set<string>();
  for (const filters of OPEN) {
    for (const effect of (await effects.listEffects(filters)).reverse()) {
      if (settled.has(effect["id"])) continue;
      settled.add(effect["id"]);
      const tool = String(effect["tool"] || "");
      const step = await settle(effects, effect, handlers.get(tool) ?? {}, acts, limits, onWait);
      steps.push(step);
    }
  }
  const safe = steps.every((step) => step.result !== "unresolved" && step.result !== "waiting");
  return {steps, safe};
}

async function settle(
  effects: Effects,
  effectJson: Answer,
  handlers: ToolHandlers,
  acts: Readonly<Record<string, Act>>,
  limits: Limits,
  onWait: OnWait,
): Promise<Step> {
  const effect = String(effectJson["id"]);
  const effectKey = String(effectJson["effect_key"] || "");
  const tool = String(effectJson["tool"] || "");
  let verdict = await effects.loadVerdict(effect);
  const plan = ["skip", "execute", "ask"].includes(verdict.answer)
    ? {}
    : await effects.loadPlan(effect);
  const repeatable = handlers.act && "arguments" in plan && !plan["redactions"];
  const own = Object.hasOwn(acts, effectKey) ? acts[effectKey] : undefined;
  const act: Act | undefined =
    own ??
    (repeatable ? (remoteKey) => handlers.act!(plan["arguments"], remoteKey) : undefined);
  const request: EffectRequest = {
    tool,
    arguments: plan["arguments"],
    act: act ?? refuseToAct,
    plan: {
      tool,
      effect_key: effectKey,
      ...(plan["free_text"] ? {free_text: plan["free_text"]} : {}),
      ...(plan["preconditions"] ? {preconditions: plan["preconditions"]} : {}),
    },
    probe: handlers.probe,
    limits,
    onWait,
  };
  const step = (result: StepResult, because = ""): Step => ({
    effect,
    handle: String(effectJson["handle"] || ""),
    effectKey,
    tool,
    result,
    verdict,
    because: because || verdict.sentence || verdict.reason,
  });
  try {
    for (;;) {
      if (verdict.answer === "compensate" || verdict.reason === "COMP_RESUME") {
        throw needsCompensation(verdict);
      }
      switch (verdict.answer) {
        case "probe":
          verdict = await effects.probeOrPause(verdict, request);
          break;
        case "wait":
          if (verdict.reason === "GATE_PENDING") {
            return step("due", verdict.sentence || "waiting for approval; nothing was begun");
          }
          verdict = await effects.waitForVerdict(verdict, request);
          break;
        case "skip": {
          const closed = ["GATE_DENIED", "GATE_EXPIRED", "ATTEMPTS_SPENT"];
          return step(closed.includes(verdict.reason) ? "refused" : "found");
        }
        case "replay":
          if (!act || !("arguments" in plan) || verdict.needsPermission) return step("due");
          if (await effects.executeVerdict(verdict, request)) return step("replayed");
          verdict = await effects.loadVerdict(effect);
          break;
        case "execute":
        case "ask":
          return step("due");
        default:
          return step("unresolved");
      }
    }
  } catch (error) {
    if (error instanceof HumanDecisionRequired) return step("unresolved", error.message);
    if (error instanceof NotYet) return step("waiting", error.message);
    if (error instanceof PermissionRefused || error instanceof Rejected) {
      return step("refused", error.message);
    }
    throw error;
  }
}

function refuseToAct(): never {
  throw new Error("recover() called an effect without a registered act.");
}
