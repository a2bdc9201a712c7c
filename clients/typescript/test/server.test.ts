/** The steps of an effect against the real server at GATEBOOK_URL. */
import assert from "node:assert/strict";
import {test} from "node:test";

import {Client, NotYet, PermissionRefused, Refused, Rejected, Result, SessionEnded} from "../src/index.js";

const skip = process.env["GATEBOOK_URL"] ? false : "GATEBOOK_URL names no server";
const RUN = String(process.pid);

test("steps of several processes: plan, dispatch, acknowledge, result", {skip}, async () => {
  const planner = await new Client().session(`steps/${RUN}`, {title: "Steps"});
  const planned = await planner.plan("probeable", {to: "dora", cents: 2n ** 60n}, {callId: "c1"});
  assert.ok(planned.mayProceed);
  assert.ok((await planner.wait({callId: "c1"})).mayProceed);
  const actor = await new Client().attach(`steps/${RUN}`);
  await assert.rejects(
    actor.dispatch({callId: "c1"}, {arguments: {to: "eve", cents: 2n ** 60n}}),
    Refused,
  );
  const attempt = await actor.dispatch({callId: "c1"}, {arguments: {to: "dora", cents: 2n ** 60n}});
  assert.ok(attempt.remoteKey);
  await actor.acknowledge(attempt, {result: {total: 2n ** 60n}, reference: "m-1"});
  const stored = await planner.result({callId: "c1"});
  assert.deepEqual([stored.result, stored.reference, stored.ok], [{total: 2n ** 60n}, "m-1", true]);
  await assert.rejects(actor.dispatch({callId: "c1"}), Refused);
  await planner.end();
  await assert.rejects(planner.plan("probeable", {}), SessionEnded);
});

test("a failed attempt: rejected is the next attempt, anything else is unknown", {skip}, async () => {
  const session = await new Client().session(`failed-${RUN}`);
  const planned = await session.plan("probeable", {to: "a"});
  const attempt = await session.dispatch(planned);
  assert.equal((await session.fail(attempt, {reason: "rejected", detail: "full"})).state, "failed");
  let acts = 0;
  const refusing = session.perform("probeable", {to: "b"}, () => {
    throw new Rejected("no such box");
  });
  await assert.rejects(refusing, Rejected);
  const done = await session.perform("probeable", {to: "b"}, () => ++acts);
  assert.deepEqual([done.attempt, done.result, done.ok], [2, 1, true]);
  const broken = session.perform("opaque", {to: "c"}, () => {
    throw new Error("line cut");
  });
  await assert.rejects(broken, /line cut/);
  assert.equal((await session.recover({waitS: 0})).safe, false);
});

test("equal calls are two effects; the next process finds both done", {skip}, async () => {
  const acts: string[] = [];
  const run = async (): Promise<boolean[]> => {
    const session = await new Client().session(`twice-${RUN}`);
    const act = (remoteKey: string): Result => {
      acts.push(remoteKey);
      return new Result({reference: `m-${acts.length}`, result: {n: acts.length}});
    };
    const both = await Promise.all([1, 2].map(() => session.perform("probeable", {x: 0.00001}, act)));
    return both.map((result) => result.alreadyDone);
  };
  assert.deepEqual(await run(), [false, false]);
  assert.deepEqual(await run(), [true, true]);
  assert.equal(new Set(acts).size, 2);
  const session = await new Client().session(`twice-${RUN}`);
  await session.end();
  const ended = await new Client().session(`twice-${RUN}`);
  const again = await ended.perform("probeable", {x: 0.00001}, () => acts.push("again"));
  assert.deepEqual([again.alreadyDone, again.result, acts.length], [true, {n: 1}, 2]);
  await assert.rejects(ended.perform("probeable", {x: 2}, () => acts.push("new")), SessionEnded);
});

test("permission that is missing is NotYet, with its gate and deadline", {skip}, async () => {
  const token = process.env["GATEBOOK_GATED_TOKEN"] ?? "";
  const session = await new Client({token}).session(`gated-${RUN}`);
  const target = {repository: "acme/shop", ref: "refs/heads/main"};
  const args = {remote: "origin", ref: "refs/heads/main"};
  let acts = 0;
  const waiting = session.perform("git.branch.delete", args, () => ++acts, {target, waitS: 0});
  await assert.rejects(waiting, (error) => {
    assert.ok(error instanceof NotYet);
    assert.equal(error.reason, "people");
    assert.ok(error.untilUs! > Date.now() * 1000);
    assert.match(error.gateUrl, /^http.*\/approvals\//);
    return true;
  });
  const other = {remote: "origin", ref: "refs/heads/main", force: true};
  const planned = await session.plan("git.branch.delete", other, {target, key: "other"});
  assert.deepEqual([planned.answer, planned.permission], ["wait", "pending"]);
  await assert.rejects(session.dispatch({key: "other"}), NotYet);
  await assert.rejects(session.wait(planned, {waitS: 0}), NotYet);
  assert.equal(acts, 0);
  assert.ok(!(new NotYet("x", {reason: "stop"}) instanceof PermissionRefused));
});
