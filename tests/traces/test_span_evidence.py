"""Tool calls in spans become evidence: effects that only reports know, or entries next to effects."""

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone

from approvals.models import Gate
from journal.models import Body, Entry
from ledger.models import Attempt, Effect
from pages.effects import data
from sessions.models import Session
from tests.api.api_client import Caller
from tests.traces.conftest import PROTOBUF, Exporter, count_spans, read_partial
from tests.traces.otlp_requests import START_US, TRACE, to_json, to_protobuf, tool_span


def rows() -> list[Any]:
    """Return what spans may change, without the clocks and positions of the delivery."""
    effects = Effect.objects.order_by("id").values_list(
        "effect_key", "session__key", "tool", "call_id", "turn", "state", "outcome", "permission",
        "permission_basis", "dispatched_at_us", "settled_at_us", "intent_digest", "violates",
    )  # fmt: skip
    sessions = Session.objects.order_by("key").values_list(
        "key", "mode", "labels", "parent__key", "repository__name", "branch", "effect_count"
    )
    return [*effects, *sessions]


def test_a_tool_span_is_an_effect_that_only_reports_know(exporter: Exporter) -> None:
    assert exporter.export(tool_span(1)) == {
        "recorded": 1,
        "repeated": 0,
        "ignored": 0,
        "rejected": 0,
    }
    effect = Effect.objects.get()
    assert (effect.tool, effect.call_id, effect.turn) == ("git.push", "call_1", "00f067aa0ba902b7")
    assert (effect.lane, effect.state, effect.outcome) == ("evidence", "acknowledged", "ok")
    assert (effect.permission, effect.violates) == ("observed", False)
    assert effect.planned_at_us is None  # a span does not tell when the call was intended
    assert effect.dispatched_at_us == START_US + 1_000
    assert effect.settled_at_us == START_US + 1_500
    assert set(Entry.objects.filter(effect=effect.id).values_list("lane", flat=True)) == {
        "evidence"
    }
    assert not Gate.objects.exists()
    session = effect.session
    assert (session.key, session.mode) == ("conv-1", "reported")
    assert session.labels == {"service.name": "checkout-agent", "service.version": "1.4"}


def test_the_entry_keeps_everything_of_the_span(exporter: Exporter) -> None:
    exporter.export(tool_span(1, attributes={"custom.note": ["a", {"b": 1}]}))
    entry = Entry.objects.get(kind="effect.acknowledged")
    body = json.loads(Body.objects.get(entry=entry).text)
    assert body["result"] == "pushed"
    span = body["span"]
    assert (span["trace_id"], span["span_id"]) == (TRACE, f"{1:016x}")
    assert span["attributes"]["custom.note"] == ["a", {"b": 1}]
    assert span["resource"]["service.name"] == "checkout-agent"
    assert (span["scope"], span["name"]) == ("tests", "execute_tool git.push")
    planned = json.loads(Body.objects.get(entry__kind="effect.planned").text)
    assert planned["arguments"] == {"ref": "main", "n": 1}


def test_spans_of_anything_else_are_counted_and_not_stored(exporter: Exporter) -> None:
    chat = tool_span(2, attributes={"gen_ai.operation.name": "chat", "gen_ai.tool.name": None})
    http = tool_span(3) | {"attributes": {"http.request.method": "GET"}}
    counts = exporter.export(chat, http)
    assert (counts["ignored"], counts["recorded"]) == (2, 0)
    assert not Effect.objects.exists()
    assert not Session.objects.exists()
    ours = Entry.objects.exclude(kind__startswith="admin.")
    assert list(ours.values_list("kind", flat=True)) == ["trace.named"]


@pytest.mark.parametrize(
    ("changed", "state", "outcome"),
    [
        ({}, "acknowledged", "ok"),
        ({"status": 1}, "acknowledged", "ok"),
        ({"status": 2, "message": "remote hung up"}, "failed", "unknown"),
        ({"attributes": {"error.type": "timeout"}}, "failed", "unknown"),
        # Content is not captured: the status decides.
        (
            {"attributes": {"gen_ai.tool.call.arguments": None, "gen_ai.tool.call.result": None}},
            "acknowledged",
            "ok",
        ),
        # Arguments without a result: interrupted for approval, or it returned nothing.
        ({"status": 1, "attributes": {"gen_ai.tool.call.result": None}}, "acknowledged", "unknown"),
    ],
)
def test_the_outcome_is_what_the_span_shows(
    exporter: Exporter, changed: dict[str, Any], state: str, outcome: str
) -> None:
    exporter.export(tool_span(1, **changed))
    effect = Effect.objects.get()
    assert (effect.state, effect.outcome) == (state, outcome)


def test_repeated_and_reordered_spans_give_the_same_rows(
    make_exporter: Callable[..., Exporter],
) -> None:
    spans = [
        tool_span(1),
        tool_span(2, attributes={"gen_ai.conversation.id": None}),
        tool_span(
            9, attributes={"gen_ai.operation.name": "invoke_agent", "gen_ai.tool.name": None}
        ),
    ]
    results = []
    for number, order in enumerate(itertools.permutations(spans)):
        exporter = make_exporter(project=f"order-{number}")
        for span in order:
            exporter.export(span)
        for span in spans:
            counts = exporter.export_json(span)
            assert counts["recorded"] == 0
        project = Effect.objects.order_by("-opened_position").values_list("project", flat=True)[0]
        effects = Effect.objects.filter(project=project).order_by("effect_key")
        sessions = Session.objects.filter(project=project).order_by("key")
        results.append(
            (
                list(effects.values_list("effect_key", "session__key", "state", "outcome")),
                list(sessions.values_list("key", "labels", "parent__key", "effect_count")),
            )
        )
    assert all(result == results[0] for result in results)
    effect_rows, session_rows = results[0]
    assert [row[1] for row in effect_rows] == ["conv-1", f"otlp:{TRACE}"]
    assert session_rows[1][2] == "conv-1"  # the trace is a child of its conversation


def test_a_batch_sent_twice_is_recorded_once(exporter: Exporter) -> None:
    spans = [tool_span(number) for number in range(1, 600)]
    assert exporter.export(*spans)["recorded"] == 599
    before, entries = rows(), Entry.objects.count()
    counts = exporter.export(*reversed(spans))
    assert (counts["recorded"], counts["repeated"]) == (0, 599)
    assert (rows(), Entry.objects.count()) == (before, entries)


def test_a_span_id_with_other_content_is_a_contradiction(exporter: Exporter) -> None:
    exporter.export(tool_span(1))
    before = rows()
    other = tool_span(1, attributes={"gen_ai.tool.call.result": "nothing to push"})
    for media_type, body in (
        (PROTOBUF, to_protobuf([other])),
        ("application/json", to_json([other])),
    ):
        answer = exporter.send(body, media_type)
        rejected, message = read_partial(answer)
        assert (rejected, count_spans(answer)["rejected"]) == (1, 1)
        assert "other content" in message
    assert rows() == before
    conflict = Entry.objects.get(kind="integrity.conflict")
    assert "nothing to push" in Body.objects.get(entry=conflict).text
    assert conflict.effect == Effect.objects.get().id


def test_a_span_meets_the_effect_that_its_agent_recorded(agent: Caller, exporter: Exporter) -> None:
    agent.session("conv-1")
    effect = agent.plan("push-1", "conv-1", call_id="call_1")
    before = Effect.objects.values().get()
    for answer in (exporter.export(tool_span(1)), exporter.export_json(tool_span(1))):
        assert answer["rejected"] == 0
    assert (
        Effect.objects.values().get() == before
    )  # it waits, denied or not: a span decides nothing
    entry = Entry.objects.get(kind="span.recorded")
    assert str(entry.effect) == effect["id"]
    body = json.loads(Body.objects.get(entry=entry).text)
    assert (body["result"], body["outcome"]) == ("pushed", "ok")
    assert not Attempt.objects.exists()
    (shown,) = [
        row for row in data.load_entry_page(Effect.objects.get()).rows if row.entry == entry
    ]
    assert shown.is_known_kind


def test_a_span_does_not_settle_an_attempt_of_unknown_outcome(
    agent: Caller, exporter: Exporter
) -> None:
    agent.session("conv-1")
    agent.dispatch(agent.plan("push-1", "conv-1", call_id="call_1"))
    exporter.export(tool_span(1))
    effect = Effect.objects.get()
    assert (effect.state, effect.outcome) == ("dispatched", "")
    assert Entry.objects.filter(effect=effect.id, kind="span.recorded").count() == 1


def now_span(number: int, **fields: Any) -> dict[str, Any]:
    """Return a span of the last minutes, in which a slow machine dispatched its effects."""
    now = int(timezone.now().timestamp() * 1_000_000)
    return tool_span(number, start_us=now - 300_000_000, end_us=now + 1_000_000, **fields)


WITHOUT_CALL_ID = {
    "gen_ai.tool.call.id": None,
    "gen_ai.tool.call.arguments": json.dumps({"ref": "main"}),
}


def test_a_span_without_a_call_id_meets_the_same_intent_within_its_time(
    agent: Caller, exporter: Exporter
) -> None:
    agent.session("conv-1")
    effect = agent.dispatch(agent.plan("push-1", "conv-1"))
    exporter.export(now_span(1, attributes=WITHOUT_CALL_ID))
    assert str(Entry.objects.get(kind="span.recorded").effect) == effect["id"]
    # An hour earlier, or in another session, it is another call.
    exporter.export(tool_span(2, attributes=WITHOUT_CALL_ID))
    exporter.export(now_span(3, attributes=WITHOUT_CALL_ID | {"gen_ai.conversation.id": "conv-2"}))
    assert Entry.objects.filter(kind="span.recorded").count() == 1
    assert Effect.objects.count() == 3


def test_two_effects_that_a_span_could_be_are_not_guessed(
    agent: Caller, exporter: Exporter
) -> None:
    agent.session("conv-1")
    for key in ("push-1", "push-2"):
        agent.acknowledge(agent.dispatch(agent.plan(key, "conv-1")))
    exporter.export(now_span(1, attributes=WITHOUT_CALL_ID))
    assert not Entry.objects.filter(kind="span.recorded").exists()
    assert Effect.objects.count() == 3


def test_a_span_of_a_trace_meets_an_effect_of_any_session_of_its_agent_by_call_id(
    agent: Caller, exporter: Exporter, make_exporter: Callable[..., Exporter]
) -> None:
    agent.session("run-7")
    agent.plan("push-1", "run-7", call_id="toolu_1")
    ids = {"gen_ai.conversation.id": None, "gen_ai.tool.call.id": "toolu_1"}
    make_exporter("another").export(now_span(1, attributes=ids))
    assert not Entry.objects.filter(kind="span.recorded").exists()
    exporter.export(now_span(2, attributes=ids))
    assert Entry.objects.get(kind="span.recorded").session == Session.objects.get(key="run-7").id


def test_a_span_meets_the_effect_of_a_subagent_in_a_child_session(
    agent: Caller, exporter: Exporter
) -> None:
    agent.session("conv-1")
    agent.session("conv-1/reviewer", parent="conv-1")
    agent.session("conv-2")
    agent.plan("push-2", "conv-2", call_id="call_2")
    effect = agent.plan("push-1", "conv-1/reviewer", call_id="call_1")
    exporter.export(tool_span(1), tool_span(2))
    assert str(Entry.objects.get(kind="span.recorded").effect) == effect["id"]


def test_a_recorded_span_stays_next_to_its_effect_whatever_comes_later(
    agent: Caller, exporter: Exporter
) -> None:
    exporter.export(tool_span(1))
    agent.plan("push-1", "conv-1", call_id="call_1")
    before = rows()
    assert exporter.export(tool_span(1))["repeated"] == 1
    assert rows() == before
    assert not Entry.objects.filter(kind="span.recorded").exists()


def test_spans_of_another_agent_in_a_session_are_claims(
    agent: Caller, make_exporter: Callable[..., Exporter]
) -> None:
    agent.session("conv-1")
    agent.plan("push-1", "conv-1", call_id="call_1")
    before = rows()
    make_exporter("collector").export(tool_span(1), tool_span(2))
    assert rows() == before
    lanes = Entry.objects.filter(event_id__startswith="otlp:").exclude(kind="trace.named")
    assert set(lanes.values_list("lane", flat=True)) == {"claim"}


def test_a_session_can_still_be_opened_by_command(agent: Caller, exporter: Exporter) -> None:
    exporter.export(tool_span(1))
    answer = agent.post("/sessions", {"key": "conv-1", "mode": "leased", "title": "Release 12"})
    assert answer.status_code in (200, 201), answer.text
    session = Session.objects.get(key="conv-1")
    assert (session.mode, session.title) == ("leased", "Release 12")


def test_a_repository_of_the_resource_is_that_of_session_and_effect(exporter: Exporter) -> None:
    resource = {
        "service.name": "coder",
        "vcs.repository.url.full": "https://git.example/acme/api",
        "vcs.ref.head.name": "agent/fix",
        "deployment.environment.name": "staging",
    }
    exporter.export(tool_span(1), resource=resource)
    effect = Effect.objects.select_related("repository", "session__repository").get()
    assert effect.repository is not None
    assert effect.session.repository == effect.repository
    assert "acme/api" in effect.repository.name
    assert (effect.session.branch, effect.environment) == ("agent/fix", "staging")


def test_secrets_in_spans_are_redacted(exporter: Exporter) -> None:
    secret = "ghp_" + "a1B2" * 9
    exporter.export(
        tool_span(
            1,
            attributes={
                "gen_ai.tool.call.arguments": json.dumps({"token": secret}),
                "gen_ai.tool.call.result": f"used {secret}",
                "note": secret,
                "gen_ai.conversation.id": f"run {secret}",
            },
        )
    )
    for text in Body.objects.values_list("text", flat=True):
        assert secret not in text
    assert secret not in Session.objects.get().key
    assert Effect.objects.get().redactions > 0


def test_control_characters_are_kept_in_text_and_refused_in_names(exporter: Exporter) -> None:
    result = exporter.send(
        to_protobuf(
            [
                tool_span(1, attributes={"gen_ai.tool.call.result": "a\x00b"}),
                tool_span(2, attributes={"gen_ai.tool.name": "git\x00push"}),
            ]
        )
    )
    rejected, message = read_partial(result)
    assert (rejected, count_spans(result)["recorded"]) == (1, 1)
    assert "control characters" in message
    body = json.loads(Body.objects.get(entry__kind="effect.acknowledged").text)
    assert body["result"] == "a\x00b"


def test_a_long_text_is_kept_as_its_digest_and_a_huge_span_is_rejected(exporter: Exporter) -> None:
    assert exporter.export(tool_span(1, attributes={"gen_ai.tool.call.result": "x" * 200_000}))
    body = json.loads(Body.objects.get(entry__kind="effect.acknowledged").text)
    assert body["result"]["omitted_bytes"] == 200_000
    huge = tool_span(2, attributes={f"a{number}": "x" * 16_000 for number in range(20)})
    rejected, message = read_partial(exporter.send(to_protobuf([huge])))
    assert rejected == 1
    assert "262144 bytes" in message
    assert Effect.objects.count() == 1
