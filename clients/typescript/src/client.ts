/** Clients and their sessions. */
import {REFUSED_REASONS, Effects} from "./effects.js";
import type {EffectRequest, OnWait} from "./effects.js";
import {NotYet, PermissionRefused, Refused, SessionClosed, SessionEnded} from "./errors.js";
import {HttpClient} from "./http.js";
import {
  buildEffectKey,
  computeCallDigest,
  copyJson,
  encodeBody,
  isObject,
  newKey,
  newProcessName,
} from "./json.js";
import type {Answer, JsonObject} from "./json.js";
import {recoverEffects} from "./recovery.js";
import type {Recovery, ToolHandlers} from "./recovery.js";
import {
  ENDED,
  Result,
  readDispatched,
  readPlanned,
  readResult,
  readStoredResult,
  readVerdict,
} from "./types.js";
import type {Act, Dispatched, EffectResult, PlannedEffect, Probe, Verdict} from "./types.js";
import * as waiting from "./waiting.js";
import {Limits} from "./waiting.js";
import type {WaitOptions} from "./waiting.js";

/** How a client reaches Gatebook. */
export interface ClientOptions {
  /** The address; by default GATEBOOK_URL. */
  url?: string;
  /** The agent's token; by default GATEBOOK_TOKEN. */
  token?: string;
  /** How long requests are retried before ServerUnavailable is thrown. */
  patienceS?: number;
  onWait?: OnWait;
  /** Replaces the global fetch. */
  fetch?: typeof fetch;
}

/** What a session says about itself. Describe it in the same words in every process. */
export interface SessionOptions {
  title?: string;
  repository?: string;
  branch?: string;
  labels?: Record<string, string>;
  meta?: JsonObject;
}

/** What is planned besides tool and arguments. */
export interface PlanOptions {
  /** A name of your own, unique in the session. */
  key?: string;
  /** The id of the call that a model made. */
  callId?: string;
  target?: Record<string, string>;
  /** Names of arguments that are no part of the intent. */
  freeText?: readonly string[];
  why?: string;
  meta?: JsonObject;
  preconditions?: JsonObject;
  task?: string;
  turn?: number;
}

/** How `perform` works besides the plan. */
export interface PerformOptions extends PlanOptions, WaitOptions {
  probe?: Probe;
}

/** An effect: what a step returned, its id or handle, or its key or call id in the session. */
export type EffectReference = string | {effect: string} | {key: string} | {callId: string};

/** A client of one Gatebook with one token. */
export class Client {
  readonly http: HttpClient;
  private readonly onWait: OnWait;

  constructor(options: ClientOptions = {}) {
    this.http = new HttpClient(
      options.url || readEnvironment("GATEBOOK_URL"),
      options.token || readEnvironment("GATEBOOK_TOKEN"),
      options.patienceS ?? 15,
      options.fetch ?? fetch,
    );
    this.onWait = options.onWait ?? (() => undefined);
  }

  /**
   * Open the session with that key, or reopen it; `resumed` says which.
   *
   * The session has no lease (mode `one_shot`): let only one process at a time work in it.
   */
  async session(key: string, description: SessionOptions = {}): Promise<Session> {
    if (!key) throw new TypeError("Pass a key that the next process uses again.");
    const answer = await this.http.post("/sessions", {...description, key, mode: "one_shot"});
    return new Session(this.http, answer.body, answer.status === 200, this.onWait);
  }

  /** Return a session that another process opened, by key, handle or id. */
  async attach(session: string): Promise<Session> {
    let name = session;
    if (session.includes("/")) {
      // A path takes no such key.
      const [listed] = (await this.http.get("/sessions", {key: session, limit: 1})).body["items"];
      name = listed ? String(listed.id) : session;
    }
    const opened = (await this.http.get(`/sessions/${encodeURIComponent(name)}`)).body;
    return new Session(this.http, opened, true, this.onWait);
  }
}

/** One run of a program, identified by a key that its later processes use too. */
export class Session {
  /** Random and never written to a file, so that no process can impersonate it after a crash. */
  readonly process = newProcessName();
  readonly id: string;
  readonly key: string;
  readonly handle: string;
  status: string;
  private readonly effects: Effects;
  private readonly handlers = new Map<string, ToolHandlers>();
  private readonly counts = new Map<string, number>();
  private readonly queues = new Map<string, Promise<unknown>>();
  private closed = false;

  constructor(
    readonly http: HttpClient,
    opened: Answer,
    readonly resumed: boolean,
    private readonly onWait: OnWait,
  ) {
    this.id = String(opened["id"]);
    this.key = String(opened["key"] || "");
    this.handle = String(opened["handle"] || "");
    this.status = String(opened["status"] || "");
    this.effects = new Effects(this);
  }

  /** Throw unless this object may still begin an effect. */
  checkActive(): void {
    if (this.closed) throw new SessionClosed();
  }

  /**
   * Perform an effect once and return its result.
   *
   * `act` is called only after Gatebook accepted the dispatch, with the remote key of the attempt.
   * Throws what `act` throws, after reporting it (`Rejected`: nothing happened; a TimeoutError or any
   * other error: the outcome is unknown). Every error of this package means that nothing was begun,
   * unless it says otherwise.
   */
  async perform(
    tool: string,
    args: unknown,
    act: Act,
    options: PerformOptions = {},
  ): Promise<EffectResult> {
    this.checkActive();
    const planned = copyJson(args);
    const freeText = options.freeText ?? [];
    const digest = computeCallDigest(tool, planned, freeText);
    const counted = options.key || `${options.callId ?? ""} ${digest} `;
    const limits = new Limits(options);
    // Equal calls at the same time are two effects: the second begins after the first has ended.
    return this.queue(digest, async () => {
      const ordinal = this.takeOrdinal(counted);
      const request: EffectRequest = {
        tool,
        arguments: planned,
        act,
        plan: buildPlan(tool, planned, options, ordinal, digest),
        probe: options.probe ?? this.handlers.get(tool)?.probe,
        limits,
        onWait: this.onWait,
      };
      try {
        return await this.effects.perform(request);
      } catch (error) {
        this.giveBack(counted); // the next one means the same effect
        throw error;
      }
    });
  }

  /** Register how a tool is probed, and repeated from its plan, for `recover` and `perform`. */
  register(tool: string, handlers: ToolHandlers): void {
    this.handlers.set(tool, handlers);
  }

  /**
   * Settle what earlier processes left open: probe, wait, repeat.
   *
   * An effect is repeated if its tool was registered with `act`, or if `acts` has a function for its
   * effect key; otherwise it is due when the program performs it.
   */
  recover(options: WaitOptions & {acts?: Readonly<Record<string, Act>>} = {}): Promise<Recovery> {
    this.checkActive();
    const limits = new Limits(options);
    return recoverEffects(this.effects, this.handlers, options.acts ?? {}, limits, this.onWait);
  }

  /** Plan an effect before it happens, and return it with its permission; waits for nothing. */
  async plan(
    tool: string,
    args: unknown,
    options: PlanOptions & {ordinal?: number} = {},
  ): Promise<PlannedEffect> {
    this.checkActive();
    if (ENDED.includes(this.status)) throw new SessionEnded(this.status);
    const planned = copyJson(args);
    const digest = computeCallDigest(tool, planned, options.freeText);
    const derived = !options.key && !options.callId;
    const ordinal = derived ? this.takeOrdinal(` ${digest} `) : (options.ordinal ?? 0);
    const plan = buildPlan(tool, planned, options, ordinal, digest);
    const answer = await this.effects.sendPlan(this.buildStep(tool, plan));
    return readPlanned(answer, this.http.url);
  }

  /** Return an effect of the session as it is now; Refused with 404 if there is none. */
  async findEffect(effect: EffectReference): Promise<PlannedEffect> {
    const id = getId(effect);
    if (id) {
      return readPlanned((await this.http.get(`/effects/${encodeURIComponent(id)}`)).body, this.http.url);
    }
    const named = effect as {key?: string; callId?: string};
    if (!named.key && !named.callId) {
      throw new TypeError("Name the effect: by its id or handle, {key}, or {callId}.");
    }
    const query = {session: this.id, effect_key: named.key, call_id: named.callId, limit: 2};
    const items: Answer[] = (await this.http.get("/effects", query)).body["items"];
    if (items.length !== 1) {
      throw items.length
        ? new Refused(409, {
            code: "CALL_REUSED",
            detail: "Several effects have this call id. Name the effect by its id or key",
          })
        : new Refused(404, {
            code: "not_found",
            detail: `The session has no effect ${named.key || named.callId}. Plan it first`,
          });
    }
    return readPlanned(items[0]!, this.http.url);
  }

  /** Wait for people; throws PermissionRefused if they refused, NotYet after `waitS`. */
  async wait(effect: EffectReference, options: {waitS?: number} = {}): Promise<PlannedEffect> {
    let planned = await this.findEffect(effect);
    const gated = isObject(planned.effectJson["gate"]);
    if (gated && (planned.answer === "wait" || planned.answer === "blocked")) {
      await waiting.waitForPermission(this, planned.effectJson, new Limits(options));
      planned = await this.findEffect(planned);
    }
    if (planned.answer === "blocked") throw new PermissionRefused(planned.effect, "refused");
    if (planned.answer === "wait") {
      const sentence = `${planned.handle} has no permission yet; plan it again.`;
      throw new NotYet(sentence, {effect: planned.effect, reason: "people"});
    }
    return planned;
  }

  /**
   * Use the permission of an effect for its next attempt: act only after this returns.
   *
   * Pass the `arguments` that will run, and Gatebook compares them with the plan. Throws NotYet,
   * PermissionRefused, and Refused with the code ALREADY_DISPATCHED if an attempt was begun before.
   */
  async dispatch(
    effect: EffectReference,
    options: {
      arguments?: unknown;
      freeText?: readonly string[];
      preconditions?: JsonObject;
      replays?: number;
    } = {},
  ): Promise<Dispatched> {
    this.checkActive();
    const planned = await this.findEffect(effect);
    const body: Answer = {process: this.process};
    if ("arguments" in options) body["arguments"] = copyJson(options.arguments);
    else body["intent_digest"] = planned.intentDigest;
    if (options.freeText?.length) body["free_text"] = [...options.freeText];
    if (options.preconditions) body["preconditions"] = options.preconditions;
    if (options.replays) body["replays"] = options.replays;
    const request = this.buildStep(planned.tool, {effect_key: planned.effectKey});
    const path = `/effects/${planned.effect}/dispatch`;
    let answer: Answer;
    try {
      answer = (
        await this.effects.retryWhilePaused(request, (key) => this.http.post(path, body, key), newKey())
      ).body;
    } catch (error) {
      throw error instanceof Refused ? await this.explainRefusal(planned, error) : error;
    }
    const dispatched = readDispatched(answer);
    if (dispatched.effect !== planned.effect || !(dispatched.attempt >= 1)) {
      throw new Refused(200, {
        code: "not_understood",
        detail: "The answer to the dispatch names no attempt of this effect. Do not act",
      });
    }
    return dispatched;
  }

  private async explainRefusal(planned: PlannedEffect, refusal: Refused): Promise<Error> {
    const told: unknown = refusal.problem["verdict"];
    const decided = readVerdict(isObject(told) ? told : {}, planned.effect);
    if (refusal.code === "GATE_PENDING" && planned.gate) {
      const gate = (await this.http.get(`/gates/${planned.gate}`)).body;
      return waiting.buildNotYet(this, planned.effectJson, gate);
    }
    const denied = refusal.code === "GATE_DENIED" || refusal.code === "GATE_EXPIRED";
    if (denied || REFUSED_REASONS.includes(refusal.reason)) {
      return new PermissionRefused(planned.effect, refusal.reason || "denied");
    }
    if (decided.answer !== "wait") return refusal;
    return new NotYet(`${planned.handle}: ${decided.sentence || refusal.sentence}`, {
      effect: planned.effect,
      reason: waiting.REASON_OF_VERDICT[decided.reason] ?? "in_flight_window",
      untilUs: decided.untilUs,
      gate: planned.gate,
      gateUrl: planned.gateUrl,
    });
  }

  /** Report that the dispatched attempt happened; by default the newest. */
  async acknowledge(
    effect: EffectReference,
    options: {
      attempt?: number;
      outcome?: "ok" | "error" | "unknown";
      reference?: string;
      result?: unknown;
    } = {},
  ): Promise<EffectResult> {
    await this.effects.sendUnsentReports();
    const [id, attempt] = await this.findAttempt(effect, options.attempt);
    const result = new Result(options);
    const answer = await this.effects.acknowledge(id, attempt, result, `attempt ${attempt}`);
    return readResult(answer.body, result.result);
  }

  /** Report that the attempt failed. `rejected`: nothing happened; otherwise it is unknown. */
  async fail(
    effect: EffectReference,
    options: {
      attempt?: number;
      reason?: "rejected" | "timeout" | "error";
      detail?: string;
    } = {},
  ): Promise<EffectResult> {
    await this.effects.sendUnsentReports();
    const [id, attempt] = await this.findAttempt(effect, options.attempt);
    const {reason = "error", detail = ""} = options;
    return readResult((await this.effects.sendFailure(id, attempt, reason, detail)).body);
  }

  private async findAttempt(
    effect: EffectReference,
    attempt: number | undefined,
  ): Promise<[string, number]> {
    if (typeof effect === "object" && "remoteKey" in effect && "attempt" in effect) {
      const dispatched = effect as Dispatched;
      return [dispatched.effect, attempt ?? dispatched.attempt];
    }
    const stored = await this.findEffect(effect);
    return [stored.effect, attempt ?? (stored.attempt || 1)];
  }

  /** Return the stored result; Refused with the code NO_RESULT while there is none. */
  async result(effect: EffectReference): Promise<EffectResult> {
    const id = getId(effect) || (await this.findEffect(effect)).effect;
    return readStoredResult((await this.http.get(`/effects/${encodeURIComponent(id)}/result`)).body);
  }

  /** Return what may be done now with an effect that may have happened. */
  async verdict(effect: EffectReference): Promise<Verdict> {
    return this.effects.loadVerdict(getId(effect) || (await this.findEffect(effect)).effect);
  }

  /** End the session: it then accepts no new effects. */
  async end(status: "completed" | "failed" | "cancelled" = "completed"): Promise<void> {
    this.checkActive();
    await this.effects.sendUnsentReports();
    const ended = (await this.http.post(`/sessions/${this.id}/end`, {status})).body;
    this.status = String(ended["status"] || status);
  }

  /** Send unsent reports and close this object; the session itself does not end. */
  async close(): Promise<void> {
    if (this.closed) return;
    this.closed = true;
    await this.effects.sendUnsentReports();
  }

  private buildStep(tool: string, plan: Answer): EffectRequest {
    return {
      tool,
      arguments: null,
      act: () => {
        throw new Error("The steps of an effect do not act.");
      },
      plan,
      probe: undefined,
      limits: new Limits({waitS: 0}),
      onWait: this.onWait,
    };
  }

  private takeOrdinal(counted: string): number {
    const ordinal = this.counts.get(counted) ?? 0;
    this.counts.set(counted, ordinal + 1);
    return ordinal;
  }

  private giveBack(counted: string): void {
    this.counts.set(counted, (this.counts.get(counted) ?? 1) - 1);
  }

  private queue<T>(name: string, work: () => Promise<T>): Promise<T> {
    const before = this.queues.get(name) ?? Promise.resolve();
    const running = before.then(work, work);
    const ended = running
      .catch(() => undefined)
      .then(() => {
        if (this.queues.get(name) === ended) this.queues.delete(name);
      });
    this.queues.set(name, ended);
    return running;
  }
}

function buildPlan(
  tool: string,
  args: unknown,
  options: PlanOptions,
  ordinal: number,
  digest: string,
): Answer {
  const plan: Answer = {tool, arguments: args};
  const more = {
    target: options.target,
    free_text: options.freeText?.length ? [...options.freeText] : undefined,
    why: options.why,
    meta: options.meta,
    preconditions: options.preconditions,
    task: options.task,
    turn: options.turn,
  };
  for (const [name, value] of Object.entries(more)) {
    if (value !== undefined && value !== "") plan[name] = value;
  }
  if (options.key) plan["effect_key"] = options.key;
  else if (options.callId) Object.assign(plan, {call_id: options.callId, ordinal});
  else plan["effect_key"] = buildEffectKey(tool, digest, ordinal);
  encodeBody(plan); // refuse what cannot be sent before anything is
  return plan;
}

function getId(effect: EffectReference): string {
  if (typeof effect === "string") return effect;
  return "effect" in effect ? effect.effect : "";
}

function readEnvironment(name: string): string {
  const process = (globalThis as {process?: {env?: Record<string, string | undefined>}}).process;
  return process?.env?.[name] ?? "";
}
