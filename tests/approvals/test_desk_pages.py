"""The pages of the desk through the doors of people: what they show, who may answer, and what an answer does."""

import re
from typing import Any
from uuid import UUID

import pytest
import time_machine
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils.html import escape
from hypothesis import given
from hypothesis import strategies as st

from approvals import card
from approvals.changes import changes
from approvals.models import Gate, Vote
from journal.clock import now_us
from journal.models import Entry
from ledger import holds
from ledger.models import Hold
from tests.approvals.story import Desk
from tests.ingest.caller import code
from tests.pages.people import PASSWORD

TOKEN = re.compile(r'name="seen" value="([^"]+)"')
INTENT = re.compile(r"Approving asks for the code <code>(\w{4})</code>")
REASON = "agreed in INC-204"


class Reviewer:
    """A person at a browser without script, unless `settled`."""

    def __init__(self, desk: Desk, name: str = "reviewer") -> None:
        self.client: Client = desk.house.client(name)

    def page(self, url: str, status: int = 200, **query: str) -> str:
        """The text of a page."""
        answer = self.client.get(url, query)
        assert answer.status_code == status, (url, answer.status_code)
        return answer.content.decode()

    def answer(self, gate: Gate, answer: str = "approve", reason: str = REASON, **more: str) -> Any:
        """Look at the gate's page, then send its form with `answer`, as the script would."""
        seen = more.pop("seen", None) or self.seen(gate)
        fields = {"answer": answer, "reason": reason, "seen": seen, "settled": "1", **more}
        return self.client.post(reverse("gate_answer", args=[gate.id]), fields)

    def seen(self, gate: Gate) -> str:
        found = TOKEN.search(self.page(url_of(gate)))
        assert found, "the page has no form"
        return found[1]


def url_of(gate: Gate) -> str:
    return reverse("gate", args=[gate.id])


@pytest.fixture
def rita(desk: Desk) -> Reviewer:
    return Reviewer(desk)


@pytest.fixture
def gate(desk: Desk) -> Gate:
    """A push that waits: compensable, medium risk."""
    return desk.gate(desk.plan(arguments={"command": "git push origin main"}, why="Because <b>I</b> say so."))


@pytest.fixture
def final(desk: Desk) -> Gate:
    """A deployment that cannot be undone, for one yes."""
    desk.rules(
        "name: strict\nrules:\n- {id: all, title: All, match: {}, outcome: require, require: {decide_within: 2h}}\n"
    )
    planned = desk.plan("final", tool="drop.table", arguments={"command": "DROP TABLE invoices"})
    return desk.gate(planned)


def test_the_first_page_is_what_waits_for_those_who_may_answer(desk: Desk, gate: Gate) -> None:
    assert desk.house.client("reviewer").get("/")["Location"] == reverse("inbox")
    assert desk.house.client("viewer").get("/")["Location"] == reverse("sessions")
    desk.answer(gate, "reviewer")
    assert desk.house.client("reviewer").get("/")["Location"] == reverse("sessions")


def test_the_frame_counts_what_waits_and_says_what_holds(desk: Desk, gate: Gate, rita: Reviewer) -> None:
    html = rita.page("/tools/")
    assert '<span class="count">1<span class="away"> waiting</span></span>' in html
    assert "only <b>observes</b>" not in html
    assert "<title>(1) Approvals" in rita.page(reverse("inbox"))
    desk.rules(mode="observe")
    assert "only <b>observes</b>" in rita.page("/tools/")


def test_the_gate_page_has_the_seven_facts_in_order_with_their_sources(gate: Gate, rita: Reviewer) -> None:
    html = rita.page(url_of(gate))
    heads = ["Exactly this will run", "What changes", "Blast radius", "Can it be undone?", "Why you are asked"]
    heads += ["Similar decisions", "Chain around it", "Agent’s claim, unverified"]
    places = [html.index(head) for head in heads]
    assert places == sorted(places)
    assert "computed here: the arguments match the intent digest" in html
    assert "git push origin main" in html
    assert html.count("unknown, treat as worst case") >= 3  # what changes, the ref, the environment
    assert "house@1, rule push: A push to a protected branch." in html
    assert "<b>one reviewer, not operator.</b>" in html  # the agent's owner is called by their role
    assert "Because &lt;b&gt;I&lt;/b&gt; say so." in html
    claim = html.index("Because &lt;b&gt;")
    assert claim > places[6]
    assert "say so" not in html[html.index('class="answers"') :]


def test_the_card_is_the_same_for_everybody_and_hashes_what_was_asked(gate: Gate) -> None:
    first, second = card.of(Gate.objects.get(id=gate.id)), card.of(Gate.objects.get(id=gate.id))
    assert first.sha256 == second.sha256
    assert first.complete
    assert first.verified == "equal"
    assert card.code(first.intent) == gate.effect.intent_digest[3:7]


def test_a_yes_is_recorded_with_what_the_page_showed(desk: Desk, gate: Gate, rita: Reviewer) -> None:
    answer = rita.answer(gate)
    assert (answer.status_code, answer["Location"]) == (302, url_of(gate))
    vote = Vote.objects.get(gate=gate)
    assert (vote.answer, vote.user.username, vote.shown_version, vote.view_complete) == ("approve", "reviewer", 1, True)
    assert vote.card_sha256 == card.of(gate).sha256
    assert desk.effect({"id": str(gate.effect_id)}).leave == "granted"
    html = rita.page(url_of(gate))
    for words in ("approved, not yet used", REASON, "the very facts shown here", "has not used it yet"):
        assert words in html, words
    assert 'name="seen"' not in html


def test_the_permalink_tells_what_came_of_it(desk: Desk, rita: Reviewer) -> None:
    planned = desk.plan(arguments={"command": "git push origin main"})
    gate = desk.gate(planned)
    rita.answer(gate)
    desk.agent.dispatch(planned)
    assert "approved and used" in rita.page(url_of(gate))
    desk.agent.acknowledge(planned, outcome="error")
    html = rita.page(url_of(gate))
    assert "What happened afterwards" in html
    assert re.search(r"acknowledged</span>\s*<span[^>]*>.*?error</span>", html)


@pytest.mark.parametrize("answer", ["deny", "deny_final", "return"])
def test_a_no_needs_words_and_keeps_them(gate: Gate, rita: Reviewer, answer: str) -> None:
    refused = rita.answer(gate, answer, "")
    assert refused.status_code == 409
    assert b"needs a reason here" in refused.content
    assert not Vote.objects.exists()
    assert rita.answer(gate, answer, "not on a Friday").status_code == 302
    gate.refresh_from_db()
    assert gate.status == {"deny": "denied", "deny_final": "denied_final", "return": "returned"}[answer]
    assert "not on a Friday" in rita.page(url_of(gate))


def test_without_script_every_answer_is_confirmed(gate: Gate, rita: Reviewer) -> None:
    answer = rita.answer(gate, settled="")
    confirm = reverse("gate_confirm", args=[gate.id])
    assert answer["Location"] == confirm
    assert not Vote.objects.exists()
    html = rita.page(confirm)
    assert "You are about to approve exactly this:" in html
    assert "git push origin main" in html
    assert REASON in html
    assert 'name="code"' not in html  # nothing here is irreversible
    assert rita.client.post(confirm).status_code == 302
    assert Vote.objects.get().answer == "approve"
    assert rita.client.get(confirm)["Location"] == url_of(gate)  # the draft is gone


def test_what_cannot_be_undone_takes_the_code_and_a_password(final: Gate, rita: Reviewer) -> None:
    confirm = reverse("gate_confirm", args=[final.id])
    assert rita.answer(final)["Location"] == confirm
    html = rita.page(confirm)
    assert 'name="code"' in html
    assert 'name="password"' in html
    intent = card.code(final.effect.intent_digest)
    wrong = rita.client.post(confirm, {"code": "zzzz", "password": PASSWORD})
    assert wrong.status_code == 422
    assert b"not the code of the intent" in wrong.content
    wrong = rita.client.post(confirm, {"code": intent, "password": "guess"})
    assert wrong.status_code == 422
    assert b"not your password" in wrong.content
    assert not Vote.objects.exists()
    assert rita.client.post(confirm, {"code": intent, "password": PASSWORD}).status_code == 302
    assert Vote.objects.get().step_up == "typed_digest"


def test_a_password_is_good_for_five_minutes(desk: Desk, final: Gate, rita: Reviewer) -> None:
    confirm = reverse("gate_confirm", args=[final.id])
    rita.answer(final, "approve")
    rita.client.post(confirm, {"code": card.code(final.effect.intent_digest), "password": PASSWORD})
    other = desk.gate(desk.plan("again", tool="drop.table", arguments={"command": "DROP TABLE payments"}))
    rita.answer(other)
    assert 'name="password"' not in rita.page(reverse("gate_confirm", args=[other.id]))
    with time_machine.travel(now_us() / 1e6 + 301, tick=True):
        assert 'name="password"' in rita.page(reverse("gate_confirm", args=[other.id]))


def test_five_wrong_passwords_close_the_name(final: Gate, rita: Reviewer) -> None:
    rita.answer(final)
    confirm = reverse("gate_confirm", args=[final.id])
    intent = card.code(final.effect.intent_digest)
    answers = [rita.client.post(confirm, {"code": intent, "password": "guess"}).status_code for _ in range(5)]
    assert answers[:4] == [422] * 4
    assert answers[4] == 429
    assert rita.client.post(confirm, {"code": intent, "password": PASSWORD}).status_code == 429
    assert not Vote.objects.exists()


def test_the_code_is_asked_whatever_a_form_says(final: Gate, rita: Reviewer) -> None:
    """`settled` is the page's word; the confirm page for what is dangerous is the server's."""
    rita.answer(final, settled="1")
    assert not Vote.objects.exists()
    assert rita.client.post(reverse("gate_confirm", args=[final.id])).status_code == 422
    assert not Vote.objects.exists()


def test_hidden_characters_must_be_ticked(desk: Desk, rita: Reviewer) -> None:
    gate = desk.gate(desk.plan(arguments={"command": "git push origin \u202eniam"}))
    html = rita.page(url_of(gate))
    assert "[U+202E]" in html
    assert "\u202e" not in html
    assert "1 hidden character." in html
    refused = rita.answer(gate)
    assert refused.status_code == 409
    assert b"Tick that you have seen the hidden characters" in refused.content
    assert REASON in refused.content.decode()
    assert rita.answer(gate, hidden_seen="1").status_code == 302
    assert Vote.objects.get().answer == "approve"


def test_long_arguments_stand_whole_and_must_be_read(desk: Desk, rita: Reviewer) -> None:
    text = "".join(f"echo step {n}\n" for n in range(400)) + "rm -rf /srv"
    gate = desk.gate(desk.plan(arguments={"command": text}))
    html = rita.page(url_of(gate))
    assert html.count("rm -rf /srv") == 2  # in the box of fact 1 and whole below
    assert "cut here" not in html
    assert b"Tick that you have read all of it" in rita.answer(gate).content
    assert rita.answer(gate, all_read="1").status_code == 302


def test_what_cannot_be_shown_whole_cannot_be_approved(desk: Desk, gate: Gate, rita: Reviewer) -> None:
    from journal import erasures

    Entry.objects.get(position=gate.plan_position)
    erasures.erase(gate.project_id, gate.plan_position, reason="t", actor="tests", now_us=now_us())
    html = rita.page(url_of(gate))
    assert "the plan cannot be read" in html
    assert "It cannot be approved: not all of it can be shown." in html
    refused = rita.answer(gate)
    assert refused.status_code == 409
    assert not Vote.objects.exists()
    assert rita.answer(gate, "deny").status_code == 302


def test_an_answer_to_an_old_page_is_refused_with_what_is_new_and_the_words_kept(desk: Desk, rita: Reviewer) -> None:
    gate = desk.gate(desk.plan(tool="deploy", arguments={"version": "4.18"}))
    seen = rita.seen(gate)
    desk.answer(gate, "carol", reason="fine with me")
    refused = rita.answer(gate, seen=seen, reason="my very own words")
    html = refused.content.decode()
    assert refused.status_code == 409
    assert "The gate changed since your page was made." in html
    assert re.search(r"<th scope=\"row\">Answers</th><td>0</td><td>1</td>", html)
    assert "my very own words</textarea>" in html
    assert "carol approved" in html
    assert Vote.objects.filter(gate=gate).count() == 1
    assert rita.answer(gate).status_code == 302
    gate.refresh_from_db()
    assert gate.status == "approved"


def test_a_tool_declared_anew_makes_a_page_old(desk: Desk, gate: Gate, rita: Reviewer) -> None:
    seen = rita.seen(gate)
    desk.project.tools.filter(name="git.push").update(reversibility="irreversible")
    refused = rita.answer(gate, seen=seen)
    assert refused.status_code == 409
    assert b"Facts of the card" in refused.content


def test_two_people_decide_and_the_second_hears_who_was_first(desk: Desk, gate: Gate, rita: Reviewer) -> None:
    seen = rita.seen(gate)
    desk.answer(gate, "carol", "deny", "no, not today")
    late = rita.answer(gate, seen=seen, reason="looks fine to me")
    html = late.content.decode()
    assert late.status_code == 409
    assert "Your answer was not recorded." in html
    assert "carol denied" in html
    assert "no, not today" in html
    assert "looks fine to me" in html
    assert Vote.objects.count() == 1


def test_forms_of_other_people_gates_and_days_are_worth_nothing(desk: Desk, gate: Gate, rita: Reviewer) -> None:
    other = desk.gate(desk.plan("e-2", arguments={"command": "git push origin next"}))
    sam = Reviewer(desk, desk.person("sam").user.username)
    for seen in (sam.seen(gate), rita.seen(other), "", "x:y:z", rita.seen(gate)[:-1] + "!"):
        assert rita.answer(gate, seen=seen or "none").status_code == 409
    seen = rita.seen(gate)
    with time_machine.travel(now_us() / 1e6 + 12 * 3600 + 5):
        rita.client.force_login(User.objects.get(username="reviewer"))
        assert rita.answer(gate, seen=seen).status_code == 409
    assert not Vote.objects.exists()


def test_expired_is_never_approved(desk: Desk, gate: Gate, rita: Reviewer) -> None:
    seen = rita.seen(gate)
    with time_machine.travel(gate.decide_by_us / 1e6 + 1):
        rita.client.force_login(User.objects.get(username="reviewer"))
        late = rita.answer(gate, seen=seen)
        assert late.status_code == 409
        assert "expired: not approved" in late.content.decode()
        assert str(gate) not in rita.page(reverse("inbox"))
        assert url_of(gate) in rita.page(reverse("inbox"), state="expired")
    assert not Vote.objects.exists()


def test_who_has_a_part_in_it_may_only_say_no(desk: Desk, gate: Gate) -> None:
    owner = Reviewer(desk, "operator")  # owns the agent
    html = owner.page(url_of(gate))
    assert "You may still say no." in html
    assert 'value="approve"' not in html
    assert owner.answer(gate).status_code == 409
    assert not Vote.objects.exists()
    assert owner.answer(gate, "deny").status_code == 302


def test_more_time_is_given_by_a_button_and_recorded(gate: Gate, rita: Reviewer) -> None:
    answer = rita.client.post(reverse("gate_extend", args=[gate.id]))
    assert answer.status_code == 302
    later = Gate.objects.get(id=gate.id)
    assert later.decide_by_us == gate.decide_by_us + 15 * 60 * 1_000_000
    assert Entry.objects.filter(kind="gate.extended", subject=gate.id).count() == 1


def test_leave_is_revoked_until_it_is_used(desk: Desk, rita: Reviewer) -> None:
    planned = desk.plan()
    gate = desk.gate(planned)
    rita.answer(gate)
    revoke = reverse("gate_revoke", args=[gate.id])
    assert "has not been used" in rita.page(revoke)
    assert rita.client.post(revoke, {"reason": ""}).status_code == 409
    assert rita.client.post(revoke, {"reason": "INC-9: wrong branch"}).status_code == 302
    assert code(desk.agent.post(f"/effects/{planned['id']}/dispatch", {"process": "p", "arguments": {"ref": "main"}}))
    html = rita.page(url_of(gate))
    assert "approved, then revoked" in html
    assert "INC-9: wrong branch" in html
    used = desk.plan("e-2", arguments={"ref": "next"})
    second = desk.gate(used)
    rita.answer(second)
    desk.agent.dispatch(used)
    late = rita.client.post(reverse("gate_revoke", args=[second.id]), {"reason": "too late"})
    assert late.status_code == 409
    assert "it cannot be taken back" in late.content.decode()


def test_a_look_is_recorded_once_for_each_version(desk: Desk, rita: Reviewer) -> None:
    gate = desk.gate(desk.plan(tool="deploy", arguments={"version": "1"}))
    for _ in range(3):
        rita.page(url_of(gate))
    looks = Entry.objects.filter(kind="access.viewed", subject=gate.id)
    assert looks.count() == 1
    desk.answer(gate, "carol")
    rita.page(url_of(gate))
    assert looks.count() == 2
    Reviewer(desk, "viewer").page(url_of(gate))
    assert looks.count() == 3
    assert not looks.filter(actor__contains="reviewer").exists()  # a pseudonym


def test_the_inbox_is_ordered_by_what_cannot_be_undone_and_what_ends_soonest(desk: Desk, rita: Reviewer) -> None:
    for name, undo in (("close", "reversible"), ("drop", "irreversible")):
        desk.declare(name, undo)
    names = ["close", "git.push", "drop", "deploy", "undeclared"]
    gates_of = {name: desk.gate(desk.plan(name, tool=name, arguments={"of": name})) for name in names}
    Gate.objects.filter(id=gates_of["undeclared"].id).update(decide_by_us=gates_of["drop"].decide_by_us - 60_000_000)
    html = rita.page(reverse("inbox"))
    places = {name: html.index(url_of(gate)) for name, gate in gates_of.items()}
    assert sorted(places, key=lambda name: places[name]) == ["undeclared", "drop", "git.push", "deploy", "close"]


def test_mine_is_what_my_answer_would_count_for(desk: Desk, gate: Gate, rita: Reviewer) -> None:
    mine = reverse("inbox")
    assert url_of(gate) in rita.page(mine, state="mine")
    assert url_of(gate) not in Reviewer(desk, "operator").page(mine, state="mine")
    second = desk.gate(desk.plan("e-2", tool="deploy", arguments={"version": "1"}))
    rita.answer(second)
    html = rita.page(mine, state="mine")
    assert url_of(gate) in html
    assert url_of(second) not in html


def test_lists_go_on_by_key(desk: Desk, rita: Reviewer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("approvals.inbox.SIZE", 2)
    all_of = [desk.gate(desk.plan(f"e-{n}", arguments={"n": n})) for n in range(5)]
    seen: list[str] = []
    after = ""
    for _ in range(3):
        html = rita.page(reverse("inbox"), after=after)
        seen += re.findall(r'href="(/approvals/[0-9a-f-]{36}/)"', html)
        found = re.search(r"amp;after=([\d-]+)", html)
        after = found[1] if found else ""
    assert seen == [url_of(gate) for gate in all_of]
    assert not after
    assert rita.page(reverse("inbox"), after="x-1;--")


def test_news_is_told_and_its_absence_costs_nothing(desk: Desk, gate: Gate, rita: Reviewer) -> None:
    html = rita.page(reverse("inbox"))
    since = re.search(r"since=([\d-]+)", html)
    assert since
    poll = {"since": since[1], "state": "pending"}
    headers = {"HX-Request": "true"}
    assert rita.client.get(reverse("inbox"), poll, headers=headers).status_code == 204
    desk.plan("e-2", arguments={"ref": "next"})
    answer = rita.client.get(reverse("inbox"), poll, headers=headers)
    assert "1 new request arrived" in answer.content.decode()
    assert "<html" not in answer.content.decode()
    paused = rita.page(reverse("inbox"), live="off")
    assert "hx-get" not in paused
    assert "Go live" in paused


def test_an_empty_inbox_says_so_and_when_it_was_last_not(desk: Desk, gate: Gate, rita: Reviewer) -> None:
    rita.answer(gate)
    html = rita.page(reverse("inbox"))
    assert "Nothing needs you. Last decision" in html
    assert url_of(gate) in rita.page(reverse("inbox"), state="decided")


def test_what_ran_without_approval_stands_at_the_head(desk: Desk, gate: Gate, rita: Reviewer) -> None:
    report = {"id": "r-1", "kind": "effect.dispatched", "session": "s-1", "effect_key": "e-1"}
    assert desk.agent.report([report]).status_code == 200
    html = rita.page(reverse("inbox"))
    assert html.index("Executed without approval") < html.index("Nothing needs you")
    assert reverse("effect", args=[gate.effect_id]) in html
    assert "Executed without approval." in rita.page(url_of(gate))


def test_an_observing_project_counts_what_would_have_been_held(desk: Desk, rita: Reviewer) -> None:
    desk.rules(mode="observe")
    desk.plan()
    html = rita.page(reverse("inbox"))
    assert "1 effect of the last 7 days would have been held." in html
    found = re.search(r'href="(/audit/\?[^"]+)">Show them', html)
    assert found
    assert "git.push" in rita.page(found[1].replace("&amp;", "&"))


@pytest.fixture
def closings(desk: Desk) -> list[Gate]:
    """Three requests of one shape that can be put back."""
    desk.declare("close", "reversible")
    return [desk.gate(desk.plan(f"c-{n}", tool="close", arguments={"issue": n})) for n in range(3)]


def test_requests_of_one_shape_are_decided_together_each_with_a_vote(
    desk: Desk, closings: list[Gate], rita: Reviewer
) -> None:
    html = rita.page(reverse("inbox"))
    assert "2 more of the same shape" in html
    ticked = re.findall(r'name="gate" value="([0-9a-f-]{36})"', html)
    assert {UUID(one) for one in ticked} == {gate.id for gate in closings}
    rita.client.post(reverse("batch"), {"gate": ticked})
    html = rita.page(reverse("batch_confirm"))
    tokens = dict(re.findall(r'name="(seen-\w{32})" value="([^"]+)"', html))
    assert len(tokens) == 3
    assert html.count("issue") >= 3
    assert not Vote.objects.exists()
    rita.client.post(reverse("batch_confirm"), {**tokens, "answer": "approve", "reason": "stale, all of them"})
    assert Vote.objects.filter(answer="approve", reason_characters=18).count() == 3


@pytest.mark.parametrize("wrong", ["many", "mixed", "final", "ended", "none"])
def test_what_does_not_belong_together_is_not_decided_together(
    desk: Desk, closings: list[Gate], rita: Reviewer, wrong: str
) -> None:
    chosen = [gate.id for gate in closings]
    if wrong == "many":
        chosen = [desk.gate(desk.plan(f"m-{n}", tool="close", arguments={"n": n})).id for n in range(26)]
    elif wrong == "mixed":
        chosen.append(desk.gate(desk.plan(arguments={"ref": "main"})).id)
    elif wrong == "final":
        chosen = [desk.gate(desk.plan(f"f-{n}", tool="drop", arguments={"n": n})).id for n in range(2)]
    elif wrong == "ended":
        desk.answer(closings[0], "carol")
    elif wrong == "none":
        chosen = []
    before = Vote.objects.count()
    rita.client.post(reverse("batch"), {"gate": [str(one) for one in chosen]})
    rita.page(reverse("batch_confirm"), 409)
    assert rita.client.post(reverse("batch_confirm"), {"answer": "approve"}).status_code == 409
    assert Vote.objects.count() == before


def test_stop_takes_two_clicks_and_a_reason_and_is_lifted_with_one(desk: Desk, gate: Gate, rita: Reviewer) -> None:
    found = re.search(r'href="(/approvals/holds/new/\?scope=session[^"]+)"', rita.page(url_of(gate)))
    assert found
    form = found[1].replace("&amp;", "&")
    assert "Stop the session" in rita.page(form)
    fields = {"scope": "session", "subject": gate.session_id.hex}
    assert rita.client.post(reverse("stop"), {**fields, "reason": ""}).status_code == 422
    assert not Hold.objects.exists()
    assert rita.client.post(reverse("stop"), {**fields, "reason": "it loops"}).status_code == 302
    assert holds.stopping(gate.project_id, gate.session_id, gate.agent_id, gate.tool, gate.effect_id)
    assert "set by reviewer: whatever is decided here, nothing runs" in rita.page(url_of(gate))
    assert "it loops" in rita.page(reverse("holds"))
    rita.answer(gate)
    dispatch = {"process": "p", "intent_digest": gate.effect.intent_digest}
    assert code(desk.agent.post(f"/effects/{gate.effect_id}/dispatch", dispatch)) == (409, "HELD")
    lift = reverse("lift", args=[Hold.objects.get().id])
    assert rita.client.post(lift, {"reason": ""}).status_code == 422
    assert rita.client.post(lift, {"reason": "it was me"}).status_code == 302
    assert not holds.live(gate.project_id)
    assert desk.agent.post(f"/effects/{gate.effect_id}/dispatch", dispatch).status_code == 200


def test_a_stopped_project_says_so_on_every_page(desk: Desk, rita: Reviewer) -> None:
    rita.client.post(reverse("stop"), {"scope": "project", "subject": "", "reason": "incident"})
    assert "This project is stopped:" in rita.page("/tools/")


@pytest.mark.parametrize("scope", ["effect", "session", "agent", "tool", "project", "house", ""])
def test_nothing_of_another_project_is_stopped(desk: Desk, rita: Reviewer, scope: str) -> None:
    foreign = {"agent": desk.house.other_token.agent_id.hex, "tool": "", "project": "x"}
    query = {"scope": scope, "subject": foreign.get(scope, "0" * 32)}
    if scope == "project":
        return
    rita.page(reverse("stop"), 404, **query)
    assert rita.client.post(reverse("stop"), {**query, "reason": "because"}).status_code == 404
    assert not Hold.objects.exists()


def test_an_edit_is_a_diff_of_which_nothing_is_left_out(desk: Desk, rita: Reviewer) -> None:
    old = "one\ntwo\nthree\n<b>four</b>\n"
    new = "one\n2\nthree\n<b>four</b>\nfive"
    arguments = {"file_path": "src/a.py", "old_string": old, "new_string": new}
    gate = desk.gate(desk.plan(tool="deploy", arguments=arguments))
    html = rita.page(url_of(gate))
    for sign, line in (("del", "two"), ("add", "2"), ("add", "five"), ("", "three"), ("", escape("<b>four</b>"))):
        pattern = rf'<tr class="{sign}">(?:(?!</tr>).)*>{re.escape(line)}</td></tr>'
        assert re.search(pattern, html), (sign, line)
    assert "+2 −1" in html


def test_the_effect_page_names_its_gate_and_the_rule(desk: Desk, gate: Gate, rita: Reviewer) -> None:
    page = reverse("effect", args=[gate.effect_id])
    html = rita.page(page)
    assert f'<a href="{url_of(gate)}">{gate}</a>' in html
    assert "asks for leave, <span" in html
    assert "house@1/push" in html
    assert "not enforced" not in html
    assert 'rel="next"' not in rita.page(url_of(gate))
    later = desk.gate(desk.plan("e-2", arguments={"ref": "next"}))
    assert f'<a href="{reverse("effect", args=[later.effect_id])}" rel="next">' in rita.page(url_of(gate))
    desk.rules(mode="observe")
    seen = desk.plan("seen", arguments={"ref": "seen"})
    assert "<b>not enforced</b>" in rita.page(reverse("effect", args=[seen["id"]]))


def test_what_ran_without_approval_is_said_on_its_page_and_found(desk: Desk, gate: Gate, rita: Reviewer) -> None:
    report = {"id": "r-1", "kind": "effect.dispatched", "session": "s-1", "effect_key": "e-1"}
    assert desk.agent.report([report]).status_code == 200
    handle = str(desk.effect({"id": str(gate.effect_id)}))
    assert "Executed without approval." in rita.page(reverse("effect", args=[gate.effect_id]))
    assert "1 violation" in rita.page(reverse("session", args=[gate.session_id]))
    for query in ({"violating": "1"}, {"leave": "bypassed"}, {"judged": "ask"}):
        assert handle in rita.page(reverse("audit"), 200, **query), query
    assert handle not in rita.page(reverse("audit"), judged="not_held")


@pytest.mark.parametrize("scope", ["effect", "session", "agent", "tool"])
def test_everything_is_stopped_where_it_is_shown(desk: Desk, gate: Gate, scope: str) -> None:
    pages = {
        "effect": reverse("effect", args=[gate.effect_id]),
        "session": reverse("session", args=[gate.session_id]),
        "agent": reverse("tokens"),
        "tool": reverse("tools"),
    }
    administrator = Reviewer(desk, "administrator")
    html = administrator.page(pages[scope])
    subject = "git.push" if scope == "tool" else "[0-9a-f]{32}"
    found = re.search(rf'href="(/approvals/holds/new/\?scope={scope}&amp;subject={subject}[^"]*)"', html)
    assert found
    form = found[1].replace("&amp;", "&")
    assert 'name="reason"' in administrator.page(form)
    query = dict(part.split("=") for part in form.partition("?")[2].split("&"))
    assert administrator.client.post(reverse("stop"), {**query, "reason": "INC-9"}).status_code == 302
    assert holds.stopping(gate.project_id, gate.session_id, gate.agent_id, gate.tool, gate.effect_id)
    assert "Stopped." in administrator.page(pages["effect"])
    viewer = Reviewer(desk, "viewer").page(pages["effect"])
    assert "/approvals/holds/new/" not in viewer


def test_two_people_are_not_told_of_each_others_drafts(desk: Desk, gate: Gate, rita: Reviewer) -> None:
    rita.answer(gate, settled="")
    sam = Reviewer(desk, desk.person("sam").user.username)
    assert sam.client.get(reverse("gate_confirm", args=[gate.id]))["Location"] == url_of(gate)


@pytest.mark.parametrize(
    ("arguments", "signs"),
    [
        ({"file_path": "a", "edits": [{"old_string": "x", "new_string": "y"}]}, "-+"),
        ({"file_path": "a", "content": "one\ntwo\n"}, "++"),
        ({"path": "a", "command": "str_replace", "old_str": "x\n", "new_str": ""}, "-"),
        ({"input": "*** Begin Patch\n*** Update File: a\n@@\n-x\n+y\n*** End Patch"}, "@@@-+@"),
        ({"patch": "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-x\n+y\n--- a/b\n+++ b/b\n@@ -1 +1 @@\n z\n"}, "@@@-+@@@ "),
        ({"command": "git push"}, ""),
        (["a", "list"], ""),
        (None, ""),
    ],
)
def test_edits_are_read_in_the_shapes_of_many_agents(arguments: Any, signs: str) -> None:
    found = changes(arguments)
    assert "".join(row.sign for file in found.files for row in file.rows) == signs


@pytest.mark.parametrize("more", [{"note": "x"}, {"sha": 7}, {"message": "two titles", "title": "x"}])
def test_commits_that_say_more_are_shown_whole_with_the_arguments(more: dict[str, Any]) -> None:
    plain = {"sha": "4be1c9e", "title": "fix", "author": "bob"}
    assert changes({"commits": [plain]}).told == ("commits",)
    assert changes({"commits": [plain | more]}).told == ()


@given(st.text(max_size=60), st.text(max_size=60))
def test_the_rows_of_a_diff_hold_both_texts(old: str, new: str) -> None:
    found = changes({"path": "a", "old_string": old, "new_string": new})
    rows = [row for file in found.files for row in file.rows]
    assert [row.text for row in rows if row.sign in "- "] == lines(old)
    assert [row.text for row in rows if row.sign in "+ "] == lines(new)


def lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []
