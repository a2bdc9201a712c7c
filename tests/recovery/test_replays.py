"""Replays: an attempt in doubt is replaced only as the verdict table allows, once, and with the
permission that the row needs."""

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
from tests.recovery.remote import age, declare, dispatch_effect, probe, replay, row, verdict

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
    effect = dispatch_effect(worker, "pay.keyed")
    current = verdict(worker, effect)
    assert (current["verdict"], current["row"], current["reason"]) == ("replay", "17", "KEY_LIVE")
    assert (current["needs_permission"], current["attempt"]) == (False, 1)
    answer = replay(worker, effect)
    assert answer.status_code == 200, answer.text
    assert (answer.json()["attempt"], answer.json()["remote_key"]) == (2, current["remote_key"])
    first, second = attempts(effect)
    assert (first.is_open, first.replaced, second.is_open) == (False, True, True)
    assert (second.replaces, second.verdict_row, second.remote_key) == (1, "17", first.remote_key)
    assert worker.acknowledge(effect, 2)["answer"] == "done"
    assert stored(effect).violates is False


def test_a_replay_records_its_verdict_inputs_and_the_table_version(
    worker: Caller,
) -> None:
    effect = dispatch_effect(worker, "pay.keyed")
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


def test_the_grant_of_a_replay_is_repeated_only_to_the_same_request(worker: Caller) -> None:
    effect = dispatch_effect(worker, "pay.keyed")
    body = {"process": "p-2", "intent_digest": effect["intent_digest"], "replays": 1}
    path = f"/effects/{effect['id']}/dispatch"
    assert worker.post(path, body, key="again").json()["attempt"] == 2
    assert worker.post(path, body, key="again").json()["attempt"] == 2
    refused = worker.post(path, body)
    assert code(refused) == (409, "ALREADY_DISPATCHED")
    assert refused.json()["verdict"]["attempt"] == 2
    assert len(attempts(effect)) == 2


@pytest.mark.parametrize(("replays", "process"), [(None, "p-2"), (2, "p-2"), (9, "p-1")])
def test_a_dispatch_that_does_not_name_the_attempt_in_doubt_is_refused(
    worker: Caller, replays: int | None, process: str
) -> None:
    effect = dispatch_effect(worker, "pay.keyed")
    body = {"process": process, "intent_digest": effect["intent_digest"]} | (
        {"replays": replays} if replays else {}
    )
    refused = worker.post(f"/effects/{effect['id']}/dispatch", body)
    assert code(refused) == (409, "ALREADY_DISPATCHED")
    assert (refused.json()["verdict"]["row"], refused.json()["verdict"]["verdict"]) == (
        "17",
        "replay",
    )
    assert [attempt.is_open for attempt in attempts(effect)] == [True]


def test_an_undecidable_effect_is_never_replayed_under_any_claimed_class(
    worker: Caller,
) -> None:
    effect = dispatch_effect(worker, "mail.send", tool_class="read_only")
    assert row(worker, effect) == ("escalate", "26", "UNDECIDABLE")
    refused = replay(worker, effect)
    assert code(refused) == (409, "ALREADY_DISPATCHED")
    assert refused.json()["verdict"]["reason"] == "UNDECIDABLE"
    assert refused.json()["verdict"]["safe"] is False
    undeclared = dispatch_effect(worker, "who.knows", "e-2")
    assert row(worker, undeclared)[2] == "UNDECIDABLE"


def test_other_arguments_are_a_mismatch_and_never_run(worker: Caller) -> None:
    effect = dispatch_effect(worker, "pay.keyed")
    refused = worker.post(
        f"/effects/{effect['id']}/dispatch",
        {"process": "p-2", "arguments": {"ref": "other"}, "replays": 1},
    )
    assert code(refused) == (409, "INTENT_MISMATCH")
    assert refused.json()["verdict"]["row"] == "6"
    assert len(attempts(effect)) == 1


def test_the_window_of_a_key_counts_from_its_first_dispatch(
    worker: Caller,
) -> None:
    effect = dispatch_effect(worker, "pay.keyed")
    assert replay(worker, effect, 1).status_code == 200
    Attempt.objects.filter(effect=effect["id"], number=1).update(
        received_us=now_us() - 86_400_000_000
    )
    assert row(worker, effect) == ("escalate", "18", "KEY_EXPIRED")


def test_a_reported_dispatch_without_a_time_starts_no_key_window(worker: Caller) -> None:
    """Only the producer knows when a key was first used; the time of the report does not count."""
    fields = {"session": "s-1", "effect_key": "e-1", "tool": "pay.keyed", "arguments": {}}
    worker.report(
        [
            {"id": "p", "kind": "effect.planned", **fields},
            {"id": "d", "kind": "effect.dispatched", "session": "s-1", "effect_key": "e-1"},
        ]
    )
    effect = {"id": str(Effect.objects.get().id)}
    assert row(worker, effect)[1] == "18"


def test_a_rejection_after_an_attempt_in_doubt_is_not_clean(
    worker: Caller,
) -> None:
    effect = dispatch_effect(worker, "pay.keyed")
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


def test_a_rejection_after_an_attempt_that_a_probe_disproved_is_clean(
    worker: Caller,
) -> None:
    effect = dispatch_effect(worker, "git.push.slow")
    age(effect, 700)
    probe(worker, effect, "miss")
    assert replay(worker, effect).json()["remote_key"] == attempts(effect)[0].remote_key
    worker.fail(effect, "rejected", 2)
    assert row(worker, effect) == ("replay", "9", "REJECTED_CLEAN")


def test_a_clean_rejection_is_planned_again_and_runs_under_a_new_remote_key(worker: Caller) -> None:
    effect = dispatch_effect(worker, "git.push")
    worker.fail(effect, "rejected")
    current = verdict(worker, effect)
    assert (current["verdict"], current["row"], current["needs_permission"]) == (
        "replay",
        "9",
        True,
    )
    assert code(replay(worker, effect)) == (409, "NO_PERMISSION")
    assert worker.plan("e-1", tool="git.push")["answer"] == "proceed"
    assert row(worker, effect)[:2] == ("execute", "2")
    answer = worker.dispatch(effect, "p-2")
    assert (answer["attempt"], answer["remote_key"]) == (2, current["remote_key"])
    assert attempts(effect)[1].replaces is None


def test_no_permission_is_given_beyond_the_maximum_of_attempts(worker: Caller) -> None:
    effect = dispatch_effect(worker, "vm.start")  # max_attempts: 2
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
def test_an_attempt_with_an_unknown_outcome_is_replaced_like_an_open_one(
    worker: Caller, end: str
) -> None:
    effect = dispatch_effect(worker, "pay.keyed")
    if end == "unknown":
        worker.acknowledge(effect, outcome="unknown")
    else:
        worker.fail(effect, end)
    assert row(worker, effect)[:2] == ("replay", "17")
    assert replay(worker, effect).json()["state"] == "dispatched"
    assert worker.acknowledge(effect, 2)["outcome"] == "ok"
    assert stored(effect).violates is False


def test_a_put_is_replayed_only_if_it_is_the_latest_on_its_resource(worker: Caller) -> None:
    target = {"resource": "settings.json"}
    first = dispatch_effect(worker, "file.put", target=target)
    other = worker.plan("e-2", tool="file.put", arguments={"n": 2}, target=target)
    assert row(worker, first) == (
        "replay",
        "15",
        "PUT_LATEST",
    )  # the other effect is only planned
    dispatch_effect(worker, "file.put", "e-3", arguments={"n": 3}, target={"resource": "another"})
    assert row(worker, first)[1] == "15"
    worker.dispatch(other)
    assert row(worker, first) == ("escalate", "16", "STALE_PUT")
    assert row(worker, other)[1] == "15"
    assert code(replay(worker, first))[0] == 409
    worker.fail(other, "rejected")  # the other effect did not happen
    assert row(worker, first)[1] == "15"


def test_a_put_without_a_resource_is_stale_after_any_later_put_of_its_tool(
    worker: Caller,
) -> None:
    first = dispatch_effect(worker, "file.put")
    assert row(worker, first)[1] == "15"
    dispatch_effect(worker, "file.put", "e-2", arguments={"n": 2})
    assert row(worker, first)[1] == "16"


def test_a_conditional_put_is_replayed_and_probed_after_a_rejection(
    worker: Caller,
) -> None:
    effect = dispatch_effect(
        worker, "file.put.seen", preconditions={"etag": "a"}, target={"resource": "x"}
    )
    assert row(worker, effect) == ("replay", "14", "CONDITIONAL_PUT")
    assert replay(worker, effect, preconditions={"etag": "a"}).status_code == 200
    worker.fail(effect, "rejected", 2)
    assert row(worker, effect) == ("probe", "16", "STALE_PUT")


def test_a_stop_blocks_every_replay_and_the_verdict_names_it(
    worker: Caller, django_user_model: Any
) -> None:
    effect = dispatch_effect(worker, "pay.keyed")
    project = Project.objects.get(name="default")
    user = django_user_model.objects.create(username="olga")
    with transaction.atomic():
        stops.set_stop(project, "tool", "pay.keyed", "check it first", user)
    refused = replay(worker, effect)
    assert code(refused) == (409, "STOPPED")
    assert (refused.json()["verdict"]["row"], refused.json()["verdict"]["verdict"]) == ("0", "wait")
    assert len(attempts(effect)) == 1


def test_of_many_processes_that_replace_one_attempt_one_succeeds(
    application_outside: Callable[[str], Caller],
) -> None:
    worker = application_outside("races")
    declare(Project.objects.get(name="races"))
    worker.session()
    app = worker.client._transport.app  # type: ignore[attr-defined]
    for round_ in range(3):
        effect = dispatch_effect(worker, "pay.keyed", f"e-{round_}", arguments={"round": round_})
        clients = [Caller(worker.token, app=app) for _ in range(8)]
        answers = together(
            *(partial(replay, client, effect, 1, f"p-{n}") for n, client in enumerate(clients))
        )
        assert Counter(answer.status_code for answer in answers) == {200: 1, 409: 7}
        assert {code(answer)[1] for answer in answers if answer.status_code == 409} == {
            "ALREADY_DISPATCHED"
        }
        assert [(attempt.is_open, attempt.replaced) for attempt in attempts(effect)] == [
            (False, True),
            (True, False),
        ]
    assert Entry.objects.filter(kind="effect.dispatched").count() == 6


def test_the_database_rejects_an_attempt_that_replaces_none_by_name(
    worker: Caller,
) -> None:
    effect = dispatch_effect(worker, "pay.keyed")
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


def test_verdicts_of_many_effects_cost_as_many_queries_as_of_few(
    worker: Caller,
    django_assert_num_queries: Any,
    django_assert_max_num_queries: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cache, "CACHE_S", 3600)  # a slow machine may need seconds between two
    for number, tool in enumerate(
        ("pay.keyed", "git.push", "file.put", "vm.start", "mail.send") * 3
    ):
        dispatch_effect(
            worker, tool, f"e-{number}", arguments={"n": number}, target={"resource": f"r-{number}"}
        )
    rows = list(Effect.objects.order_by("opened_position"))
    cache.clear_tool_cache()
    cache.load_tool(rows[0].project_id, "git.push")
    with django_assert_max_num_queries(7) as few:
        evaluate.evaluate_effects(rows[0].project_id, rows[:5], now_us())
    with django_assert_num_queries(len(few)):
        verdicts = evaluate.evaluate_effects(rows[0].project_id, rows, now_us())
    assert len(verdicts) == 15


def test_no_verdict_is_computed_for_an_effect_without_doubt(
    worker: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("a verdict was computed")

    monkeypatch.setattr(evaluate, "evaluate_effects", never)
    effect = dispatch_effect(worker, "pay.keyed")
    assert worker.acknowledge(effect)["answer"] == "done"
    other = dispatch_effect(worker, "pay.keyed", "e-2", arguments={"n": 2})
    assert worker.fail(other, "timeout")["answer"] == "ambiguous"
    assert worker.plan("e-1", tool="pay.keyed")["answer"] == "done"


@pytest.mark.parametrize("tool", ["page.read", "pay.keyed", "git.push"])
def test_a_rejected_replay_does_not_settle_the_attempt_before_it(worker: Caller, tool: str) -> None:
    effect = dispatch_effect(worker, tool)
    if tool == "git.push":
        age(effect, 2)
        probe(worker, effect, "miss")
    assert replay(worker, effect).status_code == 200
    worker.fail(effect, "rejected", 2)
    again = worker.plan(tool=tool)
    if tool == "git.push":  # the probe settled the first attempt, and the second was rejected
        assert again["answer"] == "proceed"
        return
    assert (again["answer"], again["open_effect"]) == ("ambiguous", effect["id"])
    assert again["verdict"]["verdict"] == "replay"
    assert replay(worker, effect, again["verdict"]["attempt"]).json()["attempt"] == 3
    assert worker.acknowledge(effect, 3)["answer"] == "done"
