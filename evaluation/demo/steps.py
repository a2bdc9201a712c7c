"""Steps of the demo agent's work: real acts, reported before and after."""

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gatebook_client import AttemptInfo, Client, EffectResult, Rejected, Result, Session, Task

from evaluation.demo.git_sandbox import Ran, Workshop

REPOSITORY = "ferry/tariff"
RESULT_CHARACTERS = 4_000  # of a program's output; complete outputs of tests are artifacts
LEASE_S = 10
Json = dict[str, Any]


@dataclass
class Worker:
    """One session of work in one workshop, possibly over several processes.

    A process that resumes the work repeats all steps from the first; finished ones are recognised by
    their keys and skipped. `tasks` are the open tasks by key; `current` is the key of the task of the
    next effects.
    """

    client: Client
    shop: Workshop
    key: str
    dies: bool = False  # by SIGKILL, when its next push has arrived
    tasks: dict[str, Task] = field(default_factory=dict)
    current: str = ""
    turn: int = 0
    opened: Session | None = None

    @property
    def session(self) -> Session:
        """The open session."""
        if self.opened is None:
            raise RuntimeError("call open() first")
        return self.opened

    def open(self, title: str, **more: Any) -> None:
        """Open the session, or resume it after the lease of the previous process has expired."""
        self.opened = self.client.session(
            self.key,
            title=title,
            repository=REPOSITORY,
            labels={"purpose": "demonstration", "ticket": "FARE-17"},
            ttl_s=LEASE_S,
            wait_for_lease_s=10 * LEASE_S,
            **more,
        )
        label = "resumes session" if self.session.resumed else "session"
        print_line(f"{label} {self.session.handle}: {title}")
        self.session.register("git.push", probe=self._probe_push)

    def close(self, status: str = "completed") -> None:
        """End the session."""
        self.session.end(status)
        self.session.close()

    def recover(self) -> None:
        """Recover the effects that an earlier process left open, and print the results."""
        for step in self.session.recover().steps:
            print_line(
                f"{step.handle:>7}  {step.result:<12}  {step.effect_key:<16}  {step.because}"
            )

    def withdraw(self, effect: str, remark: str) -> None:
        """Withdraw a planned effect."""
        answer = self.session.send_command(f"/effects/{effect}/supersede", {}).body
        print_result(EffectResult.from_json(answer), remark)

    # Kinds of effects.
    # ----------------------------------------------------------------------------------------------

    def edit(self, key: str, path: str, text: str, why: str) -> EffectResult:
        """Write a file; the reference is git's id of the new content."""

        def act(_key: str) -> Result:
            return Result("ok", self.shop.write(path, text), {"bytes": len(text.encode())})

        return self.effect(key, "file.edit", {"path": path, "text": text}, act, why=why)

    def test(self, key: str, why: str) -> EffectResult:
        """Run the test and store its output."""
        outputs: list[str] = []

        def act(_key: str) -> Result:
            ran = self.shop.python("test_tariff.py")
            outputs.append(ran.output)
            return _make_result(ran)

        done = self.effect(key, "test.run", {"command": ["python", "test_tariff.py"]}, act, why=why)
        if outputs:
            self.session.store_artifact(
                f"{key}.log", "text/plain", outputs[-1].encode(), effect=done.effect
            )
        return done

    def run(self, key: str, command: list[str], why: str, tool: str = "shell.run") -> EffectResult:
        """Run a program."""
        return self.effect(
            key,
            tool,
            {"command": command},
            lambda _key: _make_result(self.shop.run(*command)),
            why=why,
        )

    def commit(self, key: str, message: str, paths: list[str], why: str) -> EffectResult:
        """Commit files and store the difference; the reference is the new commit."""

        def act(_key: str) -> Result:
            self.shop.git("add", "--", *paths)
            return _make_result(self.shop.git("commit", "--message", message), self.shop.head())

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
        """Push the checked-out commit to `ref`; the reference is the commit that `ref` then has.

        The refspec names the commit, so the push sends what a person approved. A push that may have to
        catch up first does not know its commit yet and names HEAD.
        """
        commit = "HEAD" if again else self.shop.head()
        commits = {} if again else {"commits": self._list_new_commits(commit)}
        refspec = f"{commit}:{ref}"
        return self.effect(
            key,
            "git.push",
            {"remote": "origin", "refspec": refspec, **commits},
            lambda _key: self._push(refspec),
            why=why,
            again=again,
            target={"repository": REPOSITORY, "ref": ref},
        )

    def _list_new_commits(self, commit: str) -> list[Json]:
        """Return the commits that main lacked at the last fetch, newest first."""
        output = self.shop.git("log", "--format=%h%x09%an%x09%s", f"origin/main..{commit}").output
        lines = [line.split("\t", 2) for line in output.splitlines()]
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
        """Perform one effect, after `again` a second time if it was rejected; print each attempt.

        Raises Rejected if the remote rejected it and there is no `again`.
        """
        self.turn += 1
        how = self.describe(key, why) | more
        try:
            done = self._perform(tool, arguments, act, how)
        except Rejected:
            print_line(
                f"         failed        {key:<16}  rejected"
                + ("; catching up and retrying" if again else "")
            )
            if again is None:
                raise
            again()
            done = self._perform(tool, arguments, act, how)
        print_result(done)
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
        """Return the fields of an effect besides tool and arguments."""
        return {"key": key, "why": why, "turn": f"turn-{self.turn}", "task": self.current}

    def delete_branch(
        self, key: str, branch_ref: str, pushed: EffectResult, why: str
    ) -> EffectResult:
        """Delete a pushed branch, as an effect that compensates its push."""
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
        if self.dies:
            print_line("killed by SIGKILL in the middle of its push, before it could report it")
            os.kill(os.getpid(), signal.SIGKILL)
        if "[rejected]" in ran.output or "[remote rejected]" in ran.output:
            raise Rejected(ran.output.strip()[:RESULT_CHARACTERS])
        return _make_result(ran, reference or self.shop.head())

    def _probe_push(self, attempt: AttemptInfo) -> str | None:
        """Return the commit of the remote's ref, if it is the one that the push sent."""
        wanted, _, ref = str(attempt.arguments["refspec"]).partition(":")
        remote_commit = self.shop.git("ls-remote", "origin", ref).output.partition("\t")[0].strip()
        return (
            remote_commit
            if remote_commit and remote_commit == self.shop.git("rev-parse", wanted).output.strip()
            else None
        )

    # Tasks and their items.
    # -----------------------------------------------------------------------------------------

    def task(self, key: str, title: str, items: list[str]) -> None:
        """Create a task with pending items, below "job" unless it is "job"."""
        self.tasks[key] = self.session.task(
            key, title, parent="" if key == "job" else "job", items=items
        )

    def start(self, key: str) -> None:
        """Start a task; the next effects belong to it."""
        self.current = key
        if not self.tasks[key].is_finished:
            self.tasks[key].start()

    def set_item(self, task: str, item: str, state: str = "done") -> None:
        """Set the state of an item of a task."""
        if not self.tasks[task].is_finished:
            self.tasks[task].set_item(item, state)

    def finish(self, key: str) -> None:
        """Finish a task."""
        task = self.tasks.pop(key)
        if not task.is_finished:
            task.finish()


def _make_result(ran: Ran, reference: str = "") -> Result:
    """Return the result of a program that ended; its exit code is the outcome."""
    result = {"exit_code": ran.code, "output": ran.output[:RESULT_CHARACTERS]}
    return Result("ok" if ran.code == 0 else "error", reference if ran.code == 0 else "", result)


def print_result(done: EffectResult, remark: str = "") -> None:
    """Print one line about the result of an effect."""
    outcome = done.outcome if done.state == "acknowledged" else ""
    attempt = f"attempt {done.attempt}" if done.attempt > 1 else ""
    reference = done.reference if outcome == "ok" else ""
    reference = reference[:12] if len(reference) == 40 else reference
    remark = remark or ("already done" if done.already_done else "")
    parts = [
        f"{done.handle:>7}  {done.state:<12}  {done.effect_key:<16}",
        outcome,
        attempt,
        reference,
        remark,
    ]
    print_line("  ".join(part for part in parts if part).rstrip())


def print_line(line: str) -> None:
    """Print a line for the person at the terminal."""
    sys.stdout.write(f"demo agent: {line}\n")
    sys.stdout.flush()
