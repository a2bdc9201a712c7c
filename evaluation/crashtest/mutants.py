"""Mutants: eleven injected faults, each of which the suite must catch.

Server mutants run inside the server (`server_hooks`) when a request header names them. Client
mutants are patches of the agent. One mutant is the baseline itself.
"""

import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from evaluation.crashtest import agent_crashes, delivery_orders, server_crashes
from evaluation.crashtest.agent import Agent
from evaluation.crashtest.checker import Findings
from evaluation.crashtest.contention import answer_gate, plan_gated_effect
from evaluation.crashtest.domain import CASES, Release, Step, Verdict
from evaluation.crashtest.gatebook import Api, Gatebook, Unexpected
from evaluation.crashtest.remote import Oracle
from evaluation.crashtest.runner import RunContext
from evaluation.crashtest.server import Installation

_BY_NAME: Final = {case.name: case for case in CASES}


class Suite:
    """The trials of the mutants. Each returns what it caught; an empty text means not caught."""

    def __init__(self, installation: Installation, oracle: Oracle) -> None:
        self.installation, self.oracle = installation, oracle

    def run_trials(self) -> Iterator[tuple[str, str]]:
        """Run every trial; yield each mutant with what caught it."""
        for name, trial in self.list_trials():
            try:
                yield name, trial(name)
            except Unexpected as error:
                yield name, f"refused by the server: {str(error)[:120]}"

    def run_controls(self) -> list[str]:
        """Run the trials without a fault; none may catch anything. W1 covers the others."""
        trials = (
            self._make_crash_trial("opaque", always=resend_dispatch),
            self._try_approval,
            self._try_second_acknowledgement,
            self._try_evidence,
        )
        return [caught for caught in (trial("") for trial in trials) if caught]

    def list_trials(self) -> list[tuple[str, Callable[[str], str]]]:
        """Return every mutant with the trial that must catch it, in protocol order."""
        return [
            ("events posted after the effect", self._try_telemetry),
            ("no in-flight window before a probe is believed", self._make_crash_trial("probeable")),
            ("a fresh key per attempt", self._make_crash_trial("idempotency_key", use_fresh_keys)),
            ("approval used in another transaction", self._try_approval),
            ("acknowledgement without compare-and-set", self._try_second_acknowledgement),
            ("2xx before COMMIT", self._try_early_response),
            ("skip on restart", self._make_crash_trial("transactional", skip_on_restart)),
            ("blob rewritten in place", self._try_file_in_place),
            (
                "a grant replayed to a new process",
                self._make_crash_trial("opaque", always=resend_dispatch),
            ),
            ("evidence leaves a grant unspent", self._try_evidence),
            ("a fold that depends on order", self._try_orders),
        ]

    def _make_crash_trial(
        self,
        case: str,
        mutate: Callable[[Agent], Agent] | None = None,
        always: Callable[[Agent], Agent] | None = None,
    ) -> Callable[[str], str]:
        """Return a W1 trial. `mutate` is a client mutant; `always` patches the agent without it too."""

        def trial(name: str) -> str:
            context = agent_crashes.make_gatebook_context(
                self.oracle, self.installation, mutant="" if mutate else name
            )
            patch = mutate if name else None
            if patch or always:
                context.mutate = patch or always or context.mutate
            return _describe(
                agent_crashes.crash_by_raising(
                    context,
                    [_BY_NAME[case]],
                    1,
                    0 if always else 1,
                    stop_at_first=bool(name),
                    every=False,
                )[0]
            )

        return trial

    def _try_telemetry(self, name: str) -> str:
        api = Api(self.installation.port, self.installation.token, {})
        context = RunContext(
            name,
            self.oracle,
            self.installation.clock,
            lambda world, _choices: Telemetry(api, world),
        )
        return _describe(
            agent_crashes.crash_by_raising(
                context, [_BY_NAME["probeable"]], 1, 1, stop_at_first=True, every=False
            )[0]
        )

    def _try_early_response(self, name: str) -> str:
        return _describe(
            server_crashes.crash_at_every_command(
                self.installation,
                self.oracle,
                [_BY_NAME["probeable"]],
                mutant=name,
                only="/dispatch",
            )
        )

    def _try_file_in_place(self, _name: str) -> str:
        """Rewrite the file in place: a death after the truncation loses all saved steps."""
        with agent_crashes.open_file_context(
            self.oracle, self.installation.clock, "ask", in_place=True
        ) as context:
            return _describe(
                agent_crashes.crash_by_raising(context, [_BY_NAME["probeable"]], 1, 0)[0]
            )

    def _try_approval(self, name: str) -> str:
        """Crash the server after the dispatch committed: the gate must be shown as used."""
        api, session = self._make_api(name), f"m-{secrets.token_hex(4)}"
        api.post("/sessions", {"key": session}, f"{session}-open")
        effect = plan_gated_effect(api, session, 1)
        answer_gate(self.installation.get_reviewer("anna"), effect["gate"]["id"], "approve")
        api.ask_next = lambda path: (
            {"X-Rig-Tick": "committed"} if path.endswith("/dispatch") else {}
        )
        body = {"process": "p", "intent_digest": effect["intent_digest"]}
        api.post(f"/effects/{effect['id']}/dispatch", body, f"{session}-d")
        state = api.get(f"/effects/{effect['id']}")[1]["state"]
        status = api.get(f"/gates/{effect['gate']['id']}")[1]["status"]
        return (
            ""
            if (state, status) == ("dispatched", "used")
            else f"{state}, but its approval is {status}"
        )

    def _try_second_acknowledgement(self, name: str) -> str:
        """Acknowledge one attempt twice, with two keys: the first answer counts."""
        api, session = self._make_api(name), f"m-{secrets.token_hex(4)}"
        effect = self._dispatch_effect(api, session)
        statuses = []
        for number, reference in enumerate(("first", "second")):
            body = {"attempt": 1, "outcome": "ok", "external_reference": reference}
            statuses.append(
                api.post(f"/effects/{effect}/acknowledge", body, f"{session}-a{number}")[0]
            )
        stored = api.get(f"/effects/{effect}")[1].get("external_reference")
        return (
            ""
            if (statuses, stored) == ([200, 202], "first")
            else f"answered {statuses}, but the stored reference is {stored}"
        )

    def _try_evidence(self, name: str) -> str:
        """Report an attempt as evidence: it spends the permission, and a dispatch is refused."""
        api, session = self._make_api(name), f"m-{secrets.token_hex(4)}"
        api.post("/sessions", {"key": session}, f"{session}-open")
        plan = {"session": session, "effect_key": "e", "tool": "rig.push", "arguments": {}}
        effect = api.post("/effects", plan, f"{session}-p")[1]
        about = {"session": session, "effect_key": "e", "attempt": 1}
        items = [
            {"id": f"{session}-1", "kind": "effect.dispatched", **about},
            {"id": f"{session}-2", "kind": "effect.failed", "reason": "rejected", **about},
        ]
        for item in items:
            status, reply = api.post("/events", [item], "")
            if status != 200:
                raise Unexpected(f"evidence was answered {status}: {json.dumps(reply)[:300]}")
        body = {"process": "p", "intent_digest": effect["intent_digest"]}
        status, reply = api.post(f"/effects/{effect['id']}/dispatch", body, f"{session}-d")
        return "" if status == 409 else f"dispatched again with a spent permission: {status}"

    def _try_orders(self, name: str) -> str:
        states = delivery_orders.deliver_orders(
            self._make_api(name), delivery_orders.list_orders()[::20]
        )
        return "" if len(states) == 1 else f"{len(states)} states from the same four events"

    def _make_api(self, mutant: str) -> Api:
        return Api(
            self.installation.port,
            self.installation.token,
            {"X-Rig-Mutant": mutant} if mutant else {},
        )

    @staticmethod
    def _dispatch_effect(api: Api, session: str) -> str:
        api.post("/sessions", {"key": session}, f"{session}-open")
        plan = {"session": session, "effect_key": "e", "tool": "rig.push", "arguments": {}}
        effect = api.post("/effects", plan, f"{session}-p")[1]
        body = {"process": "p", "intent_digest": effect["intent_digest"]}
        status, reply = api.post(f"/effects/{effect['id']}/dispatch", body, f"{session}-d")
        if status != 200:
            raise Unexpected(f"a dispatch was answered {status}: {reply}")
        return str(effect["id"])


def use_fresh_keys(agent: Agent) -> Agent:
    """Patch an agent to make a fresh key for every request."""
    agent.key_of = lambda _offered: secrets.token_hex(8)
    return agent


def skip_on_restart(agent: Agent) -> Agent:
    """Patch an agent to skip, after a restart, every effect that an earlier process began."""

    def change_verdict(verdict: Verdict) -> Verdict:
        begun = agent.life > 1 and verdict.answer in ("replay", "probe", "wait", "escalate")
        return replace(verdict, answer="skip", reason="DONE") if begun else verdict

    agent.change_verdict = change_verdict
    return agent


def resend_dispatch(agent: Agent) -> Agent:
    """Patch an agent so that a new process first resends its predecessor's dispatch with its key."""
    sent = False

    def change_verdict(verdict: Verdict) -> Verdict:
        nonlocal sent
        if agent.life == 1 or sent or verdict.answer == "skip":
            return verdict
        sent = True
        return replace(verdict, answer="execute", attempt=0, view="resent")

    agent.change_verdict = change_verdict
    return agent


class Telemetry(Gatebook):
    """An agent that acts first and reports afterwards, using the ledger as a log."""

    def get_verdict(self, step: Step) -> Verdict:
        status, page = self._api.get(f"/effects?session={self._session}&effect_key={step.key}")
        effects = page["items"] if status == 200 else []
        if effects and effects[0]["state"] == "acknowledged":
            return Verdict("skip", "DONE", view="acknowledged")
        return Verdict("execute", "NOT_REPORTED", view="not reported")

    def dispatch(self, step: Step, verdict: Verdict) -> Release:
        return Release(1, f"{self._session}-{step.key}-{secrets.token_hex(4)}")

    def report_success(self, step: Step, release: Release, reference: str) -> None:
        about = {"session": self._session, "effect_key": step.key}
        plan = {"tool": step.case.tool, "arguments": {"step": step.key}}
        answered = {"attempt": 1, "outcome": "ok", "external_reference": reference}
        items: list[dict[str, Any]] = [
            {"id": f"{self._session}-{step.key}-1", "kind": "effect.planned", **about, **plan},
            {
                "id": f"{self._session}-{step.key}-2",
                "kind": "effect.acknowledged",
                **about,
                **answered,
            },
        ]
        self._api.post("/events", items, "")

    def report_failure(self, step: Step, release: Release, reason: str) -> None:
        """Report nothing when the remote gave no answer."""


def _describe(findings: Findings) -> str:
    caught = {name: number for name, number in findings.counters.items() if number}
    with suppress(StopIteration):
        first = next(iter(lines[0] for lines in findings.faults.values() if lines))
        return f"{', '.join(f'{number} {name}' for name, number in caught.items())} in {findings.runs} runs; first: {first}"
    return ""
