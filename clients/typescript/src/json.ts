/**
 * JSON without loss, and the keys that effects get from it.
 *
 * A JavaScript number holds whole numbers exactly up to 2^53 - 1. Larger ones are `bigint`, both in
 * what you send and in what Gatebook answers. A number that may have lost digits is refused.
 */
import {createHash, randomBytes, randomUUID} from "node:crypto";

import {Refused} from "./errors.js";

/** What JSON can hold here. */
export type Json = null | boolean | number | bigint | string | readonly Json[] | JsonObject;
/** An object of JSON; fields that are undefined are left out. */
export interface JsonObject {
  readonly [name: string]: Json | undefined;
}
/** An object as Gatebook answers it. */
export type Answer = Record<string, any>;

/** Return a new idempotency key. Every retry of one command uses the same key. */
export function newKey(): string {
  return randomUUID().replaceAll("-", "");
}

/** Return a random name of a process, written to no file. */
export function newProcessName(): string {
  return randomBytes(16).toString("hex");
}

/**
 * Encode a value as JSON text, without spaces.
 *
 * Throws TypeError for what is not JSON and RangeError for a number that may have lost digits.
 * `canonical` is the form that digests use: sorted names, ASCII only.
 */
export function encodeJson(value: unknown, canonical = false, path = ""): string {
  switch (typeof value) {
    case "string":
      return encodeText(value, canonical);
    case "boolean":
      return String(value);
    case "bigint":
      return value.toString();
    case "number":
      return encodeNumber(value, path);
    case "object":
      break;
    default:
      throw new TypeError(`${path || "The value"} is ${typeof value}, which is not JSON.`);
  }
  if (value === null) return "null";
  if (Array.isArray(value)) {
    const items = Array.from(value, (item, index) => encodeJson(item, canonical, `${path}/${index}`));
    return `[${items.join(",")}]`;
  }
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== null && Object.getPrototypeOf(prototype as object) !== null) {
    const kind = (value as object).constructor?.name ?? "object";
    throw new TypeError(`${path || "The value"} is a ${kind}, which is not JSON. Convert it first.`);
  }
  const fields = Object.entries(value).filter(([, field]) => field !== undefined);
  if (canonical) fields.sort(([one], [other]) => compareCodePoints(one, other));
  const texts = fields.map(
    ([name, field]) =>
      `${encodeText(name, canonical)}:${encodeJson(field, canonical, `${path}/${name}`)}`,
  );
  return `{${texts.join(",")}}`;
}

function encodeText(text: string, canonical: boolean): string {
  const encoded = JSON.stringify(text);
  if (!canonical) return encoded;
  return encoded.replace(
    /[\u007f-\uffff]/g,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

function encodeNumber(value: number, path: string): string {
  const place = path || "The value";
  if (!Number.isFinite(value)) throw new TypeError(`${place} is ${value}, which is not JSON.`);
  if (Number.isInteger(value)) {
    if (!Number.isSafeInteger(value)) {
      throw new RangeError(
        `${place} is ${value}, which a JavaScript number cannot hold exactly. ` +
          "Pass a bigint (every digit is kept) or a string.",
      );
    }
    return String(value);
  }
  // The shortest digits, with an exponent below 1e-4, as the Python client writes them.
  if (Math.abs(value) >= 1e-4) return String(value);
  return value.toExponential().replace(/e-(\d)$/, "e-0$1");
}

function compareCodePoints(one: string, other: string): number {
  const left = Array.from(one, (letter) => letter.codePointAt(0)!);
  const right = Array.from(other, (letter) => letter.codePointAt(0)!);
  for (let index = 0; index < Math.min(left.length, right.length); index++) {
    if (left[index] !== right[index]) return left[index]! - right[index]!;
  }
  return left.length - right.length;
}

/** Encode a request body; throws Refused, as Gatebook would, for half of a surrogate pair. */
export function encodeBody(body: unknown): string {
  const text = encodeJson(body);
  // JSON.stringify writes a lone surrogate as an escape; a pair is written as itself.
  if (/(?<!\\)(?:\\\\)*\\ud[89a-f][0-9a-f]{2}/.test(text)) {
    throw new Refused(422, {
      code: "lone_surrogate",
      detail: "Text contains half of a surrogate pair. Replace it and send valid Unicode.",
    });
  }
  return text;
}

const BIGINT_MARK = `bigint-${randomBytes(12).toString("hex")}:`;
const TOKENS = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

/** Parse JSON; whole numbers that a JavaScript number cannot hold become bigint. */
export function parseJson(text: string): unknown {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  let marked = false;
  const safe = text.replace(TOKENS, (token) => {
    if (!/^-?\d{16,}$/.test(token) || Number.isSafeInteger(Number(token))) return token;
    marked = true;
    return `"${BIGINT_MARK}${token}"`;
  });
  if (!marked) return JSON.parse(text);
  return JSON.parse(safe, (_name, value: unknown) =>
    typeof value === "string" && value.startsWith(BIGINT_MARK)
      ? BigInt(value.slice(BIGINT_MARK.length))
      : value,
  );
}

/** Return a copy of a value as plain JSON; throws TypeError or RangeError. */
export function copyJson<T>(value: T): T {
  return parseJson(encodeJson(value)) as T;
}

/** Return the digest of an intent; `freeText` names arguments that do not count. */
export function computeCallDigest(
  tool: string,
  args: unknown,
  freeText: readonly string[] = [],
): string {
  if (freeText.length && isObject(args)) {
    args = Object.fromEntries(Object.entries(args).filter(([name]) => !freeText.includes(name)));
  }
  return createHash("sha256").update(encodeJson([tool, args], true)).digest("hex");
}

/** Return the key of an effect within its session. */
export function buildEffectKey(tool: string, digest: string, ordinal: number): string {
  return `${tool}:${digest.slice(0, 24)}:${ordinal}`;
}

/** Return whether a value is an object and no array. */
export function isObject(value: unknown): value is Answer {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
