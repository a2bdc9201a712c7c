"""The agent: one piece of code for every substrate. It does what it is told it may do, and may die
at any tick."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from evaluation.crashtest.clock import Clock
from evaluation.crashtest.domain import Refused, Release, Step, Substrate, Verdict
from evaluation.crashtest.remote import LostAnswer, Rejected, Remote
from evaluation.crashtest.schedules import Choices

MOST_TURNS: Final = 40


class NeverEnds(Exception):
    """The verdicts lead nowhere: that is a finding, not a wait."""


@dataclass
class Agent:
    """One process of an agent. What it is told is noted in the oracle's log as it is told."""

    substrate: Substrate
    remote: Remote
    choices: Choices
    clock: Clock
    life: int = 1
    key_of: Callable[[str], str] = lambda offered: (
        offered
    )  # a mutant hands another key to the remote
    persuade: Callable[[Verdict], Verdict] = lambda said: said  # a mutant believes something else
    ask_person: Callable[[Step], None] | None = None
    _planned: bool = False

    def work(self, steps: Sequence[Step]) -> None:
        """Do all of it, from whatever an earlier process left."""
        self.substrate.open()
        self._tick(
            "session opened" if self.life == 1 else "session taken up", changed=self.life == 1
        )
        if self.life > 1:
            self.remote.note(
                kind="safe", life=self.life, safe=self.substrate.safe(), step=steps[0].name
            )
        for step in steps:
            self._do(step)
        self.substrate.checkpoint({"done": [step.name for step in steps]})
        self._tick("after checkpoint")

    def _do(self, step: Step) -> None:
        for _ in range(MOST_TURNS):
            verdict = self._look(step)
            if verdict.reason == "COMP_RESUME" or verdict.answer == "compensate":
                self._undo(step, verdict)
            elif verdict.answer in ("execute", "replay"):
                self._act(step, verdict)
            elif verdict.answer == "probe":
                self._probe(step, verdict)
            elif verdict.answer in ("wait", "ask"):
                self._wait(step, verdict)
            else:
                claim = "handed over" if verdict.answer == "escalate" else "done"
                if verdict.reason in ("ATTEMPTS_SPENT", "GATE_DENIED", "GATE_EXPIRED"):
                    claim = "given up"
                self.remote.note(
                    kind="end", life=self.life, claim=claim, reason=verdict.reason, step=step.name
                )
                return
        raise NeverEnds(f"{step.key}: {verdict}")

    def _look(self, step: Step) -> Verdict:
        verdict = self.substrate.look(step)
        said = {
            "answer": verdict.answer,
            "reason": verdict.reason,
            "row": verdict.row,
            "view": verdict.view,
        }
        self.remote.note(kind="verdict", life=self.life, key=step.key, step=step.name, **said)
        self._tick("after the verdict", changed=self.life == 1 and not self._planned)
        self._planned = True
        return self.persuade(verdict)

    def _act(self, step: Step, verdict: Verdict) -> None:
        try:
            release = self.substrate.release(step, verdict)
        except Refused:
            return
        self._tick("after dispatch")
        self._perform(step, release)

    def _perform(self, step: Step, release: Release) -> None:
        try:
            reference = self.remote.execute(
                step.case.remote, step.name, self.key_of(release.remote_key)
            )
        except LostAnswer:
            self._tick("no response", changed=False)
            self.substrate.failed(step, release, "timeout")
        except Rejected:
            self._tick("response received", changed=False)
            self.substrate.failed(step, release, "rejected")
        else:
            self._tick("response received", changed=False)
            self.substrate.settled(step, release, reference)
        self._tick("after acknowledgement")

    def _probe(self, step: Step, verdict: Verdict) -> None:
        began_us = self.clock.now_us()
        found = self.remote.probe(step.name, verdict.remote_key)
        self._tick("after the look")
        self.substrate.probed(step, verdict, found, began_us)
        self._tick("after the look was told")

    def _undo(self, step: Step, said: Verdict) -> None:
        """Cancel by our key. The undoing is an effect like any other, so a crash in it is recovered
        as any other."""
        undone = step.undone(said.attempt)
        verdict = self.substrate.undo(step, undone)
        self._tick("after the undoing was planned")
        if verdict.answer not in ("execute", "replay"):
            self._wait(undone, verdict)
            return
        try:
            release = self.substrate.release(undone, verdict)
        except Refused:
            return
        self._tick("after the undoing was dispatched")
        reference = self.remote.cancel(step.name, said.remote_key)
        self._tick("cancelled")
        self.substrate.settled(undone, release, reference or "nothing to cancel")
        self._tick("after the undoing was acknowledged")

    def _wait(self, step: Step, verdict: Verdict) -> None:
        if verdict.until_us is not None and verdict.reason != "GATE_PENDING":
            self.clock.until(verdict.until_us)
            self.remote.settle()
        elif self.ask_person is not None:
            self.ask_person(step)
        self._tick("after a wait")

    def _tick(self, place: str, *, changed: bool = True) -> None:
        self.choices.tick(place, changed=changed)
