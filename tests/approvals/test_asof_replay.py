"""The state as of a moment is what was shown live at that moment.

That holds for effects, attempts, gates, votes and sessions. Agents, people, operators and the clock
act; after each step all state is read, and at the end the state of each of these moments is rebuilt
from the journal.
"""

import random
from collections.abc import Iterator
from typing import Any, Final
from uuid import UUID

import pytest
from django.db import models, transaction
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule, run_state_machine_as_test

from accounts import agents
from approvals.gates import resolution
from approvals.gates.gates import current_gate_status
from approvals.models import Gate, Vote
from db.clock import now_us
from display.display_state import derive_shown_state
from investigation.history import past_effects as history_effects
from investigation.history import past_gate_states
from investigation.history.moment import JournalCut
from journal.models import Entry
from ledger.models import Attempt, Effect
from ledger.resolutions import ResolutionInput
from ledger.tools import cache, registry
from ledger.tools.tools_yaml import ToolDeclaration
from sessions.models import Session
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.test_life_machine import AGENTS, WAYS, Life
from tests.ledger.fact_strategies import Said, deliveries, stories
from tests.matrices import count_examples
from tests.pages.sample_data import connect_agent
from tests.sessions.team_helpers import one_team

pytestmark = pytest.mark.django_db

SHUT = """
name: shut
rules:
  - {id: push, title: No pushes, match: {tools: [git.push]}, outcome: deny}
  - {id: all, title: Everything else, match: {}, outcome: allow}
"""
# Every column shown as of a moment. A column in neither list is rebuilt, and compared.
NEVER_CHANGES: Final[dict[type[models.Model], set[str]]] = {
    Effect: {
        "id",
        "project_id",
        "session_id",
        "effect_key",
        "opened_position",
        "received_us",
        "imported",
    },
    Attempt: {"id", "project_id", "effect_id", "number", "remote_key", "replaces", "verdict_row"},
    Session: {"id", "project_id", "key", "opened_position", "created_at_us"},
    Gate: {
        *(
            "id",
            "project_id",
            "session_id",
            "effect_id",
            "agent_id",
            "opened_position",
            "plan_position",
            "digest",
        ),
        *(
            "preconditions_digest",
            "requirement",
            "requirement_hash",
            "policy_set_id",
            "rule",
            "risk",
            "reversibility",
        ),
        *(
            "intent_digest",
            "tool",
            "repository_name",
            "requester_id",
            "session_owner_id",
            "agent_owner_id",
            "minimum",
        ),
        *(
            "self_approval",
            "deny_threshold",
            "step_up",
            "reason_of_yes",
            "requested_at_us",
            "valid_for_s",
        ),
    },
    Vote: {column.attname for column in Vote._meta.concrete_fields},  # a vote is never changed
}
WITHOUT_A_FACT: Final[dict[type[models.Model], dict[str, str]]] = {
    Effect: {
        "version": "counts how often the row was written; no page shows it",
        "changed_us": "the clock of the last write, which another effect's fact may cause; no page "
        "shows it",
    },
    Attempt: {},
    Session: {
        "version": "counts how often the row was written; no page shows it",
        "seen_at_us": "heartbeats move it too, and are not journalled; as of then it is the last fact's",
        "fence": "guards writers; no page shows it",
        "start_by_us": "guards the stuck rules; no page shows it",
        "field_history": "order keys beside the words that their own columns show",
    },
    Gate: {},
    Vote: {},
}


def rebuilt_columns(model: type[models.Model]) -> set[str]:
    """The columns that are rebuilt."""
    names = {column.attname for column in model._meta.concrete_fields}
    fixed, without = NEVER_CHANGES[model], WITHOUT_A_FACT[model].keys()
    assert names >= fixed | without
    return names - fixed - without


def columns(row: models.Model) -> dict[str, Any]:
    return {name: getattr(row, name) for name in rebuilt_columns(type(row))}


class ReplayMachine(Life):
    """The life of two effects, with the state after each step."""

    moments: list[tuple[JournalCut, dict[str, Any]]]

    # --- the other machine's assertions after every step are not repeated

    def permission_and_gates_agree(self) -> None: ...
    def votes_stand_behind_every_ruling(self) -> None: ...
    def every_attempt_has_its_own_permission(self) -> None: ...
    def the_journal_matches_permission_and_gates(self) -> None: ...
    def the_journal_folds_to_the_rows(self) -> None: ...

    def post(self, agent: int, path: str, body: Any = None) -> None:
        self.now.shift(0.001)
        super().post(agent, path, body)

    def report(self, agent: int, early: bool, item: dict[str, Any]) -> None:
        self.now.shift(0.001)
        super().report(agent, early, item)

    # --- actions that the other machine does not have

    @rule(way=WAYS, go_on=st.integers(0, 4))
    def undo(self, way: tuple[str, int], go_on: int) -> None:
        """By command: plan an effect that compensates another, and take it as far as `way`."""
        if effect := self.effect(self.go(way)):
            body = {
                "effect_key": "undo",
                "tool": "file.read",
                "arguments": {"of": effect.effect_key},
                "turn": "t",
            }
            self.post(0, f"/effects/{effect.id}/compensate", body)
            self.go(("undo", go_on))
            self.go_on("undo", "ok")

    @rule(
        way=WAYS,
        of=st.sampled_from(["e-1", "e-2"]),
        early=st.booleans(),
        outcome=st.sampled_from(["ok", "error"]),
    )
    def report_an_undoing(self, way: tuple[str, int], of: str, early: bool, outcome: str) -> None:
        self.go(way)
        plan = {"kind": "effect.planned", "effect_key": "redo", "tool": "x", "compensates": of}
        self.report(0, early, plan)
        self.report(
            0, early, {"kind": "effect.acknowledged", "effect_key": "redo", "outcome": outcome}
        )

    @rule(
        way=WAYS,
        early=st.booleans(),
        more=st.sampled_from(
            [
                {
                    "tool": "git.push",
                    "target": {"repository": "web", "ref": "main", "resource": "web@main"},
                },
                {"tool": "deploy", "target": {"environment": "production"}, "call_id": "c-1"},
            ]
        ),
    )
    def report_another_plan(self, way: tuple[str, int], early: bool, more: dict[str, Any]) -> None:
        key = self.go(way)
        self.report(
            0,
            early,
            {"kind": "effect.planned", "effect_key": key, "arguments": {"ref": key}, **more},
        )

    @rule(way=WAYS, reference=st.sampled_from(["", "run-1", "run-2"]), early=st.booleans())
    def report_what_came(self, way: tuple[str, int], reference: str, early: bool) -> None:
        fact = {
            "kind": "effect.acknowledged",
            "outcome": "ok",
            "external_reference": reference or None,
        }
        self.report(
            0,
            early,
            {"effect_key": self.go(way), **{name: value for name, value in fact.items() if value}},
        )

    @rule(
        way=WAYS,
        further=st.sampled_from([0, 1, 2]),
        kinds=st.permutations(["dispatched", "planned", "failed"]),
    )
    def report_at_once(self, way: tuple[str, int], further: int, kinds: list[str]) -> None:
        """Several facts in one batch, about one attempt or two."""
        key = self.go(way)
        effect = self.effect(key)
        number = max((effect.attempt_count if effect else 0) + further, 1)
        of_kind: dict[str, dict[str, Any]] = {
            "planned": {"tool": "git.push", "arguments": {"ref": key}},
            "failed": {"reason": "timeout"},
        }
        self.count += 1
        self.now.shift(0.001)
        items = [
            {
                "id": f"m{self.count}-{kind}",
                "session": "s-1",
                "effect_key": key,
                "kind": f"effect.{kind}",
                **({} if kind == "planned" else {"attempt": number + (kind == "failed")}),
                **of_kind.get(kind, {}),
            }
            for kind in kinds
        ]
        assert self.callers[0].report(items).status_code == 200

    @rule(way=WAYS, result=st.sampled_from(["hit", "miss", "several"]), early=st.booleans())
    def probe(self, way: tuple[str, int], result: str, early: bool) -> None:
        self.report(
            0, early, {"kind": "effect.probed", "effect_key": self.go(way), "result": result}
        )

    @rule(way=WAYS, answer=st.sampled_from(["happened", "not_happened", "compensate", "abandoned"]))
    def resolve(self, way: tuple[str, int], answer: str) -> None:
        if effect := self.effect(self.go(way)):
            resolution_input = ResolutionInput(
                answer,
                "read in the log",
                effect.version,
                "ticket-7",
                insists=True,
                step_up="typed_digest",
            )
            resolution._resolve_locked(
                effect.id, self.inbox.person("operator", "operator"), resolution_input
            )

    @rule(deadline_s=st.sampled_from([30, 300, 3000]))
    def declare(self, deadline_s: int) -> None:
        declarations = [
            ToolDeclaration(name, "idempotent", "compensable", deadline_s)
            for name in ("git.push", "deploy")
        ]
        with transaction.atomic():
            registry.declare_tools(self.inbox.project, declarations)
        cache.clear_tool_cache()

    @rule(
        agent=AGENTS,
        session=st.sampled_from(["s-1", "s-3"]),
        early=st.booleans(),
        fact=st.sampled_from(
            [
                {"kind": "session.changed", "title": "Ship it", "cursor": "step 3"},
                {
                    "kind": "session.changed",
                    "cursor": "step 4",
                    "status": "waiting",
                    "waiting_on": "the build",
                },
                {"kind": "session.waiting", "waiting_on": "people"},
                {"kind": "session.resumed"},
                {
                    "kind": "session.started",
                    "title": "Another",
                    "branch": "topic",
                    "repository": "web",
                    "labels": {"a": "b"},
                },
                {
                    "kind": "session.started",
                    "title": "A third",
                    "parent": "s-1",
                    "owner": "operator",
                },
                {"kind": "session.merged", "into": "s-2"},
                {"kind": "session.ended", "status": "failed"},
            ]
        ),
    )
    def report_a_session(self, agent: int, session: str, early: bool, fact: dict[str, Any]) -> None:
        self.report(agent, early, {"session": session, **fact})

    @rule(
        body=st.sampled_from(
            [{"title": "By command"}, {"cursor": "5"}, {"status": "waiting", "waiting_on": "me"}]
        )
    )
    def change_the_session(self, body: dict[str, Any]) -> None:
        self.post(0, f"/sessions/{self.session}/change", body)

    # --- store the state, and rebuild it

    @invariant()
    def remember(self) -> None:
        if not hasattr(self, "session"):
            return
        self.now.shift(0.001)
        if not hasattr(self, "moments"):
            self.moments = []
        cut = JournalCut(Entry.objects.latest("position").position, now_us())
        self.moments.append((cut, live(cut.at_us)))

    def teardown(self) -> None:
        try:
            for cut, shown in getattr(self, "moments", []):
                assert differences(made_again(self.inbox.project.id, cut), shown) == {}
                now = live(cut.at_us)
                others = {
                    name for name in shown if name.split()[0] in ("effect", "gate", "session")
                } - load_changed_names(self.inbox.project.id, cut)
                assert (
                    differences(
                        {key: shown[key] for key in others}, {key: now[key] for key in others}
                    )
                    == {}
                )
        finally:
            super().teardown()
            cache.clear_tool_cache()


def live(now: int) -> dict[str, Any]:
    """The rows behind the pages as of now."""
    rows: dict[str, Any] = {}
    for effect in Effect.objects.all():
        rows[f"effect {effect.effect_key}"] = columns(effect) | {
            "shown": derive_shown_state(effect, now)
        }
    for attempt in Attempt.objects.select_related("effect"):
        rows[f"attempt {attempt.effect.effect_key} {attempt.number}"] = columns(attempt)
    for gate in Gate.objects.all():
        gate.status = current_gate_status(gate, now)
        rows[f"gate {gate}"] = columns(gate)
        rows[f"votes {gate}"] = list(
            Vote.objects.filter(gate=gate).order_by("position").values_list("id", flat=True)
        )
    for session in Session.objects.all():
        rows[f"session {session.key}"] = columns(session)
    return rows


def differences(then: dict[str, Any], shown: dict[str, Any]) -> dict[str, Any]:
    """The rows that were rebuilt differently from what was shown: by name, and by column."""
    unequal_rows: dict[str, Any] = {}
    for name in then.keys() | shown.keys():
        past, other = then.get(name), shown.get(name)
        if isinstance(past, dict) and isinstance(other, dict):
            unequal = {key: (past[key], other[key]) for key in past if past[key] != other[key]}
            unequal_rows |= {name: unequal} if unequal else {}
        elif past != other:
            unequal_rows[name] = (past, other)
    return unequal_rows


def load_changed_names(project: UUID, cut: JournalCut) -> set[str]:
    """The rows that have entries after `cut`."""
    effects = Effect.objects.filter(
        id__in=history_effects.find_changed_effects_since(project, cut)
    ).values_list("effect_key", flat=True)
    sessions = Session.objects.filter(
        id__in=history_effects.find_changed_sessions(project, cut)
    ).values_list("key", flat=True)
    gates_of = Gate.objects.filter(id__in=history_effects.find_changed_gates(project, cut))
    return (
        {f"effect {key}" for key in effects}
        | {f"session {key}" for key in sessions}
        | {f"gate {gate}" for gate in gates_of}
    )


def made_again(project: UUID, cut: JournalCut) -> dict[str, Any]:
    """All present rows, rebuilt as of `cut`."""
    rows: dict[str, Any] = {}
    for rebuilt in history_effects.rebuild_effects_with_attempts(
        project, Effect.objects.values_list("id", flat=True), cut
    ).values():
        rows[f"effect {rebuilt.effect.effect_key}"] = columns(rebuilt.effect) | {
            "shown": derive_shown_state(rebuilt.effect, cut.at_us)
        }
        for attempt in rebuilt.attempts:
            rows[f"attempt {rebuilt.effect.effect_key} {attempt.number}"] = columns(attempt)
    for rebuilt_gate in past_gate_states.rebuild_gates_with_votes(
        project, Gate.objects.values_list("id", flat=True), cut
    ).values():
        rows[f"gate {rebuilt_gate.gate}"] = columns(rebuilt_gate.gate)
        rows[f"votes {rebuilt_gate.gate}"] = [vote.id for vote in rebuilt_gate.votes]
    for session in history_effects.rebuild_sessions(
        project, Session.objects.values_list("id", flat=True), cut
    ).values():
        rows[f"session {session.key}"] = columns(session)
    return rows


@pytest.fixture
def machine(inbox: InboxScenario) -> Iterator[type[ReplayMachine]]:
    """The state machine of a project with a second agent in the first agent's team."""
    with connect_agent(
        agents.ensure_agent(inbox.project, "build-9", inbox.user("reviewer"))
    ) as second:
        one_team("deploy-7", "build-9")
        ReplayMachine.inbox, ReplayMachine.callers = inbox, [inbox.agent, second]
        yield ReplayMachine


@pytest.mark.deepened
def test_every_moment_of_a_story_is_rebuilt_as_it_was_shown(
    machine: type[ReplayMachine],
) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=count_examples(2, 4),
            stateful_step_count=10,
            deadline=None,
            phases=[Phase.explicit, Phase.reuse, Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.deepened
def test_reports_that_contradict_each_other_are_folded_again_as_they_were(
    quiet: InboxScenario,
) -> None:
    """Plans that replace each other, probes, and compensations reported before what they undo; in
    every order."""

    @settings(
        max_examples=count_examples(4, 8), deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(stories(rich=True, most=12), st.randoms(use_true_random=False), st.booleans())
    def delivered(facts: list[Said], chance: random.Random, policy_outcome: bool) -> None:
        savepoint = transaction.savepoint()
        try:
            if policy_outcome:
                quiet.rules(SHUT)
            moments = []
            for batch in deliveries(facts, chance):
                assert quiet.agent.report([fact.item("s-9") for fact in batch]).status_code in (
                    200,
                    207,
                )
                cut = JournalCut(Entry.objects.latest("position").position, now_us())
                moments.append((cut, live(cut.at_us)))
            for cut, shown in moments:
                assert differences(made_again(quiet.project.id, cut), shown) == {}
        finally:
            transaction.savepoint_rollback(savepoint)

    delivered()


def test_every_column_is_fixed_made_again_or_left_out_for_a_reason() -> None:
    for model, fixed in NEVER_CHANGES.items():
        assert not fixed & WITHOUT_A_FACT[model].keys()
        assert all(WITHOUT_A_FACT[model].values())
        assert rebuilt_columns(model) or model is Vote
