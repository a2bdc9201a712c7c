/**
 * Effects performed once: plan, wait for permission, attempt, or settle after a crash.
 *
 * No act runs before Gatebook has answered the dispatch with a 2xx. An effect that may have happened
 * is repeated only if Gatebook's verdict allows it: as its next attempt, with the key it names.
 */
import {
  HumanDecisionRequired,
  LeaseLost,
  NotYet,
  PermissionRefused,
  Refused,
  Rejected,
  ServerUnavailable,
  SessionEnded,
} from "./errors.js";
import {readClock} from "./http.js";
import type {HttpAnswer, HttpClient} from "./http.js";
import {computeCallDigest, encodeJson, isObject, newKey} from "./json.js";
import type {Answer} from "./json.js";
import {
  ENDED,
  Result,
  parseProbeAnswer,
  readResult,
  readStoredResult,
  readVerdict,
  replaceHalfPairs,
  toSendableJson,
} from "./types.js";
import type {Act, AttemptInfo, EffectResult, Probe, Verdict} from "./types.js";
import * as waiting from "./waiting.js";
import type {Limits} from "./waiting.js";

const REPLAN_CODES: readonly string[] =
  "GATE_PENDING GATE_GONE NO_PERMISSION ALREADY_DISPATCHED key_reuse".split(" ");
/** Reasons of a refused dispatch that are a refusal by people. */
export const REFUSED_REASONS: readonly string[] =
  "denied denied_session expired changes_requested revoked cancelled by_agent".split(" ");
const MAX_DISPATCH_AGE_S = 60; // counted from the request
const [CANCEL, REDO] = [":cancel", ":redo"];

/** Called before each wait, with its reason and Gatebook's answer. */
export type OnWait = (reason: string, answer: Answer) => unknown;

/** What effects need of their session. */
export interface EffectSession extends waiting.Waiter {
  readonly id: string;
  readonly process: string;
  readonly status: string;
  readonly http: HttpClient;
}

/** One effect to perform. `plan` is the body of the plan, without the session. */
export interface EffectRequest {
  tool: string;
  arguments: unknown;
  act: Act;
  plan: Answer;
  probe: Probe | undefined;
  limits: Limits;
  onWait: OnWait;
}

function nameRequest(request: EffectRequest): string {
  return `${request.tool} (${request.plan["effect_key"] || request.plan["call_id"]})`;
}

function withoutCall(plan: Answer): Answer {
  const {call_id: _call, ordinal: _ordinal, ...rest} = plan;
  return rest;
}

/** Performs the effects of one session. */
export class Effects {
  // Key and body of each dispatch without an answer, by effect.
  private readonly dispatches = new Map<string, {key: string; body: Answer}>();
  private readonly unsentReports: {path: string; body: Answer; key: string}[] = [];
  private reporting: Promise<void> = Promise.resolve();

  constructor(private readonly session: EffectSession) {}

  /** Perform an effect once; throws the errors of errors.ts, and the error of the act. */
  async perform(request: EffectRequest): Promise<EffectResult> {
    await this.sendUnsentReports();
    if (ENDED.includes(this.session.status)) {
      const done = await this.findEndedResult(request);
      if (done) return done;
      throw new SessionEnded(this.session.status);
    }
    return this.planUntilSettled(request);
  }

  private async planUntilSettled(request: EffectRequest): Promise<EffectResult> {
    for (;;) {
      const result = await this.follow(await this.sendPlan(request), request);
      if (result) return result;
    }
  }

  /** Return the result that an ended session recorded for a request, or null. */
  private async findEndedResult(request: EffectRequest): Promise<EffectResult | null> {
    const filters: Record<string, string> = request.plan["effect_key"]
      ? {effect_key: request.plan["effect_key"]}
      : {call_id: request.plan["call_id"]};
    for (const effect of await this.listEffects(filters)) {
      if (!(await this.matchesRequest(effect, request))) continue;
      const done = effect["state"] === "acknowledged" && effect["outcome"] !== "unknown";
      if (done) return this.loadResult(effect);
    }
    return null;
  }

  private async matchesRequest(effect: Answer, request: EffectRequest): Promise<boolean> {
    const {call_id: call, ordinal} = request.plan;
    if (call !== undefined && String(effect["effect_key"]).split(":").at(-1) !== String(ordinal)) {
      return false;
    }
    const plan = await this.loadPlan(String(effect["id"]));
    if (!("arguments" in plan) || plan["redactions"]) return effect["tool"] === request.tool;
    const freeText: string[] = request.plan["free_text"] ?? [];
    const stored = computeCallDigest(String(effect["tool"]), plan["arguments"], freeText);
    return stored === computeCallDigest(request.tool, request.arguments, freeText);
  }

  /** Plan the effect of a request, under its own key or `effectKey`; return the answer. */
  async sendPlan(request: EffectRequest, effectKey = ""): Promise<Answer> {
    let body: Answer = {...request.plan, session: this.session.id};
    if (effectKey) body = {...withoutCall(body), effect_key: effectKey};
    const planned = (
      await this.retryWhilePaused(request, (key) => this.session.http.post("/effects", body, key))
    ).body;
    if (planned["same_calls"]) request.onWait("same_call", planned);
    return planned;
  }

  /** Act on the answer to a plan. Return null if the effect must be planned again. */
  private async follow(planned: Answer, request: EffectRequest): Promise<EffectResult | null> {
    const effect = String(planned["id"]);
    switch (planned["answer"]) {
      case "proceed":
        return this.dispatch(effect, request);
      case "wait":
        if (planned["permission"] === "pending") {
          request.onWait("gate", planned);
          await waiting.waitForPermission(this.session, planned, request.limits);
          return this.dispatch(effect, request);
        }
        await waiting.sleepOrThrow(
          this.session,
          waiting.PAUSE_S,
          request.limits,
          `${nameRequest(request)} has no permission yet`,
          {effect, reason: "people"},
        );
        return null;
      case "done":
        return this.readClosed(planned, request);
      case "ambiguous":
        return this.settleAmbiguous(planned, request);
      default:
        throw await this.buildPermissionError(planned);
    }
  }

  /** Return the result of an effect that was done before, as Gatebook stored it. */
  async loadResult(effect: Answer): Promise<EffectResult> {
    const done = readResult(effect, null, true);
    try {
      const stored = await this.session.http.get(`/effects/${done.effect}/result`);
      return {...readStoredResult(stored.body), state: done.state};
    } catch (error) {
      if (error instanceof Refused) return done;
      throw error;
    }
  }

  /** Load a plan; empty if another agent made it or if it is erased. */
  async loadPlan(effect: string): Promise<Answer> {
    try {
      return (await this.session.http.get(`/effects/${effect}/plan`)).body;
    } catch (error) {
      if (error instanceof Refused) return {};
      throw error;
    }
  }

  /** List the effects of the session that match the filters, newest first. */
  async listEffects(filters: Record<string, string>): Promise<Answer[]> {
    const items: Answer[] = [];
    let after = "";
    do {
      const query = {session: this.session.id, limit: 200, after, ...filters};
      const page = (await this.session.http.get("/effects", query)).body;
      items.push(...page["items"]);
      after = String(page["next"] || "");
    } while (after);
    return items;
  }

  private async buildPermissionError(planned: Answer): Promise<PermissionRefused> {
    const effect = String(planned["id"]);
    if (planned["state"] === "failed" && ["used", "none"].includes(planned["permission"])) {
      return new PermissionRefused(effect, "attempts_spent");
    }
    if (!isObject(planned["gate"])) return new PermissionRefused(effect, "refused");
    const gate = (await this.session.http.get(`/gates/${planned["gate"]["id"]}`)).body;
    return waiting.buildRefusedPermission(effect, gate);
  }

  private async readClosed(planned: Answer, request: EffectRequest): Promise<EffectResult | null> {
    if (planned["state"] === "superseded") {
      throw new PermissionRefused(String(planned["id"]), "superseded");
    }
    if (planned["state"] === "compensated" && (await this.isRedone(planned))) {
      const key = `${planned["effect_key"]}${REDO}`;
      request.plan = {...withoutCall(request.plan), effect_key: key};
      return null;
    }
    return this.loadResult(planned);
  }

  /** Return whether the last attempt was compensated in order to be redone. */
  private async isRedone(planned: Answer): Promise<boolean> {
    const attempt = Number(planned["attempt"] || 1);
    const suffix = attempt <= 1 ? CANCEL : `${CANCEL}:${attempt}`;
    const key = `${planned["effect_key"]}${suffix}`;
    return (await this.listEffects({effect_key: key})).length > 0;
  }

  /** Settle the open effect: this one, or another with the same intent under another key. */
  private async settleAmbiguous(
    planned: Answer,
    request: EffectRequest,
  ): Promise<EffectResult | null> {
    const own = String(planned["id"]);
    const other = String(planned["open_effect"] || "");
    if (!other || other === own) return this.settle(own, request);
    let result = await this.settle(other, request);
    if (!result) {
      // The other effect did not happen: plan it again under its own key.
      const effect = (await this.session.http.get(`/effects/${other}`)).body;
      const plan = {...withoutCall(request.plan), effect_key: effect["effect_key"]};
      result = await this.planUntilSettled({...request, plan});
    }
    // The other effect is the requested one, so the new plan is not needed.
    await this.retryWhilePaused(request, (key) =>
      this.session.http.post(`/effects/${own}/supersede`, {}, key),
    );
    return result;
  }

  /** Follow the verdict of an effect. Return null if it must be planned again. */
  private async settle(effect: string, request: EffectRequest): Promise<EffectResult | null> {
    // This process dispatched it and lost the answer: repeat the request under its key.
    if (this.dispatches.has(effect)) return this.dispatch(effect, request);
    let verdict = await this.loadVerdict(effect);
    for (;;) {
      this.session.checkActive();
      const compensates = verdict.answer === "compensate" || verdict.reason === "COMP_RESUME";
      if (compensates && verdict.answer !== "skip") throw needsCompensation(verdict);
      switch (verdict.answer) {
        case "skip":
          return this.readSkipped(verdict, request);
        case "execute":
        case "replay":
          return this.executeVerdict(verdict, request);
        case "ask":
          return null;
        case "probe":
          verdict = await this.probeOrPause(verdict, request);
          break;
        case "wait":
          verdict = await this.waitForVerdict(verdict, request);
          break;
        default:
          throw new HumanDecisionRequired(verdict);
      }
    }
  }

  /** Run the probe; pause if it found nothing new. Return the next verdict. */
  async probeOrPause(verdict: Verdict, request: EffectRequest): Promise<Verdict> {
    const next = await this.runProbe(verdict, request);
    if (next.answer === "probe") {
      await waiting.sleepOrThrow(
        this.session,
        waiting.PAUSE_S,
        request.limits,
        `${nameRequest(request)} is being probed`,
        {effect: verdict.effect, reason: "probe"},
      );
    }
    return next;
  }

  /** Make the attempt that a verdict allows. Return null if it must be planned again. */
  async executeVerdict(verdict: Verdict, request: EffectRequest): Promise<EffectResult | null> {
    if (verdict.needsPermission) {
      const planned = await this.sendPlan(request, String(verdict.effectJson["effect_key"] || ""));
      if (planned["permission"] === "pending") {
        request.onWait("gate", planned);
        await waiting.waitForPermission(this.session, planned, request.limits);
      } else if (planned["permission"] !== "granted") {
        throw await this.buildPermissionError(planned);
      }
    }
    return this.dispatch(verdict.effect, request, verdict.attempt);
  }

  /** Ask what may be done with an effect now. Throws ServerUnavailable, Refused. */
  async loadVerdict(effect: string): Promise<Verdict> {
    const query = {process: this.session.process};
    const answer = await this.session.http.get(`/effects/${effect}/verdict`, query);
    return readVerdict(answer.body, effect, answer.nowUs);
  }

  private async runProbe(verdict: Verdict, request: EffectRequest): Promise<Verdict> {
    if (!request.probe) {
      throw new HumanDecisionRequired(
        verdict,
        `${request.tool} can be probed, but no probe was registered`,
      );
    }
    const body: Answer = {attempt: verdict.attempt};
    // A time of the server's clock before the probe began.
    if (verdict.nowUs !== null) body["began_us"] = verdict.nowUs;
    try {
      const answer = await request.probe(describeAttempt(verdict, request));
      const [result, reference] = parseProbeAnswer(answer);
      body["result"] = result;
      if (reference) body["external_reference"] = replaceHalfPairs(reference, 300);
    } catch (error) {
      body["result"] = "error";
      body["detail"] = replaceHalfPairs(String(error), 1000);
    }
    const answer = await this.retryWhilePaused(request, (key) =>
      this.session.http.post(`/effects/${verdict.effect}/probe`, body, key),
    );
    return readVerdict(answer.body, verdict.effect, answer.nowUs);
  }

  private async readSkipped(
    verdict: Verdict,
    request: EffectRequest,
  ): Promise<EffectResult | null> {
    const effect = (await this.session.http.get(`/effects/${verdict.effect}`)).body;
    if (verdict.reason === "GATE_DENIED" || verdict.reason === "GATE_EXPIRED") {
      throw await this.buildPermissionError(effect);
    }
    if (verdict.reason === "ATTEMPTS_SPENT") {
      throw new PermissionRefused(verdict.effect, "attempts_spent");
    }
    if (verdict.reason === "CLOSED") return this.readClosed(effect, request);
    return this.loadResult(effect);
  }

  /** Wait for what a verdict waits for, then return the next verdict. */
  async waitForVerdict(verdict: Verdict, request: EffectRequest): Promise<Verdict> {
    if (verdict.reason === "GATE_PENDING" && isObject(verdict.effectJson["gate"])) {
      request.onWait("gate", verdict.effectJson);
      await waiting.waitForPermission(this.session, verdict.effectJson, request.limits);
    } else {
      request.onWait("verdict", {detail: verdict.sentence, reason: verdict.reason});
      await waiting.sleepOrThrow(
        this.session,
        waiting.secondsUntil(verdict.untilUs, verdict.nowUs, waiting.PAUSE_S),
        request.limits,
        `${nameRequest(request)}: ${verdict.sentence || verdict.reason}`,
        {
          effect: verdict.effect,
          reason: waiting.REASON_OF_VERDICT[verdict.reason] ?? "in_flight_window",
          untilUs: verdict.untilUs,
        },
      );
    }
    return this.loadVerdict(verdict.effect);
  }

  /** Send a command under one key; retry while a stop is in force or plans are paced. */
  async retryWhilePaused(
    request: EffectRequest,
    command: (key: string) => Promise<HttpAnswer>,
    key = "",
  ): Promise<HttpAnswer> {
    let reported = false;
    for (;;) {
      this.session.checkActive();
      try {
        return await command(key || newKey());
      } catch (error) {
        if (error instanceof ServerUnavailable) {
          throw error.withConsequence(`${nameRequest(request)} was not begun.`);
        }
        if (!(error instanceof Refused)) throw error;
        if (error.code === "SESSION_ENDED") throw new SessionEnded();
        if (error.code === "LEASE_LOST") {
          throw new LeaseLost(`${error.sentence}; nothing was begun.`);
        }
        const reason = waiting.getPauseReason(error);
        if (!reason) throw error;
        if (!reported) request.onWait(reason, error.problem);
        reported = true;
        await waiting.sleepOrThrow(
          this.session,
          Number(error.problem["retry_after_s"] || waiting.PAUSE_S),
          request.limits,
          `${nameRequest(request)}: ${error.sentence}`,
          {reason, untilUs: reason === "stop" ? null : error.retryAtUs},
        );
      }
    }
  }

  /** Use the permission and run the act. Return null if it must be planned again. */
  private async dispatch(
    effect: string,
    request: EffectRequest,
    replays = 0,
  ): Promise<EffectResult | null> {
    const body: Answer = {process: this.session.process, arguments: request.arguments};
    for (const name of ["free_text", "preconditions"]) {
      if (request.plan[name]) body[name] = request.plan[name];
    }
    const unanswered = this.dispatches.get(effect);
    const replayed = replays || unanswered?.body["replays"];
    if (replayed) body["replays"] = replayed;
    const same = unanswered && encodeJson(unanswered.body) === encodeJson(body);
    const key = same ? unanswered.key : newKey();
    this.dispatches.set(effect, {key, body});
    const sentAt = readClock();
    let answer: Answer;
    try {
      const path = `/effects/${effect}/dispatch`;
      answer = (
        await this.retryWhilePaused(request, (k) => this.session.http.post(path, body, k), key)
      ).body;
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.dispatches.delete(effect);
      const denied = error.code === "GATE_DENIED" || error.code === "GATE_EXPIRED";
      if (denied || REFUSED_REASONS.includes(error.reason)) {
        throw new PermissionRefused(effect, error.reason || "denied");
      }
      if (REPLAN_CODES.includes(error.code)) return null;
      throw error;
    }
    this.dispatches.delete(effect);
    const attempt = Number(answer["attempt"]);
    if (!Number.isSafeInteger(attempt) || attempt < 1 || String(answer["id"]) !== effect) {
      throw new Refused(200, {
        code: "not_understood",
        detail: "The answer to the dispatch names no attempt of this effect; nothing was begun",
      });
    }
    // A process that slept after the dispatch may count as dead and may have been replaced.
    const tooLate = readClock() - sentAt > MAX_DISPATCH_AGE_S;
    try {
      this.session.checkActive();
    } catch (error) {
      await this.reportFailure(effect, attempt, "rejected", error);
      throw error;
    }
    if (tooLate) {
      const why = new NotYet(`not begun: ${MAX_DISPATCH_AGE_S} s passed since the dispatch`, {
        effect,
        reason: "in_flight_window",
      });
      await this.reportFailure(effect, attempt, "rejected", why);
      return null;
    }
    return this.runAct(effect, attempt, String(answer["remote_key"] || ""), request);
  }

  private async runAct(
    effect: string,
    attempt: number,
    remoteKey: string,
    request: EffectRequest,
  ): Promise<EffectResult> {
    let result: Result;
    try {
      const returned = await request.act(remoteKey);
      result = returned instanceof Result ? returned : new Result({result: returned});
    } catch (error) {
      const timedOut = error instanceof Error && error.name === "TimeoutError";
      const reason = error instanceof Rejected ? "rejected" : timedOut ? "timeout" : "error";
      await this.reportFailure(effect, attempt, reason, error);
      throw error;
    }
    const answer = await this.acknowledge(effect, attempt, result, nameRequest(request));
    return readResult(answer.body, result.result);
  }

  /** Report that an attempt happened; a report that cannot be sent is sent by the next call. */
  async acknowledge(
    effect: string,
    attempt: number,
    result: Result,
    name: string,
  ): Promise<HttpAnswer> {
    const body: Answer = {
      attempt,
      outcome: result.outcome,
      result: toSendableJson(result.result),
    };
    if (result.reference) body["external_reference"] = replaceHalfPairs(result.reference, 300);
    const path = `/effects/${effect}/acknowledge`;
    const key = newKey();
    try {
      return await this.session.http.post(path, body, key);
    } catch (error) {
      if (error instanceof ServerUnavailable) {
        this.unsentReports.push({path, body, key});
        const sentence = `${name} was done; only the report is missing. The next call sends it.`;
        throw new ServerUnavailable(error.reason, sentence, true);
      }
      if (!(error instanceof Refused) || error.status !== 422) throw error;
      // The act happened, so it must be reported even if its result is refused.
      const leftOut = {left_out: `refused: ${error.code}`};
      return this.session.http.post(path, {...body, result: leftOut});
    }
  }

  /** Report a failed attempt; one that cannot be sent now is sent by the next call. */
  async sendFailure(
    effect: string,
    attempt: number,
    reason: string,
    detail: string,
  ): Promise<HttpAnswer> {
    const body: Answer = {attempt, reason};
    if (detail) body["detail"] = replaceHalfPairs(detail);
    const path = `/effects/${effect}/fail`;
    const key = newKey();
    try {
      return await this.session.http.post(path, body, key);
    } catch (error) {
      if (error instanceof ServerUnavailable) this.unsentReports.push({path, body, key});
      throw error;
    }
  }

  /** Report a failed attempt; the error of the act matters more than that of the report. */
  private async reportFailure(
    effect: string,
    attempt: number,
    reason: string,
    error: unknown,
  ): Promise<void> {
    try {
      const detail = error instanceof Rejected ? error.message : String(error);
      await this.sendFailure(effect, attempt, reason, detail);
    } catch (unsent) {
      if (!(unsent instanceof ServerUnavailable || unsent instanceof Refused)) throw unsent;
    }
  }

  /** Send the reports that could not be sent before. Throws ServerUnavailable. */
  sendUnsentReports(): Promise<void> {
    const sending = this.reporting.then(async () => {
      for (let report = this.unsentReports[0]; report; report = this.unsentReports[0]) {
        try {
          await this.session.http.post(report.path, report.body, report.key);
        } catch (error) {
          if (error instanceof ServerUnavailable) {
            throw error.withConsequence(
              "Nothing was begun: earlier results could not be reported yet.",
            );
          }
          // Refused: the outcome is already recorded from another source.
          if (!(error instanceof Refused)) throw error;
        }
        this.unsentReports.shift();
      }
    });
    this.reporting = sending.catch(() => undefined);
    return sending;
  }
}

function describeAttempt(verdict: Verdict, request: EffectRequest): AttemptInfo {
  return {
    effect: verdict.effect,
    handle: verdict.handle,
    effectKey: String(verdict.effectJson["effect_key"] || ""),
    tool: request.tool,
    arguments: request.arguments,
    attempt: verdict.attempt,
    remoteKey: verdict.remoteKey,
    reference: String(verdict.effectJson["external_reference"] || ""),
  };
}

/** Return the error for an effect that only a compensation settles. */
export function needsCompensation(verdict: Verdict): HumanDecisionRequired {
  return new HumanDecisionRequired(
    verdict,
    `${verdict.sentence || verdict.reason} This client does not compensate: a person resolves it.`,
  );
}
