"""Kinds that only Gatebook records: an agent's report of one is a claim, not a finding."""

import json
from typing import Any

import pytest

from db.clock import now_us
from investigation.fulltext import indexer, store
from investigation.query import execute, result_columns
from investigation.query.column_types import Reader
from investigation.saved_queries import builtin_questions
from journal.models import Entry
from ledger.models import Effect
from sessions.models import Session
from tests.api.api_client import Caller, new_key
from tests.pages.people import Organization

pytestmark = pytest.mark.django_db
CLAIMED = (
    "gate.ruled",
    "gate.voted",
    "admin.member_added",
    "integrity.conflict",
    "integrity.fenced",
    "integrity.gap",
    "integrity.violation",
    "exemption.used",
    "erasure.executed",
    "control.fired",
    "session.stuck",
)


def rows(organization: Organization, text: str) -> list[dict[str, Any]]:
    compiled = execute.compile_query(text, organization.project, now_us())
    answer, reader = (
        execute.load_results(compiled, result_columns.prepare_rows(compiled.entity.name), size=200),
        Reader(organization.project, now_us()),
    )
    return [result_columns.row_to_json(compiled.entity.name, row, reader) for row in answer.rows]


@pytest.fixture
def claims(agent: Caller) -> None:
    """An agent that reports an entry of every such kind, of its session and of an effect in it."""
    agent.session("s-1")
    agent.plan("k-1")
    facts = {"violation": "executed_without_permission", "ruling": "approved"}
    items = [
        {"id": new_key(), "kind": kind, "session": "s-1", **about, **facts}
        for kind in CLAIMED
        for about in ({}, {"effect_key": "k-1"})
    ]
    answer = agent.report(items)
    assert answer.status_code == 200, answer.text
    assert {result["status"] for result in answer.json()["results"]} == {"created"}
    assert Entry.objects.filter(kind__in=CLAIMED, lane="evidence").count() == len(items)
    assert Entry.objects.filter(kind__in=CLAIMED, effect=Effect.objects.get().id).count() == len(
        CLAIMED
    )


FINDINGS = (
    builtin_questions.fill_question(builtin_questions.QUESTIONS_BY_NUMBER[11], {}),
    builtin_questions.fill_question(builtin_questions.QUESTIONS_BY_NUMBER[12], {}),
    "event is:fenced",
    "event is:violating",
    "event violation:executed_without_permission",
    "effect is:fenced",
    "effect is:violating",
    "session is:fenced",
    "session is:violating",
    "session is:looped",
    "exemption has:used",
    "effect any(event: is:violating)",
    "effect seq(gate.ruled -> control.fired)",
    "session seq(integrity.conflict -> integrity.fenced)",
    "session seq(session.stuck -> !effect.planned)",
)


@pytest.mark.usefixtures("claims")
@pytest.mark.parametrize("question", FINDINGS)
def test_a_claim_is_no_finding(organization: Organization, question: str) -> None:
    assert rows(organization, question) == []


@pytest.mark.usefixtures("claims")
@pytest.mark.parametrize("kind", CLAIMED)
def test_a_claim_stays_findable_as_reported(organization: Organization, kind: str) -> None:
    for text in (f"event kind:{kind} lane:evidence", f"event kind:{kind} is:reported"):
        entries = rows(organization, text)
        assert [(entry["kind"], entry["lane"]) for entry in entries] == [(kind, "evidence")] * 2


def test_findings_of_gatebook_are_found_alongside_claims_of_agents(
    organization: Organization, agent: Caller, claims: None
) -> None:
    again = {
        "id": "twice",
        "kind": "effect.dispatched",
        "session": "s-1",
        "effect_key": "k-2",
        "attempt": 1,
    }
    for attempt in (1, 2):  # one id for two contents
        agent.report([{**again, "attempt": attempt}])
    (conflict,) = rows(
        organization, builtin_questions.fill_question(builtin_questions.QUESTIONS_BY_NUMBER[11], {})
    )
    assert (conflict["kind"], conflict["lane"]) == ("integrity.conflict", "system")
    assert {row["lane"] for row in rows(organization, "event kind:integrity.conflict")} == {
        "system",
        "evidence",
    }
    entry = Entry.objects.get(kind="integrity.conflict", lane="system")
    assert json.loads(entry.facts)
    assert (
        rows(
            organization,
            builtin_questions.fill_question(builtin_questions.QUESTIONS_BY_NUMBER[12], {}),
        )
        == []
    )
    assert Session.objects.count() == 1


def test_a_claimed_erasure_makes_the_index_rewrite_nothing(
    agent: Caller, claims: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewritten = []
    monkeypatch.setattr(store, "purge_erased_words", lambda: rewritten.append(True))
    indexer.update_index()
    assert rewritten == []
