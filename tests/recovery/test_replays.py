"""An attempt in doubt is replaced only as the verdict table says, once, and under the permission that
the row asks for."""

import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from accounts.models import Project
from db.clock import now_us
from journal.models import Entry
from ledger import stops
from ledger.models import Attempt, Effect
from ledger.tools import cache
from ledger.verdicts import evaluate
from tests.api.api_client import Caller, code
from tests.journal.committed import committed, together
from tests.ledger.conftest import application_outside
from tests.recovery.remote import age, declare, dispatched, probe, replay, row, verdict

__all__ = ["application_outside", "committed"]


@pytest.fixture
def worker(agent: Caller) -> Caller:
    """An agent with an open session, in a project whose tools are declared."""
    declare(Project.objects.get(name="default"))
    agent.session()
    return agent


def attempts(effect: dict[str, Any]) -> list[Attempt]:
    return list(Attempt.objects.filter(effect=effect["id"]).order_by("number"))


def stored(effect: dict[str, Any]) -> Effect:
    return Effect.objects.get(id=effect["id"])


def test_an_effect_with_an_idempotency_key_is_replayed_under_the_same_remote_key(
    worker: Caller,
) -> None:
    effect = dispatched(worker, "pay.keyed")
    said = verdict(worker, effect)
    assert (said["verdict"], said["row"], said["reason"]) == ("replay", "17", "KEY_LIVE")
    assert (said["needs_permission"], said["attempt"]) == (False, 1)
    answer = replay(worker, effect)
    assert answer.status_code == 200, answer.text
    assert (answer.json()["attempt"], answer.json()["remote_key"]) == (2, said["remote_key"])
    first, second = attempts(effect)
    assert (first.is_open, first.replaced, second.is_open) == (False, True, True)
    assert (second.replaces, second.verdict_row, second.remote_key) == (1, "17", first.remote_key)
    assert worker.acknowledge(effect, 2)["answer"] == "done"
    assert stored(effect).violates is False


def test_what_was_acted_upon_is_kept_with_its_inputs_and_the_version_of_the_table(
    worker: Caller,
) -> None:
    effect = dispatched(worker, "pay.keyed")
    assert replay(worker, effect).status_code == 200
    facts = json.loads(
        Entry.objects.filter(kind="effect.dispatched").order_by("-position")[0].facts
    )
    assert (facts["row"], facts["reason"], facts["table"], facts["replaces"]) == (
        "17",
        "KEY_LIVE",
        2,
        1,
    )
    assert facts["inputs"]["means"] == {"tool_class": "idempotency_key", "key_window_s": 86400}
    assert facts["inputs"]["state"] == "dispatched"


def test_the_grant_of_a_replay_is_repeated_to_the_same_asker_alone(worker: Caller) -> None:
    effect = dispatched(worker, "pay.keyed")
    body = {"process": "p-2", "intent_digest": effect["intent_digest"], "replays": 1}
    path = f"/effects/{effect['id']}/dispatch"
    assert worker.post(path, body, key="again").json()["attempt"] == 2
    assert worker.post(path, body, key="again").json()["attempt"] == 2
    refused = worker.post(path, body)
    assert code(refused) == (409, "ALREADY_DISPATCHED")
    assert refused.json()["verdict"]["attempt"] == 2
    assert len(attempts(effect)) == 2


@pytest.mark.parametrize(("replays", "process"), [(None, "p-2"), (2, "p-2"), (9, "p-1")])
def test_whoever_does_not_name_the_attempt_in_doubt_must_not_act(
    worker: Caller, replays: int | None, process: str
) -> None:
    effect = dispatched(worker, "pay.keyed")
    body = {"process": process, "intent_digest": effect["intent_digest"]} | (
        {"replays": replays} if replays else {}
    )
    refused = worker.post(f"/effects/{effect['id']}/dispatch", body)
    assert code(refused) == (409, "ALREADY_DISPATCHED")
    assert (refused.json()["verdict"]["row"], refused.json()["verdict"]["verdict"]) == (
        "17",
        "replay",
    )
    assert [one.is_open for one in attempts(effect)] == [True]


def test_what_nobody_can_know_is_never_replayed_whatever_class_the_agent_claims(
    worker: Caller,
) -> None:
    effect = dispatched(worker, "mail.send", tool_class="read_only")
    assert row(worker, effect) == ("escalate", "26", "UNDECIDABLE")
    refused = replay(worker, effect)
    assert code(refused) == (409, "ALREADY_DISPATCHED")
    assert refused.json()["verdict"]["reason"] == "UNDECIDABLE"
    assert refused.json()["verdict"]["safe"] is False
    undeclared = dispatched(worker, "who.knows", "e-2")
    assert row(worker, undeclared)[2] == "UNDECIDABLE"


def test_other_arguments_are_a_mismatch_whose_verdict_never_runs_them(worker: Caller) -> None:
    effect = dispatched(worker, "pay.keyed")
    refused = worker.post(
        f"/effects/{effect['id']}/dispatch",
        {"process": "p-2", "arguments": {"ref": "other"}, "replays": 1},
    )
    assert code(refused) == (409, "INTENT_MISMATCH")
    assert refused.json()["verdict"]["row"] == "6"
    assert len(attempts(effect)) == 1


def test_the_window_of_a_key_counts_from_its_first_dispatch_and_not_from_its_last(
    worker: Caller,
) -> None:
    effect = dispatched(worker, "pay.keyed")
    assert replay(worker, effect, 1).status_code == 200
    Attempt.objects.filter(effect=effect["id"], number=1).update(
        received_us=now_us() - 86_400_000_000
    )
    assert row(worker, effect) == ("escalate", "18", "KEY_EXPIRED")


def test_a_reported_dispatch_is_no_older_than_its_producer_says(worker: Caller) -> None:
    """When a key was first used only its producer knows; that the report came now makes its window
    no longer."""
    said = {"session": "s-1", "effect_key": "e-1", "tool": "pay.keyed", "arguments": {}}
    worker.report(
        [
            {"id": "p", "kind": "effect.planned", **said},
            {"id": "d", "kind": "effect.dispatched", "session": "s-1", "effect_key": "e-1"},
        ]
    )
    effect = {"id": str(Effect.objects.get().id)}
    assert row(worker, effect)[1] == "18"


def test_an_earlier_attempt_in_doubt_makes_a_rejection_of_the_last_no_clean_one(
    worker: Caller,
) -> None:
    effect = dispatched(worker, "pay.keyed")
    assert replay(worker, effect).status_code == 200
    assert worker.fail(effect, "rejected", 2)["state"] == "failed"
    assert row(worker, effect) == ("replay", "17", "KEY_LIVE")
    assert code(worker.post(f"/effects/{effect['id']}/supersede")) == (409, "WRONG_STATE")
    refused = worker.post(
        f"/effects/{effect['id']}/dispatch",
        {"process": "p-1", "intent_digest": effect["intent_digest"]},
    )
    assert refused.status_code == 409
    assert worker.plan("e-1", tool="pay.keyed")["answer"] != "proceed"
    assert replay(worker, effect, 2).json()["remote_key"] == attempts(effect)[0].remote_key
    worker.fail(effect, "rejected", 3)
    assert row(worker, effect) == ("escalate", "9b", "ATTEMPTS_SPENT")


def test_what_a_probe_proved_absent_is_no_doubt_when_the_next_attempt_is_rejected(
    worker: Caller,
) -> None:
    effect = dispatched(worker, "git.push.slow")
    age(effect, 700)
    probe(worker, effect, "miss")
    assert replay(worker, effect).json()["remote_key"] == attempts(effect)[0].remote_key
    worker.fail(effect, "rejected", 2)
    assert row(worker, effect) == ("replay", "9", "REJECTED_CLEAN")


def test_a_clean_rejection_is_planned_again_and_runs_under_a_new_remote_key(worker: Caller) -> None:
    effect = dispatched(worker, "git.push")
    worker.fail(effect, "rejected")
    said = verdict(worker, effect)
    assert (said["verdict"], said["row"], said["needs_permission"]) == ("replay", "9", True)
    assert code(replay(worker, effect)) == (409, "NO_PERMISSION")
    assert worker.plan("e-1", tool="git.push")["answer"] == "proceed"
    assert row(worker, effect)[:2] == ("execute", "2")
    answer = worker.dispatch(effect, "p-2")
    assert (answer["attempt"], answer["remote_key"]) == (2, said["remote_key"])
    assert attempts(effect)[1].replaces is None


def test_no_attempt_more_than_the_operator_allows_is_given_permission(worker: Caller) -> None:
    effect = dispatched(worker, "vm.start")  # max_attempts: 2
    worker.fail(effect, "rejected")
    worker.plan("e-1", tool="vm.start")
    worker.dispatch(effect)
    worker.fail(effect, "rejected", 2)
    assert row(worker, effect) == ("skip", "9b", "ATTEMPTS_SPENT")
    assert worker.plan("e-1", tool="vm.start")["answer"] == "blocked"
    assert (
        code(
            worker.post(
                f"/effects/{effect['id']}/dispatch", {"process": "p", "arguments": {"ref": "main"}}
            )
        )[0]
        == 409
    )


@pytest.mark.parametrize("end", ["timeout", "error", "unknown"])
def test_an_unknown_end_is_as_good_as_none_and_is_replaced_as_such(
    worker: Caller, end: str
) -> None:
    effect = dispatched(worker, "pay.keyed")
    if end == "unknown":
        worker.acknowledge(effect, outcome="unknown")
    else:
        worker.fail(effect, end)
    assert row(worker, effect)[:2] == ("replay", "17")
    assert replay(worker, effect).json()["state"] == "dispatched"
    assert worker.acknowledge(effect, 2)["outcome"] == "ok"
    assert stored(effect).violates is False


def test_a_state_is_set_again_only_where_nothing_newer_touched_the_resource(worker: Caller) -> None:
    target = {"resource": "settings.json"}
    first = dispatched(worker, "file.put", target=target)
    other = worker.plan("e-2", tool="file.put", arguments={"n": 2}, target=target)
    assert row(worker, first) == (
        "replay",
        "15",
        "PUT_LATEST",
    )  # the other is planned, and touched nothing yet
    dispatched(worker, "file.put", "e-3", arguments={"n": 3}, target={"resource": "another"})
    assert row(worker, first)[1] == "15"
    worker.dispatch(other)
    assert row(worker, first) == ("escalate", "16", "STALE_PUT")
    assert row(worker, other)[1] == "15"
    assert code(replay(worker, first))[0] == 409
    worker.fail(other, "rejected")  # it touched nothing after all
    assert row(worker, first)[1] == "15"


def test_a_state_without_a_named_resource_gives_way_to_whatever_the_tool_did_since(
    worker: Caller,
) -> None:
    first = dispatched(worker, "file.put")
    assert row(worker, first)[1] == "15"
    dispatched(worker, "file.put", "e-2", arguments={"n": 2})
    assert row(worker, first)[1] == "16"


def test_a_conditional_state_is_set_again_and_a_failed_precondition_asks_for_a_probe(
    worker: Caller,
) -> None:
    effect = dispatched(
        worker, "file.put.seen", preconditions={"etag": "a"}, target={"resource": "x"}
    )
    assert row(worker, effect) == ("replay", "14", "CONDITIONAL_PUT")
    assert replay(worker, effect, preconditions={"etag": "a"}).status_code == 200
    worker.fail(effect, "rejected", 2)
    assert row(worker, effect) == ("probe", "16", "STALE_PUT")


def test_a_stop_blocks_every_replay_and_the_verdict_names_it(
    worker: Caller, django_user_model: Any
) -> None:
    effect = dispatched(worker, "pay.keyed")
    project = Project.objects.get(name="default")
    user = django_user_model.objects.create(username="olga")
    with transaction.atomic():
        stops.set_stop(project, "tool", "pay.keyed", "look at it first", user)
    refused = replay(worker, effect)
    assert code(refused) == (409, "STOPPED")
    assert (refused.json()["verdict"]["row"], refused.json()["verdict"]["verdict"]) == ("0", "wait")
    assert len(attempts(effect)) == 1


def test_of_many_processes_that_replace_one_attempt_one_does(
    application_outside: Callable[[str], Caller],
) -> None:
    worker = application_outside("races")
    declare(Project.objects.get(name="races"))
    worker.session()
    app = worker.client._transport.app  # type: ignore[attr-defined]
    for round_ in range(3):
        effect = dispatched(worker, "pay.keyed", f"e-{round_}", arguments={"round": round_})
        clients = [Caller(worker.token, app=app) for _ in range(8)]
        answers = together(
            *(partial(replay, one, effect, 1, f"p-{n}") for n, one in enumerate(clients))
        )
        assert Counter(answer.status_code for answer in answers) == {200: 1, 409: 7}
        assert {code(answer)[1] for answer in answers if answer.status_code == 409} == {
            "ALREADY_DISPATCHED"
        }
        assert [(one.is_open, one.replaced) for one in attempts(effect)] == [
            (False, True),
            (True, False),
        ]
    assert Entry.objects.filter(kind="effect.dispatched").count() == 6


def test_no_statement_past_the_code_opens_an_attempt_after_one_in_doubt_without_naming_it(
    worker: Caller,
) -> None:
    effect = dispatched(worker, "pay.keyed")
    Attempt.objects.filter(effect=effect["id"]).update(is_open=False, replaced=True)
    columns = {
        "project_id": stored(effect).project_id,
        "effect_id": effect["id"],
        "number": 2,
        "remote_key": "another",
        "lane": "command",
        "permission": "used",
        "dispatched_mark": "m",
    }
    with (
        pytest.raises(IntegrityError, match="attempt_names_what_it_replaces"),
        transaction.atomic(),
    ):
        Attempt.objects.create(**columns)
    with (
        pytest.raises(IntegrityError, match="attempt_replaces_by_a_row_of_the_table"),
        transaction.atomic(),
    ):
        Attempt.objects.create(**columns, replaces=1, verdict_row="26")
    Attempt.objects.create(**columns, replaces=1, verdict_row="17")


def test_a_verdict_costs_as_many_queries_for_many_effects_as_for_few(
    worker: Caller, django_assert_num_queries: Any, django_assert_max_num_queries: Any
) -> None:
    for number, tool in enumerate(
        ("pay.keyed", "git.push", "file.put", "vm.start", "mail.send") * 3
    ):
        dispatched(
            worker, tool, f"e-{number}", arguments={"n": number}, target={"resource": f"r-{number}"}
        )
    rows = list(Effect.objects.order_by("opened_position"))
    cache.clear_tool_cache()
    cache.load_tool(
        rows[0].project_id, "git.push"
    )  # read once for some seconds, however much is asked
    with django_assert_max_num_queries(7) as few:
        evaluate.evaluate_effects(rows[0].project_id, rows[:5], now_us())
    with django_assert_num_queries(len(few)):
        found = evaluate.evaluate_effects(rows[0].project_id, rows, now_us())
    assert len(found) == 15


def test_no_verdict_is_computed_on_the_ordinary_way_of_an_effect(
    worker: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("a verdict was computed")

    monkeypatch.setattr(evaluate, "evaluate_effects", never)
    effect = dispatched(worker, "pay.keyed")
    assert worker.acknowledge(effect)["answer"] == "done"
    other = dispatched(worker, "pay.keyed", "e-2", arguments={"n": 2})
    assert worker.fail(other, "timeout")["answer"] == "ambiguous"
    assert worker.plan("e-1", tool="pay.keyed")["answer"] == "done"


@pytest.mark.parametrize("tool", ["page.read", "pay.keyed", "git.push"])
def test_a_rejected_replay_is_no_answer_for_the_attempt_before_it(
    worker: Caller, tool: str
) -> None:
    effect = dispatched(worker, tool)
    if tool == "git.push":
        age(effect, 2)
        probe(worker, effect, "miss")
    assert replay(worker, effect).status_code == 200
    worker.fail(effect, "rejected", 2)
    again = worker.plan(tool=tool)
    if tool == "git.push":  # the look has settled the first, and the second is as good as not begun
        assert again["answer"] == "proceed"
        return
    assert (again["answer"], again["open_effect"]) == ("ambiguous", effect["id"])
    assert again["verdict"]["verdict"] == "replay"
    assert replay(worker, effect, again["verdict"]["attempt"]).json()["attempt"] == 3
    assert worker.acknowledge(effect, 3)["answer"] == "done"
