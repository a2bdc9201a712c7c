/** Numbers keep their digits, and keys equal those of the Python client. */
import assert from "node:assert/strict";
import {readFileSync} from "node:fs";
import {test} from "node:test";

import {Refused, buildEffectKey, computeCallDigest, encodeJson, parseJson} from "../src/index.js";
import {encodeBody} from "../src/json.js";
import {toSendableJson} from "../src/types.js";

const VECTORS = new URL("../../test/vectors.json", import.meta.url);

test("digests and keys are those of the Python client", () => {
  const vectors = parseJson(readFileSync(VECTORS, "utf8")) as any[];
  assert.ok(vectors.length >= 10);
  for (const {tool, arguments: args, free_text: freeText, ordinal, digest, key} of vectors) {
    assert.equal(computeCallDigest(tool, args, freeText), digest, encodeJson(args));
    assert.equal(buildEffectKey(tool, digest, ordinal), key);
  }
});

test("whole numbers beyond 2^53 are bigint in both directions", () => {
  const text = '{"small":9007199254740991,"large":9007199254740993,"text":"12345678901234567890"}';
  const parsed = parseJson(text) as any;
  assert.equal(parsed.large, 9007199254740993n);
  assert.equal(parsed.small, Number.MAX_SAFE_INTEGER);
  assert.equal(encodeJson(parsed), text);
  assert.equal(encodeJson(parseJson('["\\"1234567890123456789", -1234567890123456789]')),
    '["\\"1234567890123456789",-1234567890123456789]');
});

test("what JavaScript cannot hold exactly is refused, never rounded", () => {
  assert.throws(() => encodeJson({amounts: [2 ** 53]}), /\/amounts\/0 is 9007199254740992.*bigint/);
  assert.throws(() => encodeJson(1e21), RangeError);
  for (const value of [NaN, Infinity, undefined, () => 1, Symbol("a"), new Date(), new Map()]) {
    assert.throws(() => encodeJson({value}.value), TypeError);
  }
  assert.throws(() => encodeJson([undefined]), TypeError);
  assert.equal(encodeJson({left: undefined, kept: null}), '{"kept":null}');
});

test("half of a surrogate pair is refused as Gatebook refuses it", () => {
  assert.throws(
    () => encodeBody({text: "cut \ud83d"}),
    (error) => error instanceof Refused && error.code === "lone_surrogate",
  );
  assert.equal(encodeBody("\\ud83d 😀"), '"\\\\ud83d 😀"');
});

test("a result that cannot be sent is replaced by a note", () => {
  assert.match(String((toSendableJson({at: new Date()}) as any).left_out), /not JSON/);
  assert.match(String((toSendableJson("x".repeat(300_000)) as any).left_out), /artifact/);
  assert.equal(toSendableJson(undefined), null);
});
