"""The kinds of steps that the demo agent's work is made of: each a real act, written down before and after."""

import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from evaluation.reporter import Json, Outcome, RejectedError, Reporter
from evaluation.workshop import Ran, Workshop

REPOSITORY = "ferry/tariff"
RESULT_CHARACTERS = 4_000  # of a program's output; the whole of it goes into an artifact where it matters


@dataclass
class Worker:
    """One session of work in one workshop.

    `tasks` are those that are not done yet, by key; `current` is the key of the one that the next effects belong to.
    """

    reporter: Reporter
    shop: Workshop
    session: str = ""
    tasks: dict[str, str] = field(default_factory=dict)
    current: str = ""
    turn: int = 0

    def open(self, title: str, **more: Any) -> None:
        """Open the session."""
        opened = self.reporter.command(
            "/sessions",
            {
                "key": f"fares-{uuid.uuid4().hex[:12]}",
                "title": title,
                "repository": REPOSITORY,
                "labels": {"purpose": "demonstration", "ticket": "FARE-17"},
                **more,
            },
        )
        self.session = opened["id"]
        say(f"session {opened['handle']}: {title}")

    def close(self, status: str = "completed") -> None:
        """End the session."""
        self.reporter.command(f"/sessions/{self.session}/end", {"status": status})

    def withdraw(self, effect: str, remark: str) -> None:
        """Say that a planned effect will not happen."""
        tell(self.reporter.command(f"/effects/{effect}/supersede", {}), remark)

    # Kinds of effects. ----------------------------------------------------------------------------------------------

    def edit(self, key: str, path: str, text: str, why: str) -> Json:
        """Write a whole file; the reference is git's id of the new content."""

        def act(_key: str) -> Outcome:
            return Outcome("ok", self.shop.write(path, text), {"bytes": len(text.encode())})

        return self.effect(key, "file.edit", {"path": path, "text": text}, act, why=why)

    def test(self, key: str, why: str) -> Json:
        """Run the test and keep its whole output."""
        outputs: list[str] = []

        def act(_key: str) -> Outcome:
            ran = self.shop.python("test_tariff.py")
            outputs.append(ran.output)
            return _outcome(ran)

        answer = self.effect(key, "test.run", {"command": ["python", "test_tariff.py"]}, act, why=why)
        self.reporter.artifact(self.session, answer["id"], f"{key}.log", "text/plain", outputs[-1].encode())
        return answer

    def run(self, key: str, command: list[str], why: str, tool: str = "shell.run") -> Json:
        """Run a program as it is given."""
        return self.effect(key, tool, {"command": command}, lambda _key: _outcome(self.shop.run(*command)), why=why)

    def commit(self, key: str, message: str, paths: list[str], why: str) -> Json:
        """Commit files and keep the difference; the reference is the new commit."""

        def act(_key: str) -> Outcome:
            self.shop.git("add", "--", *paths)
            return _outcome(self.shop.git("commit", "--message", message), self.shop.head())

        answer = self.effect(key, "git.commit", {"message": message, "paths": paths}, act, why=why)
        difference = self.shop.git("show", "HEAD").output.encode()
        self.reporter.artifact(self.session, answer["id"], f"{key}.diff", "text/x-diff", difference)
        return answer

    def push(self, key: str, ref: str, why: str, again: Callable[[], object] | None = None) -> Json:
        """Push what is checked out to `ref`; the reference is the commit that stands there then.

        The commit is named, so that what a person allowed is what goes out, whatever is checked out by then. A push
        that may have to catch up first cannot know its commit yet and says HEAD.
        """
        commit = "HEAD" if again else self.shop.head()
        carried = {} if again else {"commits": self._carried(commit)}
        refspec = f"{commit}:{ref}"
        return self.effect(
            key,
            "git.push",
            {"remote": "origin", "refspec": refspec, **carried},
            lambda _key: self._push(refspec),
            why=why,
            again=again,
            target={"repository": REPOSITORY, "ref": ref},
        )

    def _carried(self, commit: str) -> list[Json]:
        """The commits that main at the remote does not have yet, newest first."""
        told = self.shop.git("log", "--format=%h%x09%an%x09%s", f"origin/main..{commit}").output
        lines = [line.split("\t", 2) for line in told.splitlines()]
        return [{"sha": sha, "author": author, "title": title} for sha, author, title in lines]

    def effect(
        self,
        key: str,
        tool: str,
        arguments: Json,
        act: Callable[[str], Outcome],
        *,
        why: str,
        again: Callable[[], object] | None = None,
        **more: Any,
    ) -> Json:
        """Perform one effect, a second time after `again` where it was rejected; say a line about each attempt."""
        self.turn += 1
        plan = self.describe(key, tool, arguments, why) | more

        def told(answer: Json) -> None:
            tell(answer, "rejected; catching up, then once more" if answer["state"] == "failed" and again else "")

        return self.reporter.perform(self.session, plan, act, again, told)

    def describe(self, key: str, tool: str, arguments: Json, why: str) -> Json:
        """The body of a plan."""
        return {
            "effect_key": key,
            "tool": tool,
            "arguments": arguments,
            "why": why,
            "turn": f"turn-{self.turn}",
            **({"task": self.current} if self.current else {}),
        }

    def delete_branch(self, key: str, branch_ref: str, pushed: Json, why: str) -> Json:
        """Take back a pushed branch: an effect of its own, which compensates the push that made it."""
        return self.effect(
            key,
            "git.branch.delete",
            {"remote": "origin", "ref": branch_ref},
            lambda _key: self._push(f":{branch_ref}", branch_ref),
            why=why,
            target={"repository": REPOSITORY, "ref": branch_ref},
            compensates=pushed["id"],
        )

    def _push(self, refspec: str, reference: str = "") -> Outcome:
        ran = self.shop.git("push", "--porcelain", "origin", refspec)
        if "[rejected]" in ran.output or "[remote rejected]" in ran.output:
            raise RejectedError(ran.output.strip()[:RESULT_CHARACTERS])
        return _outcome(ran, reference or self.shop.head())

    # Tasks and their items. -----------------------------------------------------------------------------------------

    def task(self, key: str, title: str, items: list[str]) -> None:
        """Create a task, below "job" unless it is that one, with its items still to do."""
        parent = {} if key == "job" else {"parent": "job"}
        made = self.reporter.command(f"/sessions/{self.session}/tasks", {"key": key, "title": title, **parent})
        self.tasks[key] = made["id"]
        if items:
            self._put(key, items, "pending")

    def start(self, key: str) -> None:
        """Work on a task from now on."""
        self.current = key
        self.reporter.command(
            f"/tasks/{self.tasks[key]}/change", {"state": "running", "worker": self.reporter.process[:8]}
        )

    def item(self, task: str, item: str, state: str = "done") -> None:
        """Say what became of one item of a task."""
        self._put(task, [item], state)

    def finish(self, key: str) -> None:
        """Say that a task is done."""
        self.reporter.command(f"/tasks/{self.tasks.pop(key)}/done", {})

    def _put(self, task: str, items: list[str], state: str) -> None:
        body = {"items": [{"key": item, "state": state} for item in items]}
        self.reporter.command(f"/tasks/{self.tasks[task]}/items", body)


def _outcome(ran: Ran, reference: str = "") -> Outcome:
    """A program that ended has happened, well or not: its exit code is the outcome."""
    result = {"exit_code": ran.code, "output": ran.output[:RESULT_CHARACTERS]}
    return Outcome("ok" if ran.code == 0 else "error", reference if ran.code == 0 else "", result)


def tell(answer: Json, remark: str = "") -> None:
    """Say in one line what became of an effect."""
    outcome = answer.get("outcome", "") if answer["state"] == "acknowledged" else ""
    attempt = f"attempt {answer['attempt']}" if answer.get("attempt", 1) > 1 else ""
    reference = answer.get("external_reference", "") if outcome == "ok" else ""
    reference = reference[:12] if len(reference) == 40 else reference
    words = [
        f"{answer['handle']:>7}  {answer['state']:<12}  {answer['effect_key']:<16}",
        outcome,
        attempt,
        reference,
        remark,
    ]
    say("  ".join(word for word in words if word).rstrip())


def say(line: str) -> None:
    """Tell the person at the terminal."""
    sys.stdout.write(f"demo agent: {line}\n")
    sys.stdout.flush()
