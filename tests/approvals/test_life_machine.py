"""A gate's life as a state machine: agents, people, operators, reports and the clock in any order.

After every step rows, constraints of permission and the journal are compared; the journal is
replayed by independent code, from facts alone.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, ClassVar
from uuid import UUID

import pytest
import time_machine
from django.db import transaction
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from accounts import agents
from approvals import exemptions
from approvals.gates import gates
from approvals.gates.statuses import APPROVED_STATUSES, OPEN_STATUSES, US
from approvals.models import Exemption, Gate, Vote
from approvals.voting import votes as voting_votes
from db.clock import now_us
from ledger import stops
from ledger.models import Attempt, Effect, Stop
from tests.api.api_client import Caller
from tests.approvals.confirm_helpers import proved
from tests.approvals.inbox_scenario import RULES, InboxScenario
from tests.approvals.replayed_sessions import (
    JournalReader,
    basis_of,
    folded,
    permission_of,
    set_aside_for,
    status_of,
)
from tests.matrices import count_examples
from tests.pages.sample_data import connect_agent
from tests.sessions.team_helpers import one_team

pytestmark = pytest.mark.django_db

STRICT = RULES.replace("minimum: 1", "minimum: 2")
ALLOW = "name: lax\nrules:\n  - {id: all, title: Everything, match: {}, outcome: allow}\n"
DENY = "name: shut\nrules:\n  - {id: all, title: Everything, match: {}, outcome: deny}\n"
KEYS = st.sampled_from(["e-1", "e-2"])
WAYS = st.tuples(KEYS, st.integers(0, 6))  # an effect, and how far it goes before another event
NUMBERS = st.sampled_from([1, 1, 2])
TOOLS = st.sampled_from(["git.push", "git.push", "git.push", "deploy", "file.read"])
AGENTS = st.sampled_from([0, 0, 0, 1])
PEOPLE = st.sampled_from(["reviewer", "administrator", "operator"])


class Life(RuleBasedStateMachine):
    """Two effects of one session, two agents, three people."""

    inbox: ClassVar[InboxScenario]
    callers: ClassVar[list[Caller]]

    @initialize()
    def begin(self) -> None:
        self.savepoint = transaction.savepoint()
        self.clock = time_machine.travel(datetime(2027, 3, 1, tzinfo=UTC), tick=False)
        self.now = self.clock.start()
        self.session = self.inbox.agent.session("s-1")["id"]
        self.inbox.rules()
        self.count, self.journal = 0, JournalReader()
        self.plan(0, "e-1", "git.push")
        self.plan(0, "e-2", "deploy")

    def teardown(self) -> None:
        if hasattr(self, "savepoint"):
            self.clock.stop()
            transaction.savepoint_rollback(self.savepoint)

    def post(self, agent: int, path: str, body: Any = None) -> None:
        answer = self.callers[agent].post(path, body)
        assert answer.status_code < 500, answer.text

    def effect(self, key: str) -> Effect | None:
        return Effect.objects.filter(effect_key=key).first()

    def gate(self, key: str) -> Gate | None:
        return Gate.objects.filter(effect__effect_key=key).order_by("-opened_position").first()

    # --- the direct way, so that other events meet gates and attempts in every state

    @rule(key=KEYS, answer=st.sampled_from(["rejected", "rejected", "timeout", "ok"]))
    def go_on(self, key: str, answer: str) -> None:
        effect, gate = self.effect(key), self.gate(key)
        if effect is None:
            return
        if effect.state == "dispatched" and answer == "ok":
            self.acknowledge((key, 0), effect.attempt_count, "ok")
        elif effect.state == "dispatched":
            self.fail((key, 0), effect.attempt_count, answer)
        elif effect.permission == "granted":
            self.dispatch(0, (key, 0))
        elif effect.permission == "pending" and gate is not None:
            for person in ("reviewer", "administrator"):
                self.inbox.answer(gate, person)
        else:
            self.plan(0, key, effect.tool)

    def go(self, way: tuple[str, int]) -> str:
        """Take an effect as far as `way`, through rejected attempts and permission for the next;
        return its key."""
        for _ in range(way[1]):
            self.go_on(way[0], "rejected")
        return way[0]

    # --- agents

    @rule(agent=AGENTS, key=KEYS, tool=TOOLS)
    def plan(self, agent: int, key: str, tool: str) -> None:
        self.post(
            agent,
            "/effects",
            {
                "session": "s-1",
                "effect_key": key,
                "tool": tool,
                "arguments": {"ref": key},
                "turn": "t",
            },
        )

    @rule(agent=AGENTS, way=WAYS)
    def dispatch(self, agent: int, way: tuple[str, int]) -> None:
        key = self.go(way)
        if effect := self.effect(key):
            body = {"process": "p", "intent_digest": effect.intent_digest}
            self.post(agent, f"/effects/{effect.id}/dispatch", body)

    @rule(way=WAYS, number=NUMBERS, outcome=st.sampled_from(["ok", "unknown"]))
    def acknowledge(self, way: tuple[str, int], number: int, outcome: str) -> None:
        key = self.go(way)
        if effect := self.effect(key):
            self.post(
                0, f"/effects/{effect.id}/acknowledge", {"attempt": number, "outcome": outcome}
            )

    @rule(way=WAYS, number=NUMBERS, reason=st.sampled_from(["rejected", "rejected", "timeout"]))
    def fail(self, way: tuple[str, int], number: int, reason: str) -> None:
        key = self.go(way)
        if effect := self.effect(key):
            self.post(0, f"/effects/{effect.id}/fail", {"attempt": number, "reason": reason})

    @rule(way=WAYS, verb=st.sampled_from(["supersede", "cancel"]))
    def withdraw(self, way: tuple[str, int], verb: str) -> None:
        key = self.go(way)
        effect, gate = self.effect(key), self.gate(key)
        if verb == "supersede" and effect:
            self.post(0, f"/effects/{effect.id}/supersede")
        elif gate:
            self.post(0, f"/gates/{gate.id}/cancel")

    @rule(way=WAYS)
    def end(self, way: tuple[str, int]) -> None:
        self.go(way)
        self.post(0, f"/sessions/{self.session}/end", {"status": "completed"})

    @rule(
        way=WAYS,
        further=st.sampled_from([0, 1]),
        early=st.booleans(),
        fact=st.sampled_from(
            [
                ("effect.dispatched", {}),
                ("effect.acknowledged", {"outcome": "ok"}),
                ("effect.failed", {"reason": "rejected"}),
                ("effect.failed", {"reason": "timeout"}),
            ]
        ),
    )
    def report_a_move(
        self, way: tuple[str, int], further: int, early: bool, fact: tuple[str, dict[str, Any]]
    ) -> None:
        """Report the last attempt that the journal knows, or the next."""
        key = self.go(way)
        effect = self.effect(key)
        number = max((effect.attempt_count if effect else 0) + further, 1)
        self.report(0, early, {"kind": fact[0], "effect_key": key, "attempt": number, **fact[1]})

    @rule(
        agent=AGENTS,
        way=WAYS,
        early=st.booleans(),
        fact=st.sampled_from(
            [
                {"kind": "effect.superseded"},
                {"kind": "session.ended", "status": "failed"},
                {"kind": "effect.planned", "tool": "git.push"},
                {"kind": "effect.planned", "tool": "file.read"},
            ]
        ),
    )
    def report_something_else(
        self, agent: int, way: tuple[str, int], early: bool, fact: dict[str, Any]
    ) -> None:
        key = self.go(way)
        fields = {"arguments": {"ref": key}} if fact["kind"] == "effect.planned" else {}
        self.report(agent, early, {"effect_key": key, **fields, **fact})

    def report(self, agent: int, early: bool, item: dict[str, Any]) -> None:
        """Report one fact whose id sorts before or after the ids of all others."""
        self.count += 1
        identity = f"{'a' if early else 'z'}{1000 - self.count if early else 1000 + self.count}"
        answer = self.callers[agent].report([{"id": identity, "session": "s-1", **item}])
        assert answer.status_code == 200, answer.text

    # --- people

    @rule(
        way=WAYS,
        person=PEOPLE,
        answer=st.sampled_from(["approve", "approve", "approve", "deny", "request_changes"]),
    )
    def answer(self, way: tuple[str, int], person: str, answer: str) -> None:
        key = self.go(way)
        if gate := self.gate(key):
            self.inbox.answer(gate, person, answer, step_up="typed_digest")

    @rule(way=WAYS)
    def deny_for_good(self, way: tuple[str, int]) -> None:
        key = self.go(way)
        if gate := self.gate(key):
            self.inbox.answer(gate, "reviewer", "deny_session")

    @rule(way=WAYS, person=PEOPLE, verb=st.sampled_from(["revoke", "extend"]))
    def change(self, way: tuple[str, int], person: str, verb: str) -> None:
        key = self.go(way)
        if gate := self.gate(key):
            member = self.inbox.person(person)
            with transaction.atomic():
                voting_votes.revoke_approval(
                    gate, member, "because"
                ) if verb == "revoke" else voting_votes.extend_deadline(gate, member)

    # --- operators and the clock

    @rule(
        way=WAYS,
        text=st.sampled_from([RULES, STRICT, ALLOW, DENY]),
        mode=st.sampled_from(["enforce", "enforce", "observe"]),
    )
    def activate(self, way: tuple[str, int], text: str, mode: str) -> None:
        self.go(way)
        self.inbox.rules(text, mode)

    @rule()
    def exempt(self) -> None:
        standing = Exemption.objects.filter(revoked_at_us=None).first()
        user = self.inbox.user("administrator")
        with transaction.atomic():
            if standing is not None:
                exemptions.end_exemption(standing, user)
                return
            ends = now_us() + 600 * US
            exemptions.create_exemption(
                self.inbox.project,
                tool="git.*",
                reason="a release goes on",
                ends_at_us=ends,
                user=user,
                **proved(),
            )

    @rule()
    def stop(self) -> None:
        standing = Stop.objects.filter(lifted_at_us=None).first()
        user = self.inbox.user("reviewer")
        with transaction.atomic():
            if standing is not None:
                stops.lift_stop(standing, "looked into it", user)
            else:
                stops.set_stop(self.inbox.project, "tool", "git.push", "it deletes too much", user)

    @rule(way=WAYS, seconds=st.sampled_from([60, 700, 4000]), swept=st.booleans())
    def pass_time(self, way: tuple[str, int], seconds: int, swept: bool) -> None:
        self.go(way)
        self.now.shift(seconds)
        if swept:
            gates.expire_due_gates()

    # --- invariants

    @invariant()
    def permission_and_gates_agree(self) -> None:
        opened: dict[UUID, dict[str, str]] = {}
        for gate in Gate.objects.filter(status__in=OPEN_STATUSES):
            opened.setdefault(gate.effect_id, {})[gate.id.hex] = gate.status
        for effect in Effect.objects.all():
            open_gates = opened.get(effect.id, {})
            if effect.permission == "pending":
                assert open_gates == {effect.permission_ref: "pending"}
            elif (effect.permission, effect.permission_basis) == ("granted", "ruling"):
                assert open_gates == {effect.permission_ref: "approved"}
            else:
                assert open_gates == {}, (effect.permission, effect.permission_basis, effect.state)

    @invariant()
    def votes_stand_behind_every_ruling(self) -> None:
        every = list(Vote.objects.order_by("position"))
        for gate in Gate.objects.all():
            votes = [vote for vote in every if vote.gate_id == gate.id]
            yes = {vote.user_id for vote in votes if vote.answer == "approve"}
            no = [vote for vote in votes if vote.answer.startswith("deny")]
            assert len({vote.user_id for vote in votes}) == len(votes)
            assert yes.isdisjoint({gate.requester_id, gate.session_owner_id, gate.agent_owner_id})
            if gate.status in APPROVED_STATUSES or gate.used_attempt or gate.permission_until_us:
                assert len(yes) >= gate.minimum
            if gate.status in ("denied", "denied_session"):
                assert len(no) >= gate.deny_threshold
            if gate.status == "pending":
                assert len(yes) < gate.minimum
                assert len(no) < gate.deny_threshold

    @invariant()
    def every_attempt_has_its_own_permission(self) -> None:
        self.journal.read_on()
        spent = list(Gate.objects.filter(status="used"))
        used = {(gate.effect_id, gate.used_attempt or 0): gate for gate in spent}
        assert len(used) == len(spent)
        happened = list(Gate.objects.filter(status="cancelled", reason="happened"))
        attempts = {
            (attempt.effect_id, attempt.number): attempt for attempt in Attempt.objects.all()
        }
        for key, attempt in attempts.items():
            basis = basis_of(self.journal.of(attempt.effect_id), attempt.number)
            if attempt.lane == "command":
                assert attempt.permission == "used"
            if attempt.permission == "used":
                aside = set_aside_for(self.journal.of(attempt.effect_id), attempt.number, happened)
                assert (key in used) + (aside is not None) == (basis == "ruling"), basis
                assert basis in ("ruling", "policy", "exemption", "observe")
            else:
                assert key not in used
        for key, gate in used.items():
            assert attempts[key].permission == "used"
            assert (
                (gate.decided_at_us or 0)
                <= (gate.used_at_us or 0)
                <= (gate.permission_until_us or 0)
            )
        for effect in Effect.objects.filter(permission="bypassed"):
            assert effect.violates
            assert "integrity.violation" in [entry.kind for entry in self.journal.of(effect.id)]

    @invariant()
    def the_journal_matches_permission_and_gates(self) -> None:
        self.journal.read_on()
        for effect in Effect.objects.all():
            expected = permission_of(self.journal.of(effect.id))
            assert effect.permission in expected.split("|"), (expected, effect.permission)
        for gate in Gate.objects.all():
            assert status_of(self.journal.about(gate.id)) == gate.status

    @invariant()
    def the_journal_folds_to_the_rows(self) -> None:
        self.journal.read_on()
        stored: dict[UUID, set[tuple[Any, ...]]] = {}
        for attempt in Attempt.objects.all():
            stored.setdefault(attempt.effect_id, set()).add(
                (attempt.number, attempt.is_open, attempt.replaced, attempt.outcome)
            )
        for effect in Effect.objects.all():
            row, attempts = folded(effect, self.journal.of(effect.id))
            for name in ("tool", "state", "outcome", "attempt_count", "failure_reason", "lane"):
                assert getattr(row, name) == getattr(effect, name), name
            made = {
                (attempt.number, attempt.is_open, attempt.replaced, attempt.outcome)
                for attempt in attempts.values()
            }
            assert made == stored.get(effect.id, set())


@pytest.fixture
def life(inbox: InboxScenario) -> Iterator[type[Life]]:
    """The state machine of a project with a second agent in the first agent's team."""
    with connect_agent(
        agents.ensure_agent(inbox.project, "build-9", inbox.user("reviewer"))
    ) as second:
        one_team("deploy-7", "build-9")
        Life.inbox, Life.callers = inbox, [inbox.agent, second]
        yield Life


@pytest.mark.deepened
def test_permission_gates_attempts_and_the_journal_agree_after_every_step(life: type[Life]) -> None:
    run_state_machine_as_test(
        life,
        settings=settings(
            max_examples=count_examples(3, 12),
            stateful_step_count=12,
            deadline=None,
            phases=[Phase.explicit, Phase.reuse, Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
