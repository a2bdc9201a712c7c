"""What an answer needs: the form of the present page, its ticks, a code and a password, and an
unchanged gate."""

import re

import pytest
import time_machine
from django.contrib.auth.models import User
from django.urls import reverse

from approvals.models import Gate, Vote
from approvals.review import card, context
from db.clock import now_us
from journal.models import Entry
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.reviewer import REASON, Reviewer, url_of
from tests.pages.people import PASSWORD
from tests.rows_with_entries import change_tools


def test_without_script_every_answer_is_confirmed(gate: Gate, rita: Reviewer) -> None:
    answer = rita.answer(gate, settled="")
    confirm = reverse("gate_confirm", args=[gate.id])
    assert answer["Location"] == confirm
    assert not Vote.objects.exists()
    html = rita.page(confirm)
    assert "Approve exactly this?" in html
    assert "git push origin main" in html
    assert REASON in html
    assert 'name="code"' not in html  # nothing here is irreversible
    assert rita.confirm(gate).status_code == 302
    assert Vote.objects.get().answer == "approve"
    assert rita.client.get(confirm)["Location"] == url_of(gate)  # the draft is gone


def test_an_irreversible_effect_needs_the_code_and_a_password(final: Gate, rita: Reviewer) -> None:
    confirm = reverse("gate_confirm", args=[final.id])
    assert rita.answer(final)["Location"] == confirm
    html = rita.page(confirm)
    assert 'name="code"' in html
    assert 'name="password"' in html
    intent = card.confirmation_code(final.effect.intent_digest)
    wrong = rita.confirm(final, code="zzzz", password=PASSWORD)
    assert wrong.status_code == 422
    assert b"The code does not match." in wrong.content
    wrong = rita.confirm(final, code=intent, password="guess")
    assert wrong.status_code == 422
    assert b"Wrong password" in wrong.content
    assert not Vote.objects.exists()
    assert rita.confirm(final, code=intent, password=PASSWORD).status_code == 302
    assert Vote.objects.get().step_up == "typed_digest"


def test_a_password_is_good_for_five_minutes(
    inbox: InboxScenario, final: Gate, rita: Reviewer
) -> None:
    rita.answer(final, "approve")
    rita.confirm(final, code=card.confirmation_code(final.effect.intent_digest), password=PASSWORD)
    other = inbox.gate(
        inbox.plan("again", tool="drop.table", arguments={"command": "DROP TABLE payments"})
    )
    rita.answer(other)
    assert 'name="password"' not in rita.page(reverse("gate_confirm", args=[other.id]))
    with time_machine.travel(now_us() / 1e6 + 301, tick=True):
        assert 'name="password"' in rita.page(reverse("gate_confirm", args=[other.id]))


def test_five_wrong_passwords_close_the_name(final: Gate, rita: Reviewer) -> None:
    rita.answer(final)
    intent = card.confirmation_code(final.effect.intent_digest)
    answers = [rita.confirm(final, code=intent, password="guess").status_code for _ in range(5)]
    assert answers[:4] == [422] * 4
    assert answers[4] == 429
    assert rita.confirm(final, code=intent, password=PASSWORD).status_code == 429
    assert not Vote.objects.exists()


def test_the_code_is_required_whatever_a_form_sends(final: Gate, rita: Reviewer) -> None:
    """`settled` comes from the page; the server decides on the confirm page for dangerous
    requests."""
    rita.answer(final, settled="1")
    assert not Vote.objects.exists()
    assert rita.confirm(final).status_code == 422
    assert not Vote.objects.exists()


@pytest.mark.parametrize(
    ("first", "second"), [("deny", "approve"), ("approve", "deny"), ("deny", "deny")]
)
def test_a_confirm_page_records_the_answer_that_it_shows_or_none(
    gate: Gate, rita: Reviewer, first: str, second: str
) -> None:
    """Two windows of one person: the second begins another answer while the first still confirms
    its own."""
    confirm = reverse("gate_confirm", args=[gate.id])
    rita.answer(gate, first, "words of the first window", settled="")
    draft = rita.draft(gate)
    rita.answer(gate, second, "words of the second window", settled="")
    for stale in ({"seen_draft": draft}, {"seen_draft": ""}, {}):
        answer = rita.client.post(confirm, stale)
        html = answer.content.decode()
        assert answer.status_code == 409
        assert "Nothing was recorded. You began another answer after this page" in html
        assert {"approve": "Approve exactly this?", "deny": "Deny this?"}[second] in html
        assert "words of the second window</q>" in html
        assert "words of the first window" not in html
    assert not Vote.objects.exists()
    assert rita.confirm(gate).status_code == 302  # from the page as it is now
    vote = Vote.objects.get()
    assert (vote.answer, context.load_reason(vote.position)) == (
        second,
        "words of the second window",
    )


def test_ticks_are_part_of_the_answer_that_a_confirm_page_shows(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    gate = inbox.gate(inbox.plan(arguments={"command": "echo\n" * 40}))
    rita.answer(gate, settled="", all_read="1", seen=(seen := rita.seen(gate)))
    draft = rita.draft(gate)
    rita.answer(gate, "deny", settled="", seen=seen)
    assert rita.draft(gate) != draft
    rita.answer(gate, settled="", all_read="1", seen=seen)
    assert rita.draft(gate) == draft


def test_a_confirm_page_shows_that_its_draft_was_answered_elsewhere(
    gate: Gate, rita: Reviewer
) -> None:
    rita.answer(gate, "deny", "words of the first window", settled="")
    draft = rita.draft(gate)
    rita.answer(gate, "approve")  # at once, in the second window
    late = rita.client.post(reverse("gate_confirm", args=[gate.id]), {"seen_draft": draft})
    html = late.content.decode()
    assert late.status_code == 409
    assert "Your answer was not recorded." in html
    assert "submitted or discarded in another tab" in html
    assert ">reviewer</a> approved" in html  # their own answers are theirs to read
    assert Vote.objects.get().answer == "approve"


def test_hidden_characters_must_be_ticked(inbox: InboxScenario, rita: Reviewer) -> None:
    gate = inbox.gate(inbox.plan(arguments={"command": "git push origin \u202eniam"}))
    html = rita.page(url_of(gate))
    assert "[U+202E]" in html
    assert "\u202e" not in html
    assert "1 hidden character." in html
    refused = rita.answer(gate)
    assert refused.status_code == 409
    assert b"tick that you have seen the hidden characters" in refused.content
    assert REASON in refused.content.decode()
    assert rita.answer(gate, hidden_seen="1").status_code == 302
    assert Vote.objects.get().answer == "approve"


def test_long_arguments_are_shown_in_full_and_must_be_read(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    text = "".join(f"echo step {n}\n" for n in range(400)) + "rm -rf /srv"
    gate = inbox.gate(inbox.plan(arguments={"command": text}))
    html = rita.page(url_of(gate))
    assert html.count("rm -rf /srv") == 1  # in the box of fact 1, which scrolls
    assert '<span class="ln" data-n="401">rm -rf /srv</span>' in html
    assert "cut here" not in html
    assert b"tick that you have read all lines" in rita.answer(gate).content
    assert rita.answer(gate, all_read="1").status_code == 302


def test_a_request_that_cannot_be_shown_in_full_cannot_be_approved(
    inbox: InboxScenario, gate: Gate, rita: Reviewer
) -> None:
    from journal import erasures

    Entry.objects.get(position=gate.plan_position)
    erasures.erase_body(
        gate.project_id, gate.plan_position, reason="t", actor="tests", now_us=now_us()
    )
    html = rita.page(url_of(gate))
    assert "the plan cannot be read" in html
    assert "You cannot approve this request: Gatebook cannot show all of it." in html
    refused = rita.answer(gate)
    assert refused.status_code == 409
    assert not Vote.objects.exists()
    assert rita.answer(gate, "deny").status_code == 302


def test_an_answer_to_a_stale_page_is_refused_with_the_changes_and_its_text(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    gate = inbox.gate(inbox.plan(tool="deploy", arguments={"version": "4.18"}))
    seen = rita.seen(gate)
    inbox.answer(gate, "carol", reason="fine with me")
    refused = rita.answer(gate, seen=seen, reason="my very own words")
    html = refused.content.decode()
    assert refused.status_code == 409
    assert "The request changed after you opened it." in html
    assert re.search(r"<th scope=\"row\">Answers</th>\s*<td>0</td><td>1</td>", html)
    assert "my very own words</textarea>" in html
    assert "carol approved" in html
    assert Vote.objects.filter(gate=gate).count() == 1
    assert rita.answer(gate).status_code == 302
    gate.refresh_from_db()
    assert gate.status == "approved"


def test_a_tool_declared_again_makes_a_page_stale(
    inbox: InboxScenario, gate: Gate, rita: Reviewer
) -> None:
    seen = rita.seen(gate)
    change_tools(inbox.project.tools.filter(name="git.push"), reversibility="irreversible")
    refused = rita.answer(gate, seen=seen)
    assert refused.status_code == 409
    assert b"Facts of the request" in refused.content


def test_two_people_decide_and_the_second_sees_who_was_first(
    inbox: InboxScenario, gate: Gate, rita: Reviewer
) -> None:
    seen = rita.seen(gate)
    inbox.answer(gate, "carol", "deny", "no, not today")
    late = rita.answer(gate, seen=seen, reason="looks fine to me")
    html = late.content.decode()
    assert late.status_code == 409
    assert "Your answer was not recorded." in html
    assert "carol denied" in html
    assert "no, not today" in html
    assert "looks fine to me" in html
    assert Vote.objects.count() == 1


def test_forms_of_other_people_gates_and_days_are_worth_nothing(
    inbox: InboxScenario, gate: Gate, rita: Reviewer
) -> None:
    other = inbox.gate(inbox.plan("e-2", arguments={"command": "git push origin next"}))
    sam = Reviewer(inbox, inbox.person("sam").user.username)
    for seen in (sam.seen(gate), rita.seen(other), "", "x:y:z", rita.seen(gate)[:-1] + "!"):
        assert rita.answer(gate, seen=seen or "none").status_code == 409
    seen = rita.seen(gate)
    with time_machine.travel(now_us() / 1e6 + 12 * 3600 + 5):
        rita.client.force_login(User.objects.get(username="reviewer"))
        assert rita.answer(gate, seen=seen).status_code == 409
    assert not Vote.objects.exists()


def test_two_people_do_not_see_each_others_drafts(
    inbox: InboxScenario, gate: Gate, rita: Reviewer
) -> None:
    rita.answer(gate, settled="")
    sam = Reviewer(inbox, inbox.person("sam").user.username)
    assert sam.client.get(reverse("gate_confirm", args=[gate.id]))["Location"] == url_of(gate)


def test_hidden_characters_in_the_name_of_a_target_count_too(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    planned = inbox.plan(
        arguments={"command": "git push"}, target={"repository": "web", "ref": "ma\u200bin"}
    )
    gate = inbox.gate(planned)
    assert "1 hidden character." in rita.page(url_of(gate))
    assert b"tick that you have seen" in rita.answer(gate).content


def test_a_reason_has_a_length(gate: Gate, rita: Reviewer) -> None:
    refused = rita.answer(gate, reason="x" * 5000)
    assert refused.status_code == 409
    assert b"at most 4000 characters" in refused.content
    assert not Vote.objects.exists()


def test_no_name_title_or_precondition_is_cut(inbox: InboxScenario, rita: Reviewer) -> None:
    """Any text of an agent can carry the important words at its very end."""
    tool, name, head = "t" * 90 + "-tool", "n" * 300 + "-name", "h" * 300 + "-head"
    planned = inbox.plan(
        tool=tool,
        arguments={
            "command": "x",
            name: 1,
            "commits": [{"sha": "s" * 90 + "-sha", "title": "t" * 400 + "-title"}],
        },
        target={
            "repository": "web",
            "ref": "r" * 190 + "-ref",
            "resource": "o" * 290 + "-resource",
        },
        preconditions={"head": head},
    )
    html = rita.page(url_of(inbox.gate(planned)))
    for end in ("-tool", "-name", "-sha", "-title", "-ref", "-resource", "-head"):
        assert re.search(rf"[tnsroh]{{60,}}{end}\b", html), end
    assert "so it needs approval. Needs" in html
