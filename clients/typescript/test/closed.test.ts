/** Without an answer that is understood, nothing is done; one command has one key. */
import assert from "node:assert/strict";
import {test} from "node:test";

import {Client, Refused, ServerUnavailable} from "../src/index.js";

type Reply = [status: number, body: unknown] | Error;
interface Sent {
  path: string;
  key: string | null;
  body: any;
}

/** Return a client whose requests get these replies in turn, and what it sent. */
function scripted(replies: Reply[], patienceS = 5): {client: Client; sent: Sent[]} {
  const sent: Sent[] = [];
  const fetcher = async (url: RequestInfo | URL, how: RequestInit = {}): Promise<Response> => {
    const headers = new Headers(how.headers);
    const body = how.body === undefined ? null : JSON.parse(String(how.body));
    sent.push({path: new URL(String(url)).pathname, key: headers.get("Idempotency-Key"), body});
    const reply = replies.shift() ?? new TypeError("no route");
    if (reply instanceof Error) throw reply;
    const text = typeof reply[1] === "string" ? reply[1] : JSON.stringify(reply[1]);
    return new Response(text, {status: reply[0]});
  };
  const client = new Client({url: "http://gatebook.test", token: "t", patienceS, fetch: fetcher});
  return {client, sent};
}

const OPENED: Reply = [201, {id: "S", key: "a", status: "active"}];
const PLANNED: Reply = [201, {id: "E", answer: "proceed", permission: "granted"}];

/** Perform one effect; return what was thrown and how often the act ran. */
async function perform(client: Client): Promise<{thrown: unknown; acts: number}> {
  let acts = 0;
  try {
    const session = await client.session("a");
    await session.perform("mail.send", {to: "ada"}, () => void acts++);
  } catch (thrown) {
    return {thrown, acts};
  }
  return {thrown: null, acts};
}

test("a server that is down, or no Gatebook, means that nothing is done", async () => {
  const cases: [Reply[], new (...values: any[]) => Error][] = [
    [[], ServerUnavailable],
    [[OPENED, PLANNED], ServerUnavailable],
    [[OPENED, PLANNED, [200, "<html>"]], Refused],
    [[OPENED, PLANNED, [302, {id: "E", attempt: 1}]], Refused],
    [[OPENED, PLANNED, [200, {}]], Refused],
    [[OPENED, PLANNED, [200, {id: "other", attempt: 1}]], Refused],
    [[OPENED, PLANNED, [500, {}]], ServerUnavailable],
  ];
  for (const [replies, kind] of cases) {
    const {client} = scripted(replies, 0);
    const {thrown, acts} = await perform(client);
    assert.ok(thrown instanceof kind, String(thrown));
    assert.equal(acts, 0);
  }
});

test("every retry of a command has its key, and no other command has", async () => {
  const lost = new TypeError("fetch failed");
  const done: Reply = [200, {id: "E", state: "acknowledged", outcome: "ok"}];
  const {client, sent} = scripted([
    ...([lost, OPENED, [503, {}], PLANNED, lost, [200, {id: "E", attempt: 1}]] as Reply[]),
    ...([lost, done] as Reply[]),
  ]);
  assert.deepEqual(await perform(client), {thrown: null, acts: 1});
  assert.equal(sent.length, 8);
  for (let index = 0; index < 8; index += 2) assert.deepEqual(sent[index], sent[index + 1]);
  assert.equal(new Set(sent.map((request) => request.key)).size, 4);
});

test("a report that is missing is sent by the next call, and says that the act happened", async () => {
  const dispatched: Reply = [200, {id: "E", attempt: 1}];
  const {client, sent} = scripted([OPENED, PLANNED, dispatched], 0);
  const session = await client.session("a");
  const lost = await session.perform("mail.send", {}, () => 1).catch((error: unknown) => error);
  assert.ok(lost instanceof ServerUnavailable && lost.acted);
  await assert.rejects(session.perform("mail.send", {}, () => 1), /earlier results could not/);
  assert.deepEqual(sent.at(-1), sent.at(-2));
});
