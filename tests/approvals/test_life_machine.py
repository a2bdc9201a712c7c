"""A gate's life as a machine: agents, people, operators, reports and the clock in any order, and what must hold always.

After every step rows, laws of leave and the book are compared; what the book says is replayed here by other code than
wrote it, from facts alone.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, ClassVar
from uuid import UUID

import pytest
import time_machine
from django.db import transaction
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from approvals import exemptions, gates, leave, rulings
from approvals.models import Exemption, Gate, Vote
from approvals.states import GIVEN, LEAVE_OF, OPEN, US
from journal.clock import now_us
from journal.models import Body, Entry
from journal.order import order_key
from ledger import fold, holds
from ledger.models import Attempt, Effect, Hold
from ledger.rows import EffectRow
from ledger.states import MOVED
from sessions import agents
from tests.approvals.story import RULES, Desk
from tests.ingest.caller import Caller
from tests.pages.book import doors

pytestmark = pytest.mark.django_db

STRICT = RULES.replace("minimum: 1", "minimum: 2")
ALLOW = "name: lax\nrules:\n  - {id: all, title: Everything, match: {}, outcome: allow}\n"
DENY = "name: shut\nrules:\n  - {id: all, title: Everything, match: {}, outcome: deny}\n"
KEYS = st.sampled_from(["e-1", "e-2"])
WAYS = st.tuples(KEYS, st.integers(0, 6))  # an effect, and how far it goes before something crosses its way
NUMBERS = st.sampled_from([1, 1, 2])
TOOLS = st.sampled_from(["git.push", "git.push", "git.push", "deploy", "file.read"])
AGENTS = st.sampled_from([0, 0, 0, 1])
PEOPLE = st.sampled_from(["reviewer", "administrator", "operator"])


class Life(RuleBasedStateMachine):
    """Two effects of one session, two agents, three people."""

    desk: ClassVar[Desk]
    callers: ClassVar[list[Caller]]

    @initialize()
    def begin(self) -> None:
        self.savepoint = transaction.savepoint()
        self.clock = time_machine.travel(datetime(2027, 3, 1, tzinfo=UTC), tick=False)
        self.now = self.clock.start()
        self.session = self.desk.agent.session("s-1")["id"]
        self.desk.rules()
        self.count = 0
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

    # --- the straight way, so that whatever else happens meets gates and attempts in every state

    @rule(key=KEYS, answer=st.sampled_from(["rejected", "rejected", "timeout", "ok"]))
    def go_on(self, key: str, answer: str) -> None:
        effect, gate = self.effect(key), self.gate(key)
        if effect is None:
            return
        if effect.state == "dispatched" and answer == "ok":
            self.acknowledge((key, 0), effect.attempt_count, "ok")
        elif effect.state == "dispatched":
            self.fail((key, 0), effect.attempt_count, answer)
        elif effect.leave == "granted":
            self.dispatch(0, (key, 0))
        elif effect.leave == "pending" and gate is not None:
            for person in ("reviewer", "administrator"):
                self.desk.answer(gate, person)
        else:
            self.plan(0, key, effect.tool)

    def go(self, way: tuple[str, int]) -> str:
        """Let an effect go as far as `way` says, through rejected attempts and leave for the next; return its key."""
        for _ in range(way[1]):
            self.go_on(way[0], "rejected")
        return way[0]

    # --- agents

    @rule(agent=AGENTS, key=KEYS, tool=TOOLS)
    def plan(self, agent: int, key: str, tool: str) -> None:
        self.post(
            agent,
            "/effects",
            {"session": "s-1", "effect_key": key, "tool": tool, "arguments": {"ref": key}, "turn": "t"},
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
            self.post(0, f"/effects/{effect.id}/acknowledge", {"attempt": number, "outcome": outcome})

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

    @rule(way=WAYS, further=st.sampled_from([0, 1]), early=st.booleans(), fact=st.sampled_from([
        ("effect.dispatched", {}), ("effect.acknowledged", {"outcome": "ok"}),
        ("effect.failed", {"reason": "rejected"}), ("effect.failed", {"reason": "timeout"}),
    ]))  # fmt: skip
    def report_a_move(self, way: tuple[str, int], further: int, early: bool, fact: tuple[str, dict[str, Any]]) -> None:
        """Tell of the last attempt that the book knows, or of the next."""
        key = self.go(way)
        effect = self.effect(key)
        number = max((effect.attempt_count if effect else 0) + further, 1)
        self.report(0, early, {"kind": fact[0], "effect_key": key, "attempt": number, **fact[1]})

    @rule(agent=AGENTS, way=WAYS, early=st.booleans(), fact=st.sampled_from([
        {"kind": "effect.superseded"}, {"kind": "session.ended", "status": "failed"},
        {"kind": "effect.planned", "tool": "git.push"}, {"kind": "effect.planned", "tool": "file.read"},
    ]))  # fmt: skip
    def report_something_else(self, agent: int, way: tuple[str, int], early: bool, fact: dict[str, Any]) -> None:
        key = self.go(way)
        said = {"arguments": {"ref": key}} if fact["kind"] == "effect.planned" else {}
        self.report(agent, early, {"effect_key": key, **said, **fact})

    def report(self, agent: int, early: bool, item: dict[str, Any]) -> None:
        """Report one fact whose id sorts before those of all others, or after them."""
        self.count += 1
        identity = f"{'a' if early else 'z'}{1000 - self.count if early else 1000 + self.count}"
        answer = self.callers[agent].report([{"id": identity, "session": "s-1", **item}])
        assert answer.status_code == 200, answer.text

    # --- people

    @rule(way=WAYS, person=PEOPLE, answer=st.sampled_from(["approve", "approve", "approve", "deny", "return"]))
    def answer(self, way: tuple[str, int], person: str, answer: str) -> None:
        key = self.go(way)
        if gate := self.gate(key):
            self.desk.answer(gate, person, answer, step_up="typed_digest")

    @rule(way=WAYS)
    def deny_for_good(self, way: tuple[str, int]) -> None:
        key = self.go(way)
        if gate := self.gate(key):
            self.desk.answer(gate, "reviewer", "deny_final")

    @rule(way=WAYS, person=PEOPLE, verb=st.sampled_from(["revoke", "extend"]))
    def change(self, way: tuple[str, int], person: str, verb: str) -> None:
        key = self.go(way)
        if gate := self.gate(key):
            member = self.desk.person(person)
            with transaction.atomic():
                rulings.revoke(gate, member, "because") if verb == "revoke" else rulings.extend(gate, member)

    # --- operators and the clock

    @rule(
        way=WAYS,
        text=st.sampled_from([RULES, STRICT, ALLOW, DENY]),
        mode=st.sampled_from(["enforce", "enforce", "observe"]),
    )
    def activate(self, way: tuple[str, int], text: str, mode: str) -> None:
        self.go(way)
        self.desk.rules(text, mode)

    @rule()
    def exempt(self) -> None:
        standing = Exemption.objects.filter(revoked_at_us=None).first()
        user = self.desk.user("administrator")
        with transaction.atomic():
            if standing is not None:
                exemptions.revoke(standing, user)
                return
            ends = now_us() + 600 * US
            exemptions.grant(self.desk.project, tool="git.*", reason="a release goes on", ends_at_us=ends, user=user)

    @rule()
    def stop(self) -> None:
        standing = Hold.objects.filter(lifted_at_us=None).first()
        user = self.desk.user("reviewer")
        with transaction.atomic():
            if standing is not None:
                holds.lift(standing, "looked into it", user)
            else:
                holds.put(self.desk.project, "tool", "git.push", "it deletes too much", user)

    @rule(way=WAYS, seconds=st.sampled_from([60, 700, 4000]), swept=st.booleans())
    def pass_time(self, way: tuple[str, int], seconds: int, swept: bool) -> None:
        self.go(way)
        self.now.shift(seconds)
        if swept:
            gates.sweep()

    # --- what holds always

    @invariant()
    def leave_and_gates_agree(self) -> None:
        for effect in Effect.objects.all():
            opened = {gate.id.hex: gate.status for gate in Gate.objects.filter(effect=effect, status__in=OPEN)}
            if effect.leave == "pending":
                assert opened == {effect.leave_ref: "pending"}
            elif (effect.leave, effect.leave_basis) == ("granted", "ruling"):
                assert opened == {effect.leave_ref: "approved"}
            else:
                assert opened == {}, (effect.leave, effect.leave_basis, effect.state)

    @invariant()
    def votes_stand_behind_every_ruling(self) -> None:
        for gate in Gate.objects.all():
            votes = list(Vote.objects.filter(gate=gate).order_by("position"))
            yes = {vote.user_id for vote in votes if vote.answer == "approve"}
            no = [vote for vote in votes if vote.answer.startswith("deny")]
            assert len({vote.user_id for vote in votes}) == len(votes)
            assert yes.isdisjoint({gate.requester_id, gate.session_owner_id, gate.agent_owner_id})
            if gate.status in GIVEN or gate.used_attempt or gate.leave_until_us:
                assert len(yes) >= gate.minimum
            if gate.status in ("denied", "denied_final"):
                assert len(no) >= gate.deny_threshold
            if gate.status == "pending":
                assert len(yes) < gate.minimum
                assert len(no) < gate.deny_threshold

    @invariant()
    def every_attempt_has_its_own_leave(self) -> None:
        for attempt in Attempt.objects.select_related("effect"):
            by_gate = Gate.objects.filter(effect=attempt.effect, status="used", used_attempt=attempt.number).count()
            basis = _basis_of(attempt)
            if attempt.lane == "command":
                assert attempt.leave == "used"
            if attempt.leave == "used":
                assert by_gate == (1 if basis == "ruling" else 0), basis
                assert basis in ("ruling", "policy", "exemption", "observe")
            else:
                assert by_gate == 0
        for gate in Gate.objects.filter(status="used"):
            assert Attempt.objects.get(effect=gate.effect, number=gate.used_attempt or 0).leave == "used"
            assert (gate.decided_at_us or 0) <= (gate.used_at_us or 0) <= (gate.leave_until_us or 0)
        for effect in Effect.objects.filter(leave="bypassed"):
            assert effect.violates
            assert _facts(effect.id, "integrity.violation")

    @invariant()
    def the_book_tells_leave_and_gates(self) -> None:
        for effect in Effect.objects.all():
            told = _leave_from_the_book(effect.id)
            assert effect.leave in told.split("|"), (told, effect.leave)
        for gate in Gate.objects.all():
            kinds = Entry.objects.filter(subject=gate.id).order_by("position").values_list("kind", "facts")
            assert _status_from_the_book(list(kinds)) == gate.status

    @invariant()
    def the_book_folds_to_the_rows(self) -> None:
        for effect in Effect.objects.all():
            row, attempts = _folded(effect)
            for name in ("tool", "state", "outcome", "attempt_count", "failure_reason", "lane"):
                assert getattr(row, name) == getattr(effect, name), name
            stored = Attempt.objects.filter(effect=effect).values_list("number", "is_open", "replaced", "outcome")
            assert {(one.number, one.is_open, one.replaced, one.outcome) for one in attempts.values()} == set(stored)


def _facts(effect: UUID, *kinds: str) -> list[dict[str, Any]]:
    found = Entry.objects.filter(effect=effect, kind__in=kinds).order_by("position").values_list("facts", flat=True)
    return [json.loads(facts) for facts in found]


def _basis_of(attempt: Attempt) -> str:
    """On what the leave rests under which an attempt ran: the last word about leave before it."""
    ran = Entry.objects.filter(effect=attempt.effect_id, attempt=attempt.number, kind__in=_MOVES).order_by("position")
    before = Entry.objects.filter(effect=attempt.effect_id, position__lt=ran[0].position)
    said = before.filter(kind__in=("effect.planned", "effect.granted")).order_by("-position")
    told = [json.loads(facts) for facts in said.values_list("facts", flat=True)]
    return next((one["basis"] for one in told if one.get("leave") == "granted"), "")


_MOVES = ("effect.dispatched", "effect.acknowledged", "effect.failed")


def _leave_from_the_book(effect: UUID) -> str:
    """What leave an effect stands under, replayed from facts; two words with | between where only the policy knows."""
    word, until = "held", None
    ran: dict[int | None, str] = {}
    failed: set[int | None] = set()
    for entry in Entry.objects.filter(effect=effect).order_by("position"):
        facts = json.loads(entry.facts)
        if entry.kind in ("effect.planned", "effect.granted", "effect.withheld") and "leave" in facts:
            word, until = facts["leave"], facts.get("until_us")
        elif entry.kind == "gate.requested":
            word = "pending"
        elif entry.kind == "gate.ruled" and facts["ruling"] in LEAVE_OF and word in ("pending", "granted"):
            word = LEAVE_OF[facts["ruling"]][0]
        elif entry.kind.startswith("gate.") and entry.kind[5:] in LEAVE_OF and word in ("pending", "granted"):
            word = LEAVE_OF[entry.kind[5:]][0]
        elif entry.kind in _MOVES:
            failed |= {entry.attempt} if entry.kind == "effect.failed" else set()
            if entry.attempt not in ran:
                spent = word == "granted" and (until is None or entry.received_us <= until)
                word = "used" if spent else "bypassed" if word in ("pending", "refused") else "observed|bypassed"
                ran[entry.attempt] = word
            elif word not in (*MOVED, "observed|bypassed") and entry.kind == "effect.acknowledged":
                # That nobody knows says nothing once another attempt was made, or this one was said to have failed.
                says = facts["outcome"] != "unknown" or (
                    entry.attempt == max(filter(None, ran)) and entry.attempt not in failed
                )
                word = ran[entry.attempt] if says else word
    return word


def _status_from_the_book(told: list[tuple[str, str]]) -> str:
    status = ""
    for kind, facts in told:
        if kind == "gate.requested":
            status = "pending"
        elif kind == "gate.ruled":
            status = json.loads(facts)["ruling"]
        elif kind[5:] in ("returned", "expired", "lapsed", "used", "revoked", "cancelled"):
            status = kind[5:]
    return status


def _folded(effect: Effect) -> tuple[EffectRow, dict[int, Any]]:
    """An effect made again from its entries, as evidence that was imported: leave is told elsewhere."""
    row = EffectRow(
        effect.id, effect.project_id, effect.session_id, effect.agent_id, effect.effect_key, 1, 1, 1,
        leave="observed", leave_basis="import",
    )  # fmt: skip
    attempts: dict[int, Any] = {}
    for entry in Entry.objects.filter(effect=effect.id, kind__in=fold.KINDS).order_by("-position"):
        body = json.loads(Body.objects.get(entry=entry).text)
        values = {name: body[name] for name in ("tool", "process", "outcome", "reason") if name in body}
        if entry.kind == "effect.planned":
            values["intent_digest"] = json.loads(entry.facts).get("intent", effect.intent_digest)
        mark = order_key(entry.lane, entry.producer_seq, entry.source, entry.event_id)
        said = fold.Fact(entry.kind, mark, entry.lane, entry.event_id, 1, 1, 1, entry.attempt or 1, True, values=values)
        fold.apply(row, attempts, said, leave.observe)
    fold.settle(row, attempts, 300)
    return row, attempts


@pytest.fixture
def life(desk: Desk) -> Iterator[type[Life]]:
    """The machine on a desk with a second agent."""
    with doors(agents.ensure(desk.project, "build-9", desk.user("reviewer"))) as second:
        Life.desk, Life.callers = desk, [desk.agent, second]
        yield Life


def test_leave_gates_attempts_and_the_book_agree_after_every_step(life: type[Life]) -> None:
    run_state_machine_as_test(
        life,
        settings=settings(
            max_examples=12,
            stateful_step_count=12,
            deadline=None,
            phases=[Phase.explicit, Phase.reuse, Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
