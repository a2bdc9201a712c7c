"""The command lane's verbs: compare-and-set, and the entries that each refusal records."""

import pytest

from accounts.models import Agent
from journal.entries import RepeatedKey
from journal.models import Body, Entry
from ledger.models import Attempt
from tests.ledger.command_factories import Lane, short_answer

pytestmark = pytest.mark.django_db


# --- plan -------------------------------------------------------------------------------------------------------------


def test_a_plan_is_permitted_and_its_entry_records_the_permission(lane: Lane) -> None:
    result = lane.plan("e")
    assert (result.status, result.created, short_answer(result)) == (201, True, "proceed")
    row = lane.row("e")
    assert (row.state, row.permission, row.permission_basis, row.lane, row.version) == (
        *("planned", "granted", "observe", "command"),
        1,
    )
    entry = Entry.objects.get(kind="effect.planned")
    assert entry.position == row.plan_position == row.opened_position
    assert (
        entry.facts
        == '{"basis":"observe","intent":"push main","permission":"granted","redactions":0}'
    )


def test_a_repeated_plan_gets_the_current_answer(lane: Lane) -> None:
    lane.plan("e", key="k")
    assert short_answer(lane.plan("e", key="k")) == "proceed"
    assert short_answer(lane.plan("e")) == "proceed"
    lane.dispatch("e")
    assert short_answer(lane.plan("e", key="k")) == "ambiguous"
    lane.acknowledge("e")
    assert short_answer(lane.plan("e", key="k")) == "done"
    assert (
        lane.row("e").plan_position
        == Entry.objects.filter(kind="effect.planned").earliest("position").position
    )


def test_a_plan_under_a_used_key_with_other_fields_raises_repeated_key(
    lane: Lane,
) -> None:
    lane.plan("e", key="k")
    with pytest.raises(RepeatedKey):
        lane.plan("f", "another", key="k")
    assert not Entry.objects.filter(kind="integrity.conflict", effect=None).exists()


def test_a_key_stands_for_one_intent_and_a_conflict_is_recorded(lane: Lane) -> None:
    lane.plan("e")
    for _ in range(2):
        result = lane.plan("e", "push --force main", key="bent")
        assert (result.status, short_answer(result)) == (422, "key_reuse")
    trace = Entry.objects.get(kind="integrity.conflict")
    assert (trace.effect, trace.facts) == (lane.row("e").id, '{"refused":"key_reuse"}')
    assert lane.row("e").intent_digest == "push main"
    assert not Entry.objects.filter(event_id="bent").exists(), "the key is free for a valid command"


def test_a_second_open_effect_of_one_intent_is_ambiguous_without_permission(lane: Lane) -> None:
    first = lane.plan("e").effect
    result = lane.plan("f")
    assert (short_answer(result), result.open_effect) == ("ambiguous", first.id)
    assert lane.row("f").permission == "none"
    assert short_answer(lane.dispatch("f")) == "NO_PERMISSION"
    assert (
        Entry.objects.get(effect=result.effect.id).facts == '{"intent":"push main","redactions":0}'
    )


def test_siblings_of_one_turn_are_not_ambiguous(lane: Lane) -> None:
    assert [short_answer(lane.plan(key, turn="7")) for key in ("e", "f", "g")] == ["proceed"] * 3
    assert short_answer(lane.plan("h", turn="8")) == "ambiguous"
    assert short_answer(lane.plan("i", "another intent")) == "proceed"


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (["dispatch"], "ambiguous"),
        (["dispatch", "fail timeout"], "ambiguous"),
        (["dispatch", "fail error"], "ambiguous"),
        (["dispatch", "fail rejected"], "proceed"),
        (["dispatch", "acknowledge"], "proceed"),
        (["supersede"], "proceed"),
    ],
)
def test_the_state_of_the_other_effect_decides_whether_its_intent_is_open(
    lane: Lane, steps: list[str], expected: str
) -> None:
    lane.plan("e")
    for step in steps:
        verb, _, reason = step.partition(" ")
        getattr(lane, verb)("e", *([reason] if reason else []))
    assert short_answer(lane.plan("f")) == expected


def test_superseding_the_other_effect_permits_the_ambiguous_one(lane: Lane) -> None:
    lane.plan("e")
    assert short_answer(lane.plan("f")) == "ambiguous"
    lane.supersede("e")
    assert short_answer(lane.plan("f")) == "proceed"
    assert Entry.objects.get(kind="effect.granted").effect == lane.row("f").id
    assert (
        short_answer(lane.dispatch("f")) == "ambiguous"
    )  # dispatched: the outcome is unknown until an answer


def test_effects_of_one_intent_in_doubt_do_not_wait_for_each_other(
    lane: Lane,
) -> None:
    """After repeated crashes under new keys, the answer names the effect in doubt first, then the
    oldest."""
    lane.plan("e")
    lane.dispatch("e")
    for name in "abcdf":
        assert lane.plan(name).open_effect == lane.row("e").id
    lane.acknowledge("e")
    for name in "fdcbg":
        result = lane.plan(name)
        assert (short_answer(result), result.open_effect) == ("ambiguous", lane.row("a").id)
    assert short_answer(lane.plan("a")) == "proceed"
    assert lane.plan("b").open_effect == lane.row("a").id


def test_a_rejected_effect_may_be_retried_despite_later_plans_of_its_intent(
    lane: Lane,
) -> None:
    lane.plan("e")
    lane.dispatch("e")
    for name in "abc":
        lane.plan(name)
    lane.fail("e", "rejected")
    assert short_answer(lane.plan("e")) == "proceed"
    assert lane.plan("a").open_effect == lane.row("e").id, (
        "an effect with permission comes before waiting ones"
    )


# --- dispatch ---------------------------------------------------------------------------------------------------------


def test_a_dispatch_uses_the_permission_and_opens_the_attempt(lane: Lane) -> None:
    lane.plan("e")
    attempt = lane.dispatch("e", key="d", epoch=4).attempt
    assert attempt is not None
    row, stored = lane.row("e"), Attempt.objects.get()
    assert (row.state, row.permission, row.attempt_count) == ("dispatched", "used", 1)
    assert (stored.lane, stored.permission, stored.is_open, stored.process) == (
        "command",
        "used",
        True,
        "p-1",
    )
    assert (stored.dispatch_key, stored.lease_epoch, stored.remote_key) == (
        "d",
        4,
        attempt.remote_key,
    )


def test_a_grant_is_repeated_only_to_the_same_process_key_and_epoch(lane: Lane) -> None:
    lane.plan("e")
    first = lane.dispatch("e", key="d", epoch=4).attempt
    assert lane.dispatch("e", key="d", epoch=4).attempt == first
    for other in ({"process": "p-2"}, {"epoch": 5}, {"epoch": None}, {"key": "another"}):
        refused = lane.dispatch("e", **{"key": "d", "epoch": 4, **other})  # type: ignore[arg-type]  # mixed columns
        assert (refused.status, short_answer(refused)) == (409, "ALREADY_DISPATCHED"), other
    assert Attempt.objects.count() == 1
    assert Entry.objects.filter(kind="effect.dispatched").count() == 1


@pytest.mark.parametrize("answer", ["acknowledge", "fail timeout"])
def test_no_grant_is_repeated_after_the_attempt_was_answered(lane: Lane, answer: str) -> None:
    lane.plan("e")
    lane.dispatch("e", key="d")
    verb, _, reason = answer.partition(" ")
    getattr(lane, verb)("e", *([reason] if reason else []))
    assert lane.dispatch("e", key="d").status == 409
    assert lane.dispatch("e").status == 409
    assert Attempt.objects.count() == 1


def test_a_dispatch_key_grants_no_second_attempt(lane: Lane) -> None:
    lane.plan("e")
    lane.dispatch("e", key="d")
    lane.fail("e", "rejected")
    lane.plan("e")
    assert short_answer(lane.dispatch("e", key="d")) == "ALREADY_DISPATCHED"
    assert lane.dispatch("e", key="d2").status == 200


def test_arguments_that_differ_from_the_plan_are_recorded_and_free_the_key(lane: Lane) -> None:
    lane.plan("e")
    refused = lane.dispatch("e", key="d", intent="push --force main")
    assert (refused.status, short_answer(refused)) == (409, "INTENT_MISMATCH")
    trace = Entry.objects.get(kind="integrity.conflict")
    assert (trace.effect, trace.facts) == (lane.row("e").id, '{"refused":"INTENT_MISMATCH"}')
    assert Body.objects.filter(entry=trace).exists()
    assert lane.row("e").permission == "granted"
    assert lane.dispatch("e", key="d").status == 200


@pytest.mark.parametrize(
    ("permission", "code"),
    [("none", "NO_PERMISSION"), ("pending", "GATE_PENDING"), ("denied", "GATE_DENIED")],
)
def test_without_permission_nothing_is_dispatched(lane: Lane, permission: str, code: str) -> None:
    lane.plan("e")
    lane.set_permission("e", permission=permission, permission_basis="policy")
    refused = lane.dispatch("e")
    assert (refused.status, short_answer(refused)) == (409, code)
    assert (lane.row("e").state, Attempt.objects.count()) == ("planned", 0)
    if permission == "denied":
        return  # a denied permission stays denied
    lane.set_permission("e", permission="none")  # only a gate leads from pending to granted
    lane.set_permission("e", permission="granted")
    assert lane.dispatch("e").status == 200


def test_another_projects_effect_is_not_found(lane: Lane, stranger: Agent) -> None:
    lane.plan("e")
    other_lane = Lane(stranger)
    other_lane.session = lane.session
    for verb in (other_lane.dispatch, other_lane.acknowledge, other_lane.supersede):
        with pytest.raises(LookupError):
            verb("e")


# --- acknowledge and fail ---------------------------------------------------------------------------------------------


def test_an_acknowledgement_closes_the_attempt_with_its_outcome(lane: Lane) -> None:
    lane.plan("e")
    lane.dispatch("e")
    result = lane.acknowledge("e", outcome="error", reference="9f2")
    assert (result.status, short_answer(result)) == (200, "done")
    row = lane.row("e")
    assert (row.state, row.outcome, row.external_reference) == ("acknowledged", "error", "9f2")
    assert not Attempt.objects.get().is_open


def test_an_acknowledgement_of_unknown_outcome_leaves_it_ambiguous(lane: Lane) -> None:
    lane.plan("e")
    lane.dispatch("e")
    assert short_answer(lane.acknowledge("e", outcome="unknown")) == "ambiguous"


def test_an_effect_that_was_not_dispatched_cannot_be_answered(lane: Lane) -> None:
    lane.plan("e")
    for refused in (
        lane.acknowledge("e"),
        lane.fail("e", "error"),
        lane.acknowledge("e", attempt=7),
    ):
        assert (refused.status, short_answer(refused)) == (409, "NOT_DISPATCHED")
    assert not Attempt.objects.exists()


def test_a_late_answer_is_stored_as_evidence_and_changes_no_outcome(lane: Lane) -> None:
    lane.plan("e")
    lane.dispatch("e")
    lane.acknowledge("e", outcome="ok", reference="first", key="z")
    late = lane.acknowledge("e", outcome="error", reference="second", key="a")
    assert late.status == 202
    assert Entry.objects.get(event_id="a").lane == "evidence"
    row = lane.row("e")
    assert (row.state, row.outcome, row.external_reference) == ("acknowledged", "ok", "first")
    assert lane.fail("e", "rejected").status == 202
    assert lane.row("e").state == "acknowledged"


def test_an_acknowledgement_after_a_timeout_settles_it(lane: Lane) -> None:
    lane.plan("e")
    lane.dispatch("e")
    assert short_answer(lane.fail("e", "timeout")) == "ambiguous"
    assert lane.row("e").outcome == "unknown"
    late = lane.acknowledge("e", reference="9f2")
    assert (late.status, short_answer(late)) == (202, "done")


def test_after_a_clean_rejection_a_plan_grants_an_attempt_with_a_new_key(
    lane: Lane,
) -> None:
    lane.plan("e")
    first = lane.dispatch("e").attempt
    assert short_answer(lane.fail("e", "rejected")) == "blocked"
    assert short_answer(lane.dispatch("e")) == "NO_PERMISSION", "permission is for one attempt"
    assert short_answer(lane.plan("e")) == "proceed"
    second = lane.dispatch("e").attempt
    assert first is not None
    assert second is not None
    assert (second.number, second.remote_key != first.remote_key) == (2, True)
    lane.acknowledge("e", attempt=2)
    assert [attempt.is_open for attempt in Attempt.objects.order_by("number")] == [False, False]
    assert lane.row("e").state == "acknowledged"


@pytest.mark.parametrize("reason", ["timeout", "error"])
def test_after_an_unclear_failure_nothing_is_granted_again(lane: Lane, reason: str) -> None:
    lane.plan("e")
    lane.dispatch("e")
    lane.fail("e", reason)
    assert short_answer(lane.plan("e")) == "ambiguous"
    assert lane.dispatch("e").status == 409
    assert Attempt.objects.count() == 1


def test_a_rejected_effect_planned_again_reports_another_open_one(lane: Lane) -> None:
    lane.plan("e")
    lane.dispatch("e")
    lane.fail("e", "rejected")
    other = lane.plan("f")
    assert short_answer(other) == "proceed"
    again = lane.plan("e")
    assert (short_answer(again), again.open_effect) == ("ambiguous", other.effect.id)
    assert short_answer(lane.dispatch("e")) == "NO_PERMISSION"


def test_new_permission_is_not_used_by_a_late_report_of_a_rejection(
    lane: Lane,
) -> None:
    lane.plan("e")
    lane.dispatch("e")
    lane.fail("e", "rejected")
    lane.plan("e")
    assert (
        lane.apply_report("e", "effect.failed", id="1", reason="rejected").permission == "granted"
    )
    assert lane.apply_report("e", "effect.dispatched", id="2").permission == "granted"
    assert lane.dispatch("e").status == 200


def test_a_late_acknowledgement_of_the_rejected_attempt_closes_the_effect(lane: Lane) -> None:
    lane.plan("e")
    lane.dispatch("e")
    lane.fail("e", "rejected")
    lane.plan("e")
    row = lane.apply_report("e", "effect.acknowledged", outcome="ok")
    assert (row.state, row.permission) == ("acknowledged", "used")
    assert short_answer(lane.dispatch("e")) == "ALREADY_DISPATCHED"
