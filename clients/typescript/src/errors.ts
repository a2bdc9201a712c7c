/** Errors of the client. Each message states what was done and what was not. */
import type {EffectResult, Verdict} from "./types.js";

type Problem = Record<string, any>;

/** Base class of all errors of this package except `Rejected`, which your act throws. */
export class GatebookError extends Error {
  constructor(sentence: string, options?: ErrorOptions) {
    super(sentence, options);
    this.name = new.target.name;
  }
}

/**
 * Gatebook did not answer within `patienceS`, or cannot accept requests.
 *
 * `acted` is true only if the act itself happened and just its report is missing; the session's
 * next call sends it.
 */
export class ServerUnavailable extends GatebookError {
  constructor(
    readonly reason: string,
    readonly undone = "",
    readonly acted = false,
  ) {
    super(`${reason} ${undone}`.trim());
  }

  /** Return the same error with a sentence that states what was not done. */
  withConsequence(undone: string): ServerUnavailable {
    return new ServerUnavailable(this.reason, undone, this.acted);
  }
}

/** Gatebook refused the request. `code` is the stable code, `problem` the whole answer. */
export class Refused extends GatebookError {
  readonly code: string;
  readonly reason: string;
  readonly sentence: string;
  /** When to ask again, in microseconds of this machine's clock. */
  readonly retryAtUs: number | null;

  constructor(
    readonly status: number,
    readonly problem: Problem,
  ) {
    const code = String(problem["code"] || "refused");
    const sentence = String(problem["detail"] || problem["title"] || "Refused").replace(/\.+$/, "");
    const where = problem["pointer"] ? ` at ${problem["pointer"]}` : "";
    super(`${sentence} (${code}${where}, HTTP ${status})`);
    this.code = code;
    this.reason = String(problem["reason"] || "");
    this.sentence = sentence;
    const pauseS = Number(problem["retry_after_s"] || 0);
    this.retryAtUs = pauseS ? Math.trunc((Date.now() + pauseS * 1000) * 1000) : null;
  }
}

const REFUSAL_SENTENCES: Record<string, string> = {
  refused: "the policy refuses it",
  denied: "denied",
  denied_session: "denied for the rest of this session",
  changes_requested: "changes were requested",
  expired: "the approval request expired",
  expired_unused: "approved, but the permission expired before it was used",
  revoked: "the permission was revoked before it was used",
  cancelled: "the request was withdrawn",
  requirement_changed: "the policy has become stricter since the approval",
  quorum_lost: "not enough of its approvers may still vote",
  superseded: "it was withdrawn; plan it under another key to perform it again",
  attempts_spent: "all its attempts are used up",
};

/**
 * People, a deadline, the policy or the verdict table refused; nothing was begun.
 *
 * `status` is the kind of refusal, `reviewerMessage` what a person wrote with the answer, `comments`
 * what people wrote on the request before.
 */
export class PermissionRefused extends GatebookError {
  constructor(
    readonly effect: string,
    readonly status: string,
    readonly reviewerMessage = "",
    readonly comments: readonly string[] = [],
  ) {
    const sentence = REFUSAL_SENTENCES[status] ?? `permission was refused (${status})`;
    super(reviewerMessage ? `${sentence}: “${reviewerMessage}”` : sentence);
  }
}

/** A person must state what happened to an effect; it was not repeated. */
export class HumanDecisionRequired extends GatebookError {
  readonly effect: string;

  constructor(
    readonly verdict: Verdict,
    because = "",
  ) {
    const sentence =
      because || verdict.sentence || "It is unknown whether it happened; a person must decide.";
    super(`${verdict.handle || verdict.effect}: ${sentence}`);
    this.effect = verdict.effect;
  }
}

/** What `NotYet` waits for. */
export type WaitReason =
  "people" | "stop" | "in_flight_window" | "pace" | "breaker" | "lease" | "probe";

/**
 * Permission is not there yet, or an earlier request may be under way; nothing was begun.
 *
 * `untilUs` is when that ends at the latest, in microseconds of the server's clock, or null.
 */
export class NotYet extends GatebookError {
  readonly effect: string;
  readonly reason: WaitReason;
  readonly untilUs: number | null;
  readonly gate: string;
  readonly gateUrl: string;
  readonly comments: readonly string[];

  constructor(
    sentence: string,
    details: {
      effect?: string;
      reason: WaitReason;
      untilUs?: number | null;
      gate?: string;
      gateUrl?: string;
      comments?: readonly string[];
    },
  ) {
    super(sentence);
    this.effect = details.effect ?? "";
    this.reason = details.reason;
    this.untilUs = details.untilUs ?? null;
    this.gate = details.gate ?? "";
    this.gateUrl = details.gateUrl ?? "";
    this.comments = details.comments ?? [];
  }
}

/** The session has ended and accepts no new effects; nothing was begun. */
export class SessionEnded extends GatebookError {
  constructor(readonly status = "") {
    const how = status ? ` (${status})` : "";
    super(`This session has ended${how}; nothing was begun. Open a session under another key.`);
  }
}

/** Another process has the lease of the session; this process must stop. */
export class LeaseLost extends GatebookError {
  constructor(
    sentence: string,
    readonly performed: EffectResult | null = null,
  ) {
    super(sentence);
  }
}

/** The session object was closed; open the session again. */
export class SessionClosed extends GatebookError {
  constructor() {
    super("This session object is closed. Open the session again.");
  }
}

/** Throw it in an act if the remote refused and nothing happened; the text is its reason. */
export class Rejected extends Error {
  override readonly name = "Rejected";
}
