"""The command lane's verbs: compare-and-set, and what each refusal leaves behind."""

import pytest

from accounts.models import Agent
from accounts.origin import RepeatedKey
from journal.models import Body, Entry
from ledger.models import Attempt
from tests.ledger.command_factories import Lane, word

pytestmark = pytest.mark.django_db


# --- plan -------------------------------------------------------------------------------------------------------------


def test_a_plan_is_released_and_its_entry_says_with_which_permission(lane: Lane) -> None:
    answered = lane.plan("e")
    assert (answered.status, answered.created, word(answered)) == (201, True, "proceed")
    row = lane.row("e")
    assert (row.state, row.permission, row.permission_basis, row.lane, row.version) == (
        *("planned", "granted", "observe", "command"),
        1,
    )
    entry = Entry.objects.get(kind="effect.planned")
    assert entry.position == row.plan_position == row.opened_position
    assert entry.facts == '{"basis":"observe","intent":"push main","permission":"granted"}'


def test_planned_again_the_answer_is_the_present_one(lane: Lane) -> None:
    lane.plan("e", key="k")
    assert word(lane.plan("e", key="k")) == "proceed"
    assert word(lane.plan("e")) == "proceed"
    lane.dispatch("e")
    assert word(lane.plan("e", key="k")) == "ambiguous"
    lane.acknowledge("e")
    assert word(lane.plan("e", key="k")) == "done"
    assert (
        lane.row("e").plan_position
        == Entry.objects.filter(kind="effect.planned").earliest("position").position
    )


def test_a_replan_under_a_used_key_with_other_words_is_for_the_endpoint_to_answer(
    lane: Lane,
) -> None:
    lane.plan("e", key="k")
    with pytest.raises(RepeatedKey):
        lane.plan("f", "another", key="k")
    assert not Entry.objects.filter(kind="integrity.conflict", effect=None).exists()


def test_a_key_stands_for_one_intent_and_the_attempt_to_bend_it_is_kept(lane: Lane) -> None:
    lane.plan("e")
    for _ in range(2):
        answered = lane.plan("e", "push --force main", key="bent")
        assert (answered.status, word(answered)) == (422, "key_reuse")
    trace = Entry.objects.get(kind="integrity.conflict")
    assert (trace.effect, trace.facts) == (lane.row("e").id, '{"refused":"key_reuse"}')
    assert lane.row("e").intent_digest == "push main"
    assert not Entry.objects.filter(event_id="bent").exists(), "the key is free for a right command"


def test_a_second_open_effect_of_one_intent_is_ambiguous_without_permission(lane: Lane) -> None:
    first = lane.plan("e").effect
    answered = lane.plan("f")
    assert (word(answered), answered.open_effect) == ("ambiguous", first.id)
    assert lane.row("f").permission == "none"
    assert word(lane.dispatch("f")) == "NO_PERMISSION"
    assert Entry.objects.get(effect=answered.effect.id).facts == '{"intent":"push main"}'


def test_siblings_of_one_turn_are_not_ambiguous(lane: Lane) -> None:
    assert [word(lane.plan(key, turn="7")) for key in ("e", "f", "g")] == ["proceed"] * 3
    assert word(lane.plan("h", turn="8")) == "ambiguous"
    assert word(lane.plan("i", "another intent")) == "proceed"


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
def test_what_became_of_the_other_decides_whether_it_is_open(
    lane: Lane, steps: list[str], expected: str
) -> None:
    lane.plan("e")
    for step in steps:
        verb, _, reason = step.partition(" ")
        getattr(lane, verb)("e", *([reason] if reason else []))
    assert word(lane.plan("f")) == expected


def test_superseding_the_other_releases_what_was_ambiguous(lane: Lane) -> None:
    lane.plan("e")
    assert word(lane.plan("f")) == "ambiguous"
    lane.supersede("e")
    assert word(lane.plan("f")) == "proceed"
    assert Entry.objects.get(kind="effect.granted").effect == lane.row("f").id
    assert word(lane.dispatch("f")) == "ambiguous"  # dispatched: until it is answered nobody knows


def test_names_given_to_one_intent_while_nobody_knew_how_it_stood_do_not_wait_for_each_other(
    lane: Lane,
) -> None:
    """Killed again and again under new names: what may have happened is named first, then the
    oldest goes on."""
    lane.plan("e")
    lane.dispatch("e")
    for name in "abcdf":
        assert lane.plan(name).open_effect == lane.row("e").id
    lane.acknowledge("e")
    for name in "fdcbg":
        answered = lane.plan(name)
        assert (word(answered), answered.open_effect) == ("ambiguous", lane.row("a").id)
    assert word(lane.plan("a")) == "proceed"
    assert lane.plan("b").open_effect == lane.row("a").id


def test_what_was_rejected_may_be_tried_again_whatever_was_planned_of_its_intent_meanwhile(
    lane: Lane,
) -> None:
    lane.plan("e")
    lane.dispatch("e")
    for name in "abc":
        lane.plan(name)
    lane.fail("e", "rejected")
    assert word(lane.plan("e")) == "proceed"
    assert lane.plan("a").open_effect == lane.row("e").id, (
        "what has permission comes before what waits"
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


def test_a_grant_is_repeated_to_the_very_same_asker_only(lane: Lane) -> None:
    lane.plan("e")
    first = lane.dispatch("e", key="d", epoch=4).attempt
    assert lane.dispatch("e", key="d", epoch=4).attempt == first
    for other in ({"process": "p-2"}, {"epoch": 5}, {"epoch": None}, {"key": "another"}):
        refused = lane.dispatch("e", **{"key": "d", "epoch": 4, **other})  # type: ignore[arg-type]  # mixed columns
        assert (refused.status, word(refused)) == (409, "ALREADY_DISPATCHED"), other
    assert Attempt.objects.count() == 1
    assert Entry.objects.filter(kind="effect.dispatched").count() == 1


@pytest.mark.parametrize("answer", ["acknowledge", "fail timeout"])
def test_no_grant_is_repeated_once_the_attempt_was_answered(lane: Lane, answer: str) -> None:
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
    assert word(lane.dispatch("e", key="d")) == "ALREADY_DISPATCHED"
    assert lane.dispatch("e", key="d2").status == 200


def test_other_arguments_than_planned_leave_a_trace_and_the_key_free(lane: Lane) -> None:
    lane.plan("e")
    refused = lane.dispatch("e", key="d", intent="push --force main")
    assert (refused.status, word(refused)) == (409, "INTENT_MISMATCH")
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
    lane.holds("e", permission=permission, permission_basis="policy")
    refused = lane.dispatch("e")
    assert (refused.status, word(refused)) == (409, code)
    assert (lane.row("e").state, Attempt.objects.count()) == ("planned", 0)
    if permission == "denied":
        return  # and stays so
    lane.holds("e", permission="none")  # only a gate leads from pending to granted
    lane.holds("e", permission="granted")
    assert lane.dispatch("e").status == 200


def test_another_projects_effect_is_not_there(lane: Lane, stranger: Agent) -> None:
    lane.plan("e")
    elsewhere = Lane(stranger)
    elsewhere.session = lane.session
    for verb in (elsewhere.dispatch, elsewhere.acknowledge, elsewhere.supersede):
        with pytest.raises(LookupError):
            verb("e")


# --- acknowledge and fail ---------------------------------------------------------------------------------------------


def test_an_acknowledgement_closes_the_attempt_with_its_outcome(lane: Lane) -> None:
    lane.plan("e")
    lane.dispatch("e")
    answered = lane.acknowledge("e", outcome="error", reference="9f2")
    assert (answered.status, word(answered)) == (200, "done")
    row = lane.row("e")
    assert (row.state, row.outcome, row.external_reference) == ("acknowledged", "error", "9f2")
    assert not Attempt.objects.get().is_open


def test_an_acknowledgement_of_unknown_outcome_leaves_it_ambiguous(lane: Lane) -> None:
    lane.plan("e")
    lane.dispatch("e")
    assert word(lane.acknowledge("e", outcome="unknown")) == "ambiguous"


def test_what_was_never_dispatched_cannot_be_answered(lane: Lane) -> None:
    lane.plan("e")
    for refused in (
        lane.acknowledge("e"),
        lane.fail("e", "error"),
        lane.acknowledge("e", attempt=7),
    ):
        assert (refused.status, word(refused)) == (409, "NOT_DISPATCHED")
    assert not Attempt.objects.exists()


def test_a_late_answer_is_kept_as_evidence_and_changes_no_commands_outcome(lane: Lane) -> None:
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
    assert word(lane.fail("e", "timeout")) == "ambiguous"
    assert lane.row("e").outcome == "unknown"
    late = lane.acknowledge("e", reference="9f2")
    assert (late.status, word(late)) == (202, "done")


def test_after_a_clean_rejection_a_plan_grants_a_second_attempt_under_a_new_remote_key(
    lane: Lane,
) -> None:
    lane.plan("e")
    first = lane.dispatch("e").attempt
    assert word(lane.fail("e", "rejected")) == "blocked"
    assert word(lane.dispatch("e")) == "NO_PERMISSION", "permission is for one attempt"
    assert word(lane.plan("e")) == "proceed"
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
    assert word(lane.plan("e")) == "ambiguous"
    assert lane.dispatch("e").status == 409
    assert Attempt.objects.count() == 1


def test_a_rejected_effect_planned_again_reports_another_open_one(lane: Lane) -> None:
    lane.plan("e")
    lane.dispatch("e")
    lane.fail("e", "rejected")
    other = lane.plan("f")
    assert word(other) == "proceed"
    again = lane.plan("e")
    assert (word(again), again.open_effect) == ("ambiguous", other.effect.id)
    assert word(lane.dispatch("e")) == "NO_PERMISSION"


def test_permission_requested_again_is_not_spent_by_a_late_report_on_a_rejection(
    lane: Lane,
) -> None:
    lane.plan("e")
    lane.dispatch("e")
    lane.fail("e", "rejected")
    lane.plan("e")
    assert lane.hears("e", "effect.failed", id="1", reason="rejected").permission == "granted"
    assert lane.hears("e", "effect.dispatched", id="2").permission == "granted"
    assert lane.dispatch("e").status == 200


def test_a_late_acknowledgement_of_the_rejected_attempt_closes_the_effect(lane: Lane) -> None:
    lane.plan("e")
    lane.dispatch("e")
    lane.fail("e", "rejected")
    lane.plan("e")
    row = lane.hears("e", "effect.acknowledged", outcome="ok")
    assert (row.state, row.permission) == ("acknowledged", "used")
    assert word(lane.dispatch("e")) == "ALREADY_DISPATCHED"
