/**
 * An agent that tests start, kill and start again.
 *
 * Arguments: session key, file that stands for the world, number of effects, and optionally where it
 * kills itself: `before` or `after` the effect, and the number of that effect. With `gated` as the
 * number of effects it performs one effect that waits for people. Prints one JSON object.
 */
import {appendFileSync, existsSync, readFileSync} from "node:fs";

import {Client} from "../src/index.js";

const [key = "", world = "", number = "", when = "", which = ""] = process.argv.slice(2);

/** Die as if the machine had lost its power. */
function die(): never {
  process.kill(process.pid, "SIGKILL");
  for (;;);
}

function readWorld(): string[] {
  return existsSync(world) ? readFileSync(world, "utf8").split("\n").filter(Boolean) : [];
}

const client = new Client({
  onWait: (reason, answer) => {
    if (reason === "gate") console.log(JSON.stringify({gate: answer["gate"].id}));
  },
});
const session = await client.session(key);
if (number === "gated") {
  const target = {repository: "acme/shop", ref: "refs/heads/main"};
  const args = {remote: "origin", ref: "refs/heads/main", run: key};
  try {
    const act = (remoteKey: string): void => appendFileSync(world, `${remoteKey}\n`);
    const done = await session.perform("git.branch.delete", args, act, {target});
    console.log(JSON.stringify({done: done.state, attempt: done.attempt}));
  } catch (error: any) {
    const {name, status, comments, reviewerMessage: message = String(error)} = error;
    console.log(JSON.stringify({error: name, status, message, comments}));
  }
} else {
  session.register("probeable", {probe: ({remoteKey}) => readWorld().includes(remoteKey)});
  const recovered = await session.recover();
  let alreadyDone = 0;
  for (let index = 0; index < Number(number); index++) {
    const done = await session.perform("probeable", {index}, (remoteKey) => {
      if (when === "before" && index === Number(which)) die();
      appendFileSync(world, `${remoteKey}\n`);
      if (when === "after" && index === Number(which)) die();
    });
    alreadyDone += Number(done.alreadyDone);
  }
  await session.end();
  const results = recovered.steps.map((step) => step.result);
  console.log(JSON.stringify({results, alreadyDone, safe: recovered.safe}));
}
