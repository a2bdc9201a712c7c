"""The book as of a moment is what was shown live at that moment: effects, attempts, gates, votes
and sessions.

A story is told by agents, people, operators and the clock; after each step everything is read as it
stands, and at the end each of these moments is made again from the journal.
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
from approvals.gates.deadlines import current_gate_status
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
from tests.approvals.inbox_scenario import Desk
from tests.approvals.test_life_machine import AGENTS, WAYS, Life
from tests.ledger.fact_strategies import Said, deliveries, stories
from tests.pages.sample_data import doors
from tests.sessions.team_helpers import one_team

pytestmark = pytest.mark.django_db

SHUT = """
name: shut
rules:
  - {id: push, title: No pushes, match: {tools: [git.push]}, outcome: deny}
  - {id: all, title: Everything else, match: {}, outcome: allow}
"""
# Every column of what is shown as of a moment. What is in neither list is made again, and compared.
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


def again(model: type[models.Model]) -> set[str]:
    """The columns that are made again."""
    known = {column.attname for column in model._meta.concrete_fields}
    fixed, without = NEVER_CHANGES[model], WITHOUT_A_FACT[model].keys()
    assert known >= fixed | without
    return known - fixed - without


def columns(row: models.Model) -> dict[str, Any]:
    return {name: getattr(row, name) for name in again(type(row))}


class Told(Life):
    """The life of two effects, remembered."""

    moments: list[tuple[JournalCut, dict[str, Any]]]

    # --- what the other machine asserts after every step is its own matter

    def permission_and_gates_agree(self) -> None: ...
    def votes_stand_behind_every_ruling(self) -> None: ...
    def every_attempt_has_its_own_permission(self) -> None: ...
    def the_book_tells_permission_and_gates(self) -> None: ...
    def the_book_folds_to_the_rows(self) -> None: ...

    def post(self, agent: int, path: str, body: Any = None) -> None:
        self.now.shift(0.001)
        super().post(agent, path, body)

    def report(self, agent: int, early: bool, item: dict[str, Any]) -> None:
        self.now.shift(0.001)
        super().report(agent, early, item)

    # --- what the other machine leaves out

    @rule(way=WAYS, go_on=st.integers(0, 4))
    def undo(self, way: tuple[str, int], go_on: int) -> None:
        """By command: an effect that undoes another, and how far it goes."""
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
            {"effect_key": self.go(way), **{name: one for name, one in fact.items() if one}},
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

    @rule(way=WAYS, found=st.sampled_from(["hit", "miss", "several"]), early=st.booleans())
    def look(self, way: tuple[str, int], found: str, early: bool) -> None:
        self.report(
            0, early, {"kind": "effect.probed", "effect_key": self.go(way), "result": found}
        )

    @rule(way=WAYS, answer=st.sampled_from(["happened", "not_happened", "compensate", "abandoned"]))
    def resolve(self, way: tuple[str, int], answer: str) -> None:
        if effect := self.effect(self.go(way)):
            said = ResolutionInput(
                answer,
                "read in the log",
                effect.version,
                "ticket-7",
                insists=True,
                step_up="typed_digest",
            )
            resolution._resolve_locked(effect.id, self.desk.person("operator", "operator"), said)

    @rule(deadline_s=st.sampled_from([30, 300, 3000]))
    def declare(self, deadline_s: int) -> None:
        told = [
            ToolDeclaration(name, "idempotent", "compensable", deadline_s)
            for name in ("git.push", "deploy")
        ]
        with transaction.atomic():
            registry.declare_tools(self.desk.project, told)
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
    def speak_of_a_session(
        self, agent: int, session: str, early: bool, fact: dict[str, Any]
    ) -> None:
        self.report(agent, early, {"session": session, **fact})

    @rule(
        body=st.sampled_from(
            [{"title": "By command"}, {"cursor": "5"}, {"status": "waiting", "waiting_on": "me"}]
        )
    )
    def change_the_session(self, body: dict[str, Any]) -> None:
        self.post(0, f"/sessions/{self.session}/change", body)

    # --- remembering, and making again

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
                assert differences(made_again(self.desk.project.id, cut), shown) == {}
                now, since = (
                    live(cut.at_us),
                    history_effects.find_changed_rows(self.desk.project.id, cut),
                )
                others = {
                    name for name in shown if name.split()[0] in ("effect", "gate", "session")
                } - names_of(since)
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
    """What the pages' rows say now."""
    found: dict[str, Any] = {}
    for effect in Effect.objects.all():
        found[f"effect {effect.effect_key}"] = columns(effect) | {
            "shown": derive_shown_state(effect, now)
        }
    for attempt in Attempt.objects.select_related("effect"):
        found[f"attempt {attempt.effect.effect_key} {attempt.number}"] = columns(attempt)
    for gate in Gate.objects.all():
        gate.status = current_gate_status(gate, now)
        found[f"gate {gate}"] = columns(gate)
        found[f"votes {gate}"] = list(
            Vote.objects.filter(gate=gate).order_by("position").values_list("id", flat=True)
        )
    for session in Session.objects.all():
        found[f"session {session.key}"] = columns(session)
    return found


def differences(then: dict[str, Any], shown: dict[str, Any]) -> dict[str, Any]:
    """What was made again otherwise than it was shown: by name, and by column where there are
    columns."""
    found: dict[str, Any] = {}
    for name in then.keys() | shown.keys():
        one, other = then.get(name), shown.get(name)
        if isinstance(one, dict) and isinstance(other, dict):
            unequal = {key: (one[key], other[key]) for key in one if one[key] != other[key]}
            found |= {name: unequal} if unequal else {}
        elif one != other:
            found[name] = (one, other)
    return found


def names_of(changed: history_effects.ChangedRows) -> set[str]:
    effects = Effect.objects.filter(id__in=changed.effects).values_list("effect_key", flat=True)
    sessions = Session.objects.filter(id__in=changed.sessions).values_list("key", flat=True)
    gates_of = Gate.objects.filter(id__in=changed.gates)
    return (
        {f"effect {key}" for key in effects}
        | {f"session {key}" for key in sessions}
        | {f"gate {gate}" for gate in gates_of}
    )


def made_again(project: UUID, cut: JournalCut) -> dict[str, Any]:
    """The same as of `cut`, of everything that is there now."""
    found: dict[str, Any] = {}
    for one in history_effects.rebuild_effects_with_attempts(
        project, Effect.objects.values_list("id", flat=True), cut
    ).values():
        found[f"effect {one.effect.effect_key}"] = columns(one.effect) | {
            "shown": derive_shown_state(one.effect, cut.at_us)
        }
        for attempt in one.attempts:
            found[f"attempt {one.effect.effect_key} {attempt.number}"] = columns(attempt)
    for held in past_gate_states.rebuild_gates_with_votes(
        project, Gate.objects.values_list("id", flat=True), cut
    ).values():
        found[f"gate {held.gate}"] = columns(held.gate)
        found[f"votes {held.gate}"] = [vote.id for vote in held.votes]
    for session in history_effects.rebuild_sessions(
        project, Session.objects.values_list("id", flat=True), cut
    ).values():
        found[f"session {session.key}"] = columns(session)
    return found


@pytest.fixture
def told(desk: Desk) -> Iterator[type[Told]]:
    """The machine on a desk with a second agent of the first one's team."""
    with doors(agents.ensure_agent(desk.project, "build-9", desk.user("reviewer"))) as second:
        one_team("deploy-7", "build-9")
        Told.desk, Told.callers = desk, [desk.agent, second]
        yield Told


def test_every_moment_of_a_story_is_made_again_as_it_was_shown(told: type[Told]) -> None:
    run_state_machine_as_test(
        told,
        settings=settings(
            max_examples=4,
            stateful_step_count=10,
            deadline=None,
            phases=[Phase.explicit, Phase.reuse, Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_reports_that_contradict_each_other_are_folded_again_as_they_were(quiet: Desk) -> None:
    """Plans that take each other's place, looks, undoing that is told of before what it undoes; in
    every order."""

    @settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
    @given(stories(rich=True, most=12), st.randoms(use_true_random=False), st.booleans())
    def delivered(told: list[Said], chance: random.Random, policy_outcome: bool) -> None:
        savepoint = transaction.savepoint()
        try:
            if policy_outcome:
                quiet.rules(SHUT)
            moments = []
            for batch in deliveries(told, chance):
                assert quiet.agent.report([said.item("s-9") for said in batch]).status_code in (
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
        assert again(model) or model is Vote
