"""Eleven faults, each of which the suite must catch: what it cannot catch it does not test.

Those of the server act inside it (`inside`), where a header of the request asks for them; those of
the client are patches of the agent; one is the baseline itself.
"""

import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from evaluation.crashtest import agent_crashes, delivery_orders, server_crashes
from evaluation.crashtest.agent import Agent
from evaluation.crashtest.checker import Found
from evaluation.crashtest.contention import answer, gated
from evaluation.crashtest.domain import CASES, Release, Step, Verdict
from evaluation.crashtest.gatebook import Api, Gatebook, Unexpected
from evaluation.crashtest.remote import Oracle
from evaluation.crashtest.runner import Ground
from evaluation.crashtest.server import House

_BY_NAME: Final = {case.name: case for case in CASES}


class Suite:
    """The parts of the suite that are turned on a mutant. Each returns what it caught; nothing
    means: not caught."""

    def __init__(self, house: House, oracle: Oracle) -> None:
        self.house, self.oracle = house, oracle

    def verdicts(self) -> Iterator[tuple[str, str]]:
        """Every mutant with what caught it."""
        for name, trial in self.trials():
            try:
                yield name, trial(name)
            except Unexpected as told:
                yield name, f"refused by the server: {str(told)[:120]}"

    def control(self) -> list[str]:
        """The trials without any fault: none may catch anything. What runs W1 as it is, W1 has run
        already."""
        trials = (
            self._crashes("opaque", always=insists),
            self._approval,
            self._acknowledged_twice,
            self._evidence,
        )
        return [caught for caught in (trial("") for trial in trials) if caught]

    def trials(self) -> list[tuple[str, Callable[[str], str]]]:
        """Every mutant with the trial that must catch it, in the order of the protocol."""
        return [
            ("events posted after the effect", self._telemetry),
            ("no fence before a probe is believed", self._crashes("probeable")),
            ("a fresh key per attempt", self._crashes("idempotency_key", fresh_key)),
            ("approval used in another transaction", self._approval),
            ("acknowledgement without compare-and-set", self._acknowledged_twice),
            ("2xx before COMMIT", self._early),
            ("skip on restart", self._crashes("transactional", skips)),
            ("blob rewritten in place", self._blob),
            ("a grant replayed to a new process", self._crashes("opaque", always=insists)),
            ("evidence leaves a grant unspent", self._evidence),
            ("a fold that depends on order", self._orders),
        ]

    def _crashes(
        self,
        case: str,
        mutate: Callable[[Agent], Agent] | None = None,
        always: Callable[[Agent], Agent] | None = None,
    ) -> Callable[[str], str]:
        """`mutate` is the mutant, where it is one of the client; `always` is how its agent is
        without it, too."""

        def trial(name: str) -> str:
            ground = agent_crashes.gatebook(self.oracle, self.house, mutant="" if mutate else name)
            patch = mutate if name else None
            if patch or always:
                ground.mutate = patch or always or ground.mutate
            return _told(
                agent_crashes.by_raising(
                    ground,
                    [_BY_NAME[case]],
                    1,
                    0 if always else 1,
                    to_the_first=bool(name),
                    every=False,
                )[0]
            )

        return trial

    def _telemetry(self, name: str) -> str:
        api = Api(self.house.port, self.house.token, {})
        ground = Ground(
            name, self.oracle, self.house.clock, lambda world, _choices: Telemetry(api, world)
        )
        return _told(
            agent_crashes.by_raising(
                ground, [_BY_NAME["probeable"]], 1, 1, to_the_first=True, every=False
            )[0]
        )

    def _early(self, name: str) -> str:
        return _told(
            server_crashes.every_command(
                self.house, self.oracle, [_BY_NAME["probeable"]], mutant=name, only="/dispatch"
            )
        )

    def _blob(self, _name: str) -> str:
        """The file is cut and written again: a death between the two loses what was done and saved
        long before."""
        with agent_crashes.blobs(self.oracle, self.house.clock, "ask", in_place=True) as ground:
            return _told(agent_crashes.by_raising(ground, [_BY_NAME["probeable"]], 1, 0)[0])

    def _approval(self, name: str) -> str:
        """The server falls after the dispatch committed: what was used must be told as used."""
        api, session = self._api(name), f"m-{secrets.token_hex(4)}"
        api.post("/sessions", {"key": session}, f"{session}-open")
        effect = gated(api, session, 1)
        answer(self.house.person("anna"), effect["gate"]["id"], "approve")
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
            else f"{state}, and its approval stands as {status}"
        )

    def _acknowledged_twice(self, name: str) -> str:
        """Two answers to one attempt, under two keys: the first stands."""
        api, session = self._api(name), f"m-{secrets.token_hex(4)}"
        effect = self._dispatched(api, session)
        said = []
        for number, reference in enumerate(("first", "second")):
            body = {"attempt": 1, "outcome": "ok", "external_reference": reference}
            said.append(api.post(f"/effects/{effect}/acknowledge", body, f"{session}-a{number}")[0])
        kept = api.get(f"/effects/{effect}")[1].get("external_reference")
        return (
            "" if (said, kept) == ([200, 202], "first") else f"answered {said}, and {kept} stands"
        )

    def _evidence(self, name: str) -> str:
        """What was reported as done used the permission: nobody is told to do it again."""
        api, session = self._api(name), f"m-{secrets.token_hex(4)}"
        api.post("/sessions", {"key": session}, f"{session}-open")
        plan = {"session": session, "effect_key": "e", "tool": "rig.push", "arguments": {}}
        effect = api.post("/effects", plan, f"{session}-p")[1]
        about = {"session": session, "effect_key": "e", "attempt": 1}
        items = [
            {"id": f"{session}-1", "kind": "effect.dispatched", **about},
            {"id": f"{session}-2", "kind": "effect.failed", "reason": "rejected", **about},
        ]
        for item in items:
            status, said = api.post("/events", [item], "")
            if status != 200:
                raise Unexpected(f"evidence was answered {status}: {json.dumps(said)[:300]}")
        body = {"process": "p", "intent_digest": effect["intent_digest"]}
        status, said = api.post(f"/effects/{effect['id']}/dispatch", body, f"{session}-d")
        return (
            ""
            if status == 409
            else f"dispatched anew under the permission that was spent: {status}"
        )

    def _orders(self, name: str) -> str:
        states = delivery_orders.deliver(self._api(name), delivery_orders.every()[::20])
        return "" if len(states) == 1 else f"{len(states)} states out of the same four events"

    def _api(self, mutant: str) -> Api:
        return Api(self.house.port, self.house.token, {"X-Rig-Mutant": mutant} if mutant else {})

    @staticmethod
    def _dispatched(api: Api, session: str) -> str:
        api.post("/sessions", {"key": session}, f"{session}-open")
        plan = {"session": session, "effect_key": "e", "tool": "rig.push", "arguments": {}}
        effect = api.post("/effects", plan, f"{session}-p")[1]
        body = {"process": "p", "intent_digest": effect["intent_digest"]}
        status, said = api.post(f"/effects/{effect['id']}/dispatch", body, f"{session}-d")
        if status != 200:
            raise Unexpected(f"a dispatch was answered {status}: {said}")
        return str(effect["id"])


def fresh_key(agent: Agent) -> Agent:
    """An agent that makes a key of its own for every request."""
    agent.key_of = lambda _offered: secrets.token_hex(8)
    return agent


def skips(agent: Agent) -> Agent:
    """An agent that takes for done, after a restart, what an earlier process had begun."""

    def persuade(said: Verdict) -> Verdict:
        begun = agent.life > 1 and said.answer in ("replay", "probe", "wait", "escalate")
        return replace(said, answer="skip", reason="DONE") if begun else said

    agent.persuade = persuade
    return agent


def insists(agent: Agent) -> Agent:
    """An agent whose new process begins by sending the dispatch of the one before it again, with
    the same key."""
    sent = False

    def persuade(said: Verdict) -> Verdict:
        nonlocal sent
        if agent.life == 1 or sent or said.answer == "skip":
            return said
        sent = True
        return replace(said, answer="execute", attempt=0, view="insists")

    agent.persuade = persuade
    return agent


class Telemetry(Gatebook):
    """An agent that acts first and reports afterwards: the ledger as a place to send logs to."""

    def look(self, step: Step) -> Verdict:
        status, said = self._api.get(f"/effects?session={self._session}&effect_key={step.key}")
        known = said["items"] if status == 200 else []
        if known and known[0]["state"] == "acknowledged":
            return Verdict("skip", "DONE", view="acknowledged")
        return Verdict("execute", "NOT_REPORTED", view="unheard of")

    def release(self, step: Step, verdict: Verdict) -> Release:
        return Release(1, f"{self._session}-{step.key}-{secrets.token_hex(4)}")

    def settled(self, step: Step, release: Release, reference: str) -> None:
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

    def failed(self, step: Step, release: Release, reason: str) -> None:
        """Nothing is reported of what gave no answer."""


def _told(found: Found) -> str:
    caught = {name: number for name, number in found.counters.items() if number}
    with suppress(StopIteration):
        first = next(iter(lines[0] for lines in found.faults.values() if lines))
        return f"{', '.join(f'{number} {name}' for name, number in caught.items())} in {found.runs} runs; first: {first}"
    return ""
