"""Claims of agents: stored, shown apart from evidence, and never more than claims."""

import itertools
import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from db.errors import ChangeRefused
from journal.models import Body, Entry
from ledger.models import Attempt, Effect
from pages.effects import data
from sessions.models import Session, Task
from tests.api.api_client import Caller, code
from tests.api.rows import select_body_text
from tests.api.sample_facts import STORY, make_items, statuses


def test_unknown_kinds_and_fields_are_stored_and_change_no_state(agent: Caller) -> None:
    agent.report(make_items())
    state = (list(Effect.objects.values()), list(Task.objects.values()))
    unknown: list[dict[str, Any]] = [
        {
            "id": "u-1",
            "kind": "effect.teleported",
            "session": "s-1",
            "effect_key": "e",
            "where": {"x": [1.5, None]},
        },
        {"id": "u-2", "kind": "moon.risen", "session": "s-1", "anything": "a\0b"},
        {
            "id": "u-3",
            "kind": "gate.ruled",
            "session": "s-1",
            "effect_key": "e",
            "ruling": "approved",
        },
        {
            "id": "u-4",
            "kind": "effect.granted",
            "session": "s-1",
            "effect_key": "e",
            "permission": "granted",
        },
        {"id": "u-5", "kind": "lease.lost", "session": "s-1", "lease_epoch": 7},
    ]
    answer = agent.report(unknown)
    assert (answer.status_code, set(statuses(answer))) == (200, {"created"})
    assert (list(Effect.objects.values()), list(Task.objects.values())) == state
    assert Session.objects.get(key="s-1").status == "completed"
    for item in unknown:
        text = Body.objects.get(entry__event_id=item["id"]).text
        assert json.loads(text) == item
    assert Entry.objects.get(event_id="u-5").lease_epoch == 7
    extra = {
        "id": "u-6",
        "kind": "effect.planned",
        "session": "s-1",
        "effect_key": "n",
        "tool": "t",
        "mood": "good",
    }
    assert agent.report([extra]).status_code == 200
    assert '"mood":"good"' in Body.objects.get(entry__event_id="u-6").text


def test_no_report_can_imitate_an_entry_of_gatebook(agent: Caller) -> None:
    agent.report(make_items())
    effect = Effect.objects.get()
    forged = ("integrity.violation", "integrity.conflict", "effect.granted", "erasure.executed")
    items = [{"id": kind, "kind": kind, "session": "s-1", "effect_key": "e"} for kind in forged]
    assert agent.report(items).json()["accepted"] == len(forged)
    shown = {fact.entry.event_id: fact for fact in data.load_entry_page(effect).rows}
    for kind in forged:
        assert (shown[kind].is_known_kind, shown[kind].violates) == (False, False)
    agent.report([{**make_items()[4], "outcome": "error"}])
    (conflict,) = [
        fact for fact in data.load_entry_page(effect).rows if fact.entry.lane == "system"
    ]
    assert (conflict.entry.kind, conflict.is_known_kind, conflict.violates) == (
        "integrity.conflict",
        True,
        True,
    )


def test_the_producers_clock_is_shown_and_never_used(agent: Caller) -> None:
    far: dict[str, Any] = {"occurred_us": 9_000_000_000_000_000}
    agent.report(make_items([*STORY[2:5]], **far))
    effect, session = Effect.objects.get(), Session.objects.get()
    assert effect.planned_at_us == far["occurred_us"]
    for clock in (effect.received_us, effect.changed_us, session.seen_at_us, session.created_at_us):
        assert clock < far["occurred_us"]
    assert Entry.objects.get(kind="effect.planned").received_us < far["occurred_us"]
    assert Entry.objects.get(kind="effect.planned").occurred_us == far["occurred_us"]
    # A later report with an earlier time changes nothing, wherever the batch has it.
    items = make_items(
        [{"kind": "task.changed", "task": "t", "title": title} for title in ("first", "second")]
    )
    items[0]["occurred_us"], items[1]["occurred_us"] = 2_000_000, 1_000_000
    for number, item in enumerate(items):
        item["id"] = f"c-{number}"
    agent.report(items[::-1])
    assert Task.objects.get().title == "second"
    assert statuses(agent.report([{**items[0], "id": "z", "occurred_us": -1}])) == ["invalid"]


def test_an_own_source_counts_and_a_foreign_one_is_only_claimed(agent: Caller) -> None:
    base = {"kind": "task.created", "session": "s-1", "task": "t"}
    agent.report(
        [
            {**base, "id": "1", "source": "tester/worker-7"},
            {**base, "id": "2", "source": "somebody"},
            {**base, "id": "3", "source": "testers"},
            {**base, "id": "4", "source": "gatebook"},
            {**base, "id": "5"},
        ]
    )
    effects = {
        entry.event_id: (entry.source, entry.claimed_source)
        for entry in Entry.objects.filter(lane="evidence")
    }
    assert effects == {
        "1": ("tester/worker-7", ""),
        "2": ("tester", "somebody"),
        "3": ("tester", "testers"),
        "4": ("tester", "gatebook"),
        "5": ("tester", ""),
    }


@pytest.mark.parametrize("name", ["gatebook", "tester/worker-7", "tester:1"])
def test_an_agent_name_that_could_be_a_source_of_another_is_refused(
    issue: Callable[..., str], name: str
) -> None:
    with pytest.raises(ChangeRefused):
        issue(name)


def test_a_receipt_is_the_proof_of_a_fact(agent: Caller) -> None:
    agent.report(
        [*make_items(), {"id": "w", "kind": "moon.risen", "session": "s-1", "source": "tester/w"}]
    )
    receipt = agent.get("/events/receipt", id="f-4").json()
    entry = Entry.objects.get(event_id="f-4")
    assert (receipt["position"], receipt["kind"], receipt["lane"]) == (
        entry.position,
        entry.kind,
        "evidence",
    )
    assert (receipt["session"], receipt["effect"]) == (str(entry.session), str(entry.effect))
    assert receipt["facts"] == {"outcome": "ok"}
    assert entry.body_commit is not None
    assert receipt["body_commit"] == bytes(entry.body_commit).hex()
    assert "result" not in receipt
    assert agent.get("/events/receipt", id="w", source="tester/w").status_code == 200
    assert code(agent.get("/events/receipt", id="w")) == (404, "not_found")
    assert code(agent.get("/events/receipt")) == (422, "invalid")
    assert code(agent.get("/events/receipt", id="f-4", source="x", other="y")) == (
        422,
        "parameter_unknown",
    )


def test_a_command_is_not_displaced_by_a_report(agent: Caller) -> None:
    agent.session("s-1", title="by command")
    planned = agent.plan("e", tool="bash", arguments={"n": 1})
    agent.dispatch(planned)
    agent.acknowledge(planned, external_reference="by command")
    rivals = make_items(
        [
            {"kind": "session.started", "title": "by report"},
            {
                "kind": "effect.acknowledged",
                "effect_key": "e",
                "outcome": "error",
                "external_reference": "by report",
            },
            {"kind": "effect.dispatched", "effect_key": "e", "process": "another"},
        ]
    )
    assert agent.report(rivals).json()["accepted"] == 3
    effect = Effect.objects.get()
    assert (effect.outcome, effect.external_reference, effect.permission) == (
        "ok",
        "by command",
        "used",
    )
    assert Attempt.objects.get().process == "p-1"
    assert Session.objects.get().title == "by command"


def test_a_planned_effect_that_was_reported_to_have_run_has_spent_its_permission(
    agent: Caller,
) -> None:
    agent.session("s-1")
    planned = agent.plan("e")
    agent.report(make_items([{"kind": "effect.dispatched", "effect_key": "e"}]))
    assert Effect.objects.get().permission == "used"
    refused = agent.post(
        f"/effects/{planned['id']}/dispatch",
        {"process": "p", "intent_digest": planned["intent_digest"]},
    )
    assert code(refused) == (409, "ALREADY_DISPATCHED")


def test_two_acknowledged_attempts_are_a_violation(agent: Caller) -> None:
    facts = [
        {"kind": f"effect.{verb}", "effect_key": "e", "attempt": attempt, "outcome": "ok"}
        for attempt, verb in itertools.product((1, 2), ("dispatched", "acknowledged"))
    ]
    agent.report(make_items([STORY[2], *facts]))
    assert Effect.objects.get().violates
    assert Entry.objects.filter(kind="integrity.violation").count() == 1


def test_an_import_is_observed_with_its_own_basis_and_unredacted(
    agent: Caller, importer: Caller
) -> None:
    secret = "ghp_" + "a1B2" * 9
    facts = [
        {**STORY[2], "arguments": {"token": secret}, "basis": "import", "imports": True},
        STORY[3],
    ]
    for caller, session in ((agent, "live"), (importer, "imported")):
        assert caller.report(make_items(facts, session)).status_code == 200
    live, imported = (
        Effect.objects.get(session__key="live"),
        Effect.objects.get(session__key="imported"),
    )
    assert (imported.permission, imported.permission_basis, imported.redactions) == (
        "observed",
        "import",
        0,
    )
    assert secret in select_body_text(imported.plan_position)
    assert (live.permission, live.permission_basis, live.redactions) == ("observed", "observe", 1)
    assert secret not in select_body_text(live.plan_position)


def test_every_kind_of_reference_to_a_session_means_the_same(agent: Caller) -> None:
    session = agent.session("s-1")
    for number, reference in enumerate(
        (session["id"], session["id"].replace("-", ""), "s-1", session["id"].upper())
    ):
        item = {"id": f"r-{number}", "kind": "moon.risen", "session": reference}
        assert agent.report([item]).status_code == 200
        assert Entry.objects.get(event_id=f"r-{number}").session == UUID(session["id"])
    assert Session.objects.count() == 1


def test_only_what_is_in_doubt_or_refused_carries_a_verdict(agent: Caller) -> None:
    agent.report(make_items())
    agent.session("s-2")
    planned = agent.plan("e", "s-2")
    assert (
        agent.plan("f", "s-2")["verdict"]["reason"] == "NOT_DISPATCHED"
    )  # of the effect that makes it ambiguous
    texts = [
        json.dumps([planned, agent.dispatch(planned), agent.acknowledge(planned)]),
        agent.get(f"/effects/{planned['id']}").text,
        agent.get("/effects").text,
        agent.get("/sessions").text,
    ]
    for text in texts:
        assert '"verdict"' not in text
