"""The agent: the same code for every substrate. It follows the verdicts and may die at any tick."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from evaluation.crashtest.clock import Clock
from evaluation.crashtest.domain import Refused, Release, Step, Substrate, Verdict
from evaluation.crashtest.remote import LostAnswer, Rejected, Remote
from evaluation.crashtest.schedules import Choices

MOST_TURNS: Final = 40


class NeverEnds(Exception):
    """The verdicts do not lead to an end: a finding."""


@dataclass
class Agent:
    """One process of an agent. Each verdict that it gets is recorded in the oracle's log."""

    substrate: Substrate
    remote: Remote
    choices: Choices
    clock: Clock
    life: int = 1
    key_of: Callable[[str], str] = lambda offered: (
        offered
    )  # a mutant sends another key to the remote
    change_verdict: Callable[[Verdict], Verdict] = lambda verdict: (
        verdict
    )  # a mutant follows another verdict
    ask_person: Callable[[Step], None] | None = None
    _planned: bool = False

    def work(self, steps: Sequence[Step]) -> None:
        """Do all steps, starting where an earlier process stopped."""
        self.substrate.open()
        self._tick(
            "session opened" if self.life == 1 else "session reopened", changed=self.life == 1
        )
        if self.life > 1:
            self.remote.note(
                kind="safe", life=self.life, safe=self.substrate.can_resume(), step=steps[0].name
            )
        for step in steps:
            self._run_step(step)
        self.substrate.checkpoint({"done": [step.name for step in steps]})
        self._tick("after checkpoint")

    def _run_step(self, step: Step) -> None:
        for _ in range(MOST_TURNS):
            verdict = self._get_verdict(step)
            if verdict.reason == "COMP_RESUME" or verdict.answer == "compensate":
                self._compensate(step, verdict)
            elif verdict.answer in ("execute", "replay"):
                self._dispatch(step, verdict)
            elif verdict.answer == "probe":
                self._probe(step, verdict)
            elif verdict.answer in ("wait", "ask"):
                self._wait(step, verdict)
            else:
                claim = "handed over" if verdict.answer == "escalate" else "done"
                if verdict.reason in ("ATTEMPTS_SPENT", "GATE_DENIED", "GATE_EXPIRED"):
                    claim = "abandoned"
                self.remote.note(
                    kind="end", life=self.life, claim=claim, reason=verdict.reason, step=step.name
                )
                return
        raise NeverEnds(f"{step.key}: {verdict}")

    def _get_verdict(self, step: Step) -> Verdict:
        verdict = self.substrate.get_verdict(step)
        note = {
            "answer": verdict.answer,
            "reason": verdict.reason,
            "row": verdict.row,
            "view": verdict.view,
        }
        self.remote.note(kind="verdict", life=self.life, key=step.key, step=step.name, **note)
        self._tick("after the verdict", changed=self.life == 1 and not self._planned)
        self._planned = True
        return self.change_verdict(verdict)

    def _dispatch(self, step: Step, verdict: Verdict) -> None:
        try:
            release = self.substrate.dispatch(step, verdict)
        except Refused:
            return
        self._tick("after dispatch")
        self._execute_release(step, release)

    def _execute_release(self, step: Step, release: Release) -> None:
        try:
            reference = self.remote.execute(
                step.case.remote, step.name, self.key_of(release.remote_key)
            )
        except LostAnswer:
            self._tick("no response", changed=False)
            self.substrate.report_failure(step, release, "timeout")
        except Rejected:
            self._tick("response received", changed=False)
            self.substrate.report_failure(step, release, "rejected")
        else:
            self._tick("response received", changed=False)
            self.substrate.report_success(step, release, reference)
        self._tick("after acknowledgement")

    def _probe(self, step: Step, verdict: Verdict) -> None:
        began_us = self.clock.now_us()
        reference = self.remote.probe(step.name, verdict.remote_key)
        self._tick("after the probe")
        self.substrate.report_probe(step, verdict, reference, began_us)
        self._tick("after the probe was reported")

    def _compensate(self, step: Step, cause: Verdict) -> None:
        """Cancel by our key. The compensation is an effect too, and recovers from a crash as one."""
        undone = step.make_compensation(cause.attempt)
        verdict = self.substrate.compensate(step, undone)
        self._tick("after the compensation was planned")
        if verdict.answer not in ("execute", "replay"):
            self._wait(undone, verdict)
            return
        try:
            release = self.substrate.dispatch(undone, verdict)
        except Refused:
            return
        self._tick("after the compensation was dispatched")
        reference = self.remote.cancel(step.name, cause.remote_key)
        self._tick("cancelled")
        self.substrate.report_success(undone, release, reference or "nothing to cancel")
        self._tick("after the compensation was acknowledged")

    def _wait(self, step: Step, verdict: Verdict) -> None:
        if verdict.until_us is not None and verdict.reason != "GATE_PENDING":
            self.clock.advance_to(verdict.until_us)
            self.remote.settle()
        elif self.ask_person is not None:
            self.ask_person(step)
        self._tick("after a wait")

    def _tick(self, place: str, *, changed: bool = True) -> None:
        self.choices.tick(place, changed=changed)
