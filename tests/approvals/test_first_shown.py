"""A vote is measured from the first view of its request, in any page, and the record says so."""

import json

import pytest
import time_machine
from django.urls import reverse

from approvals.gates.statuses import US
from approvals.models import Gate, Vote
from approvals.policies import statistics
from approvals.review import context
from db.clock import now_us
from journal.models import Entry
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.reviewer import Reviewer, url_of
from tests.approvals.test_inbox_facts import plainly

pytestmark = pytest.mark.django_db


@pytest.fixture
def waiting(inbox: InboxScenario) -> Gate:
    return inbox.gate(inbox.plan(arguments={"command": "git push origin main"}))


@pytest.mark.parametrize("view", ["pane", "page", "arguments", "batch"])
def test_a_vote_counts_from_the_first_view_in_any_page(
    inbox: InboxScenario, rita: Reviewer, view: str
) -> None:
    inbox.declare("note.write", "reversible")
    rules = (
        "name: notes\nrules:\n- {id: note, title: N, match: {}, outcome: require, "
        "require: {decide_within: 2h}}\n"
    )
    inbox.rules(rules)
    gate = inbox.gate(inbox.plan("note", tool="note.write", arguments={"n": 1}))
    began = now_us() // US
    with time_machine.travel(began, tick=False):
        if view == "pane":
            rita.page(reverse("inbox"), open=str(gate.id))
        elif view == "page":
            rita.page(url_of(gate))
        elif view == "arguments":
            rita.page(reverse("gate_arguments", args=[gate.id]))
        else:
            rita.client.post(reverse("batch"), {"gate": [str(gate.id)]})
            rita.page(reverse("batch_confirm"))
    with time_machine.travel(began + 420, tick=False):
        seen = rita.seen(gate)
    with time_machine.travel(began + 423, tick=False):
        assert rita.answer(gate, seen=seen).status_code == 302
    vote = Vote.objects.get()
    facts = json.loads(Entry.objects.get(position=vote.position).facts)
    assert (facts["first_shown_us"], facts["page_shown_us"]) == (began * US, (began + 420) * US)
    assert (vote.shown_at_us, vote.voted_at_us) == (began * US, (began + 423) * US)
    text = plainly(rita.page(url_of(gate)))
    assert (
        "7 min 3 s later. The voter opened the last page (version 1) 3.0 s before the answer."
        in text
    )
    assert "The request was first shown at" in text
    assert " and answered at " in text


def test_a_vote_from_the_first_page_says_when_it_was_shown(rita: Reviewer, waiting: Gate) -> None:
    began = now_us() // US
    with time_machine.travel(began, tick=False):
        seen = rita.seen(waiting)
    with time_machine.travel(began + 3, tick=False):
        rita.answer(waiting, seen=seen)
    text = plainly(rita.page(url_of(waiting)))
    assert "Voted 3.0 s after version 1 was first shown at" in text
    assert "the last page" not in text


def test_a_view_of_another_person_is_not_the_voters(
    inbox: InboxScenario, rita: Reviewer, waiting: Gate
) -> None:
    began = now_us() // US
    with time_machine.travel(began, tick=False):
        Reviewer(inbox, "operator").page(url_of(waiting))
    with time_machine.travel(began + 100, tick=False):
        rita.answer(waiting)
    assert Vote.objects.get().shown_at_us == (began + 100) * US


def test_a_vote_right_after_opening_the_page_again_is_not_a_quick_one(
    inbox: InboxScenario, rita: Reviewer, waiting: Gate
) -> None:
    began = now_us() // US
    with time_machine.travel(began, tick=False):
        rita.page(url_of(waiting))
    with time_machine.travel(began + 60, tick=False):
        rita.answer(waiting)
    figures = statistics.load_rule_statistics(inbox.project, "basic", 0, now_us())
    (rule,) = figures.values()
    assert (rule.votes, rule.quick) == (1, 0)


def test_a_vote_from_before_the_record_named_it_reads_the_journal(
    rita: Reviewer, waiting: Gate
) -> None:
    began = now_us() // US
    with time_machine.travel(began, tick=False):
        rita.page(url_of(waiting))
    with time_machine.travel(began + 60, tick=False):
        rita.answer(waiting)
    vote = Vote.objects.get()
    vote.shown_at_us = (began + 60) * US
    view = context._build_vote_view(
        vote,
        {"step_up": "none"},
        {},
        same=True,
        uncounted="",
        first_view_us=context._load_first_views(waiting, [vote])[vote.actor],
    )
    assert (view.first_shown_us, view.page_shown_us) == (began * US, (began + 60) * US)
    assert view.warnings is None
