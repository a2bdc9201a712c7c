/** Client of Gatebook: effects are written down before they happen, and performed once. */
export {Client, Session} from "./client.js";
export type {
  ClientOptions,
  EffectReference,
  PerformOptions,
  PlanOptions,
  SessionOptions,
} from "./client.js";
export type {OnWait} from "./effects.js";
export * from "./errors.js";
export {buildEffectKey, computeCallDigest, encodeJson, parseJson} from "./json.js";
export type {Json, JsonObject} from "./json.js";
export type {Recovery, Step, StepResult, ToolHandlers} from "./recovery.js";
export {Result} from "./types.js";
export type {
  Act,
  AttemptInfo,
  Dispatched,
  EffectResult,
  PlannedEffect,
  Probe,
  ProbeAnswer,
  Verdict,
} from "./types.js";
export type {WaitOptions} from "./waiting.js";
