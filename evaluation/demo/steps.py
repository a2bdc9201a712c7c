"""The kinds of steps that the demo agent's work is made of: each a real act, written down before
and after."""

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gatebook_client import AttemptInfo, Client, EffectResult, Rejected, Result, Session, Task

from evaluation.demo.git_sandbox import Ran, Workshop

REPOSITORY = "ferry/tariff"
RESULT_CHARACTERS = (
    4_000  # of a program's output; the whole of it goes into an artifact where it matters
)
LEASE_S = 10
Json = dict[str, Any]


@dataclass
class Worker:
    """One session of work in one workshop, in one process of perhaps several.

    A process that takes the work up again goes through the same steps from the first one: what is
    done is met under its name and passed over. `tasks` are those that are not done yet, by key;
    `current` is the key of the one that the next effects belong to.
    """

    client: Client
    shop: Workshop
    key: str
    falls: bool = False  # dies by SIGKILL when its next push has arrived
    tasks: dict[str, Task] = field(default_factory=dict)
    current: str = ""
    turn: int = 0
    opened: Session | None = None

    @property
    def session(self) -> Session:
        """The session, which is open."""
        if self.opened is None:
            raise RuntimeError("open() comes first")
        return self.opened

    def open(self, title: str, **more: Any) -> None:
        """Open the session, or take it up when the lease of the process before has run out."""
        self.opened = self.client.session(
            self.key,
            title=title,
            repository=REPOSITORY,
            labels={"purpose": "demonstration", "ticket": "FARE-17"},
            ttl_s=LEASE_S,
            wait_for_lease_s=10 * LEASE_S,
            **more,
        )
        word = "takes up session" if self.session.resumed else "session"
        say(f"{word} {self.session.handle}: {title}")
        self.session.register("git.push", probe=self._pushed)

    def close(self, status: str = "completed") -> None:
        """End the session."""
        self.session.end(status)
        self.session.close()

    def recover(self) -> None:
        """Find out what became of what an earlier process left open, and say so."""
        for step in self.session.recover().steps:
            say(f"{step.handle:>7}  {step.result:<12}  {step.effect_key:<16}  {step.because}")

    def withdraw(self, effect: str, remark: str) -> None:
        """Say that a planned effect will not happen."""
        told = self.session.send_command(f"/effects/{effect}/supersede", {}).body
        tell(EffectResult.from_json(told), remark)

    # Kinds of effects.
    # ----------------------------------------------------------------------------------------------

    def edit(self, key: str, path: str, text: str, why: str) -> EffectResult:
        """Write a whole file; the reference is git's id of the new content."""

        def act(_key: str) -> Result:
            return Result("ok", self.shop.write(path, text), {"bytes": len(text.encode())})

        return self.effect(key, "file.edit", {"path": path, "text": text}, act, why=why)

    def test(self, key: str, why: str) -> EffectResult:
        """Run the test and keep its whole output."""
        outputs: list[str] = []

        def act(_key: str) -> Result:
            ran = self.shop.python("test_tariff.py")
            outputs.append(ran.output)
            return _done(ran)

        done = self.effect(key, "test.run", {"command": ["python", "test_tariff.py"]}, act, why=why)
        if outputs:
            self.session.store_artifact(
                f"{key}.log", "text/plain", outputs[-1].encode(), effect=done.effect
            )
        return done

    def run(self, key: str, command: list[str], why: str, tool: str = "shell.run") -> EffectResult:
        """Run a program as it is given."""
        return self.effect(
            key, tool, {"command": command}, lambda _key: _done(self.shop.run(*command)), why=why
        )

    def commit(self, key: str, message: str, paths: list[str], why: str) -> EffectResult:
        """Commit files and keep the difference; the reference is the new commit."""

        def act(_key: str) -> Result:
            self.shop.git("add", "--", *paths)
            return _done(self.shop.git("commit", "--message", message), self.shop.head())

        done = self.effect(key, "git.commit", {"message": message, "paths": paths}, act, why=why)
        if not done.already_done:
            difference = self.shop.git("show", "HEAD").output.encode()
            self.session.store_artifact(
                f"{key}.diff", "text/x-diff", difference, effect=done.effect
            )
        return done

    def push(
        self, key: str, ref: str, why: str, again: Callable[[], object] | None = None
    ) -> EffectResult:
        """Push what is checked out to `ref`; the reference is the commit that stands there then.

        The commit is named, so that what a person allowed is what goes out, whatever is checked out
        by then. A push that may have to catch up first cannot know its commit yet and says HEAD.
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
        """The commits that main at the remote did not have when this clone last looked, newest
        first."""
        told = self.shop.git("log", "--format=%h%x09%an%x09%s", f"origin/main..{commit}").output
        lines = [line.split("\t", 2) for line in told.splitlines()]
        return [{"sha": sha, "author": author, "title": title} for sha, author, title in lines]

    def effect(
        self,
        key: str,
        tool: str,
        arguments: Json,
        act: Callable[[str], Result],
        *,
        why: str,
        again: Callable[[], object] | None = None,
        **more: Any,
    ) -> EffectResult:
        """Perform one effect, a second time after `again` where it was rejected; say a line about
        each attempt.

        Raises Rejected when the other side said no and there is no second time.
        """
        self.turn += 1
        how = self.describe(key, why) | more
        try:
            done = self._perform(tool, arguments, act, how)
        except Rejected:
            say(
                f"         failed        {key:<16}  rejected"
                + ("; catching up, then once more" if again else "")
            )
            if again is None:
                raise
            again()
            done = self._perform(tool, arguments, act, how)
        tell(done)
        return done

    def _perform(
        self, tool: str, arguments: Json, act: Callable[[str], Result], how: Json
    ) -> EffectResult:
        undone = how.get("undone")
        if undone is not None:
            rest = {name: value for name, value in how.items() if name != "undone"}
            return self.session.compensate(undone, tool, arguments, act, **rest)
        return self.session.perform(tool, arguments, act, **how)

    def describe(self, key: str, why: str) -> Json:
        """What is said of an effect beside its tool and arguments."""
        return {"key": key, "why": why, "turn": f"turn-{self.turn}", "task": self.current}

    def delete_branch(
        self, key: str, branch_ref: str, pushed: EffectResult, why: str
    ) -> EffectResult:
        """Take back a pushed branch: an effect of its own, which compensates the push that made it."""
        return self.effect(
            key,
            "git.branch.delete",
            {"remote": "origin", "ref": branch_ref},
            lambda _key: self._push(f":{branch_ref}", branch_ref),
            why=why,
            target={"repository": REPOSITORY, "ref": branch_ref},
            undone=pushed,
        )

    def _push(self, refspec: str, reference: str = "") -> Result:
        ran = self.shop.git("push", "--porcelain", "origin", refspec)
        if self.falls:
            say("killed by SIGKILL in the middle of its push, before it could tell anybody")
            os.kill(os.getpid(), signal.SIGKILL)
        if "[rejected]" in ran.output or "[remote rejected]" in ran.output:
            raise Rejected(ran.output.strip()[:RESULT_CHARACTERS])
        return _done(ran, reference or self.shop.head())

    def _pushed(self, known: AttemptInfo) -> str | None:
        """Where the remote's ref stands, if it is what a push was to bring there."""
        wanted, _, ref = str(known.arguments["refspec"]).partition(":")
        there = self.shop.git("ls-remote", "origin", ref).output.partition("\t")[0].strip()
        return (
            there if there and there == self.shop.git("rev-parse", wanted).output.strip() else None
        )

    # Tasks and their items.
    # -----------------------------------------------------------------------------------------

    def task(self, key: str, title: str, items: list[str]) -> None:
        """Create a task, below "job" unless it is that one, with its items still to do."""
        self.tasks[key] = self.session.task(
            key, title, parent="" if key == "job" else "job", items=items
        )

    def start(self, key: str) -> None:
        """Work on a task from now on."""
        self.current = key
        if not self.tasks[key].is_finished:
            self.tasks[key].start()

    def set_item(self, task: str, item: str, state: str = "done") -> None:
        """Say what became of one item of a task."""
        if not self.tasks[task].is_finished:
            self.tasks[task].set_item(item, state)

    def finish(self, key: str) -> None:
        """Say that a task is done."""
        task = self.tasks.pop(key)
        if not task.is_finished:
            task.finish()


def _done(ran: Ran, reference: str = "") -> Result:
    """A program that ended has happened, well or not: its exit code is the outcome."""
    result = {"exit_code": ran.code, "output": ran.output[:RESULT_CHARACTERS]}
    return Result("ok" if ran.code == 0 else "error", reference if ran.code == 0 else "", result)


def tell(done: EffectResult, remark: str = "") -> None:
    """Say in one line what became of an effect."""
    outcome = done.outcome if done.state == "acknowledged" else ""
    attempt = f"attempt {done.attempt}" if done.attempt > 1 else ""
    reference = done.reference if outcome == "ok" else ""
    reference = reference[:12] if len(reference) == 40 else reference
    remark = remark or ("was done before" if done.already_done else "")
    words = [
        f"{done.handle:>7}  {done.state:<12}  {done.effect_key:<16}",
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
