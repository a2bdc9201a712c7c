"""An event of the code host confirms an effect of unknown outcome, and people question it."""

from typing import Any

import orjson
import pytest
from django.db import transaction

from accounts import agents
from accounts.models import Project
from accounts.people import ensure_pseudonym
from hooks.code_hosts import agent_identities, candidates, host_events, matching, sources
from hooks.models import AgentIdentity, CodeHostEvent, EventMatch
from journal.models import Entry
from ledger.models import Attempt, Effect
from tests.hooks.code_hosts.code_host import (
    NO_SHA,
    OTHER_SHA,
    SHA,
    CodeHost,
    build_push,
    matches_of,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def bot(host: CodeHost) -> CodeHost:
    """The agent acts as release-bot."""
    agent_identities.add_identity(
        host.organization.agent, "github", "Release-Bot", actor="gatebook"
    )
    return host


def question(host: CodeHost, event: CodeHostEvent, member: str = "operator", **form: Any) -> Any:
    match = EventMatch.objects.filter(event=event).latest("position")
    sent = {"match": str(match.id), "in_project": str(host.project.id), **form}
    path = f"/code-hosts/{event.delivery_id}/question/"
    return host.organization.client(member).post(path, sent)


def test_a_push_confirms_the_dispatched_push(bot: CodeHost) -> None:
    effect = bot.dispatch_push()
    event = bot.push()
    assert event.status == "matched"
    assert matches_of(event) == [("push_ref_after", "confirmed")]
    effect.refresh_from_db()
    assert (effect.state, effect.outcome, effect.confirmed_by) == ("acknowledged", "ok", "github")
    assert Attempt.objects.get(effect=effect).acknowledged_mark == ""  # no agent reported it
    entry = Entry.objects.get(kind="effect.confirmed")
    assert (entry.effect, entry.subject, entry.lane) == (effect.id, event.id, "system")
    assert orjson.loads(entry.facts)["rule"] == "push_ref_after"


def test_the_agent_is_told_that_it_is_done(bot: CodeHost) -> None:
    effect = bot.dispatch_push()
    before = bot.agent.get(f"/effects/{effect.id}/verdict").json()
    assert before["verdict"] != "skip"
    bot.push()
    after = bot.agent.get(f"/effects/{effect.id}/verdict").json()
    assert (after["verdict"], after["reason"]) == ("skip", "DONE")
    refused = bot.agent.post(
        f"/effects/{effect.id}/dispatch",
        {"process": "p-2", "intent_digest": effect.intent_digest},
    )
    assert refused.status_code == 409


def test_a_late_report_overwrites_nothing(bot: CodeHost) -> None:
    effect = bot.dispatch_push()
    bot.push()
    answer = bot.agent.acknowledge({"id": str(effect.id)}, external_reference=SHA)
    assert answer["state"] == "acknowledged"
    assert Attempt.objects.get(effect=effect).acknowledged_mark.startswith("0")  # a command
    effect.refresh_from_db()
    assert (effect.confirmed_by, effect.external_reference, effect.violates) == (
        "github",
        SHA,
        False,
    )


@pytest.mark.parametrize("reason", ["timeout", "error"])
def test_a_failure_of_unknown_outcome_is_confirmed(bot: CodeHost, reason: str) -> None:
    effect = bot.dispatch_push()
    bot.agent.fail({"id": str(effect.id)}, reason)
    bot.push()
    effect.refresh_from_db()
    assert (effect.state, effect.outcome) == ("acknowledged", "ok")


def test_a_reported_push_is_confirmed_too(bot: CodeHost) -> None:
    effect = bot.dispatch_push()
    bot.agent.acknowledge({"id": str(effect.id)}, external_reference=SHA)
    event = bot.push()
    assert matches_of(event) == [("external_reference", "confirmed")]
    effect.refresh_from_db()
    assert (effect.state, effect.confirmed_by) == ("acknowledged", "github")


def test_a_rejected_push_is_contradicted_and_keeps_its_state(bot: CodeHost) -> None:
    effect = bot.dispatch_push()
    bot.agent.fail({"id": str(effect.id)}, "rejected")
    event = bot.push()
    assert matches_of(event) == [("push_ref_after", "contradicts")]
    effect.refresh_from_db()
    assert (effect.state, effect.confirmed_by) == ("failed", "")
    page = bot.organization.client("viewer").get(f"/effects/{effect.id}/").content.decode()
    assert "contradicts the record" in page


def test_a_named_commit_needs_no_identity(host: CodeHost) -> None:
    effect = host.dispatch_push(arguments={"ref": "main", "sha": SHA})
    event = host.push(login="somebody")
    assert matches_of(event) == [("push_head_sha", "confirmed")]
    effect.refresh_from_db()
    assert effect.state == "acknowledged"


def test_a_push_by_an_unlisted_sender_is_ambiguous(host: CodeHost) -> None:
    effect = host.dispatch_push()
    event = host.push(login="somebody")
    assert event.status == "ambiguous"
    assert matches_of(event) == [("push_ref_after", "candidate")]
    effect.refresh_from_db()
    assert (effect.state, effect.confirmed_by) == ("dispatched", "")


def test_two_pushes_that_fit_are_never_chosen_from(bot: CodeHost) -> None:
    first = bot.dispatch_push("e-1")
    second = bot.dispatch_push("e-2", arguments={"ref": "main", "note": "again"})
    event = bot.push()
    assert event.status == "ambiguous"
    assert matches_of(event) == [("push_ref_after", "candidate")] * 2
    for effect in (first, second):
        effect.refresh_from_db()
        assert effect.state == "dispatched"


def test_a_person_chooses_one_of_several(bot: CodeHost) -> None:
    bot.dispatch_push("e-1")
    second = bot.dispatch_push("e-2", arguments={"ref": "main", "note": "again"})
    event = bot.push()
    match = EventMatch.objects.get(event=event, effect=second)
    answer = question(bot, event, do="choose", match=str(match.id))
    assert answer.status_code == 302
    second.refresh_from_db()
    assert (second.state, second.confirmed_by) == ("acknowledged", "github")
    event.refresh_from_db()
    assert event.status == "matched"
    person = ensure_pseudonym(bot.organization.members["operator"].user)
    assert Entry.objects.get(kind="effect.confirmed").actor == person
    assert EventMatch.objects.get(event=event).decided_by == person


def test_a_plan_that_is_dispatched_late_becomes_a_candidate(host: CodeHost) -> None:
    planned = host.plan_push()
    event = host.push()
    assert (event.status, matches_of(event)) == ("open", [("push_ref_after", "undispatched")])
    host.agent.dispatch(planned)
    assert host_events.compare_event(event.id) == "ambiguous"
    assert matches_of(event) == [("push_ref_after", "candidate")]
    assert question(host, event, do="choose").status_code == 302
    event.refresh_from_db()
    assert (event.status, matches_of(event)) == ("matched", [("push_ref_after", "confirmed")])


def test_two_pushes_of_one_ref_and_one_effect_are_ambiguous(bot: CodeHost) -> None:
    first = bot.push(after=OTHER_SHA)
    bot.dispatch_push()
    second = bot.push()
    assert (first.status, second.status) == ("open", "ambiguous")


def test_a_second_push_has_no_effect_behind_it(bot: CodeHost) -> None:
    effect = bot.dispatch_push()
    assert bot.push().status == "matched"
    later = bot.push(before=SHA, after=OTHER_SHA)
    assert (later.status, matches_of(later)) == ("open", [])
    assert EventMatch.objects.filter(effect=effect).count() == 1


@pytest.mark.parametrize(
    "values",
    [
        {"ref": "refs/heads/other"},
        {"ref": "refs/tags/main"},
        {"repository": "acme/other"},
        {"after": NO_SHA},
    ],
)
def test_another_target_does_not_match(bot: CodeHost, values: dict[str, str]) -> None:
    bot.dispatch_push()
    event = bot.push(**values)
    assert (event.status, matches_of(event)) == ("open", [])


def test_another_commit_than_the_named_one_does_not_match(bot: CodeHost) -> None:
    bot.dispatch_push(arguments={"ref": "main", "sha": OTHER_SHA})
    assert matches_of(bot.push()) == []


def test_a_forced_push_is_not_one_that_does_not_force(bot: CodeHost) -> None:
    bot.dispatch_push(arguments={"ref": "main", "force": False})
    assert matches_of(bot.push(forced=True)) == []


def test_the_repository_is_the_same_in_every_spelling(bot: CodeHost) -> None:
    for number, name in enumerate(
        ("https://github.com/Acme/Shop.git", "git@github.com:acme/shop.git", "github.com/acme/shop")
    ):
        ref = f"topic-{number}"
        bot.dispatch_push(
            f"e-{number}", arguments={"ref": ref}, target={"repository": name, "ref": ref}
        )
        assert bot.push(ref=f"refs/heads/{ref}").status == "matched", name
    bot.dispatch_push(
        "e-9", arguments={"ref": "x"}, target={"repository": "gitlab.com/acme/shop", "ref": "x"}
    )
    assert bot.push(ref="refs/heads/x").status == "open"


def test_only_the_newest_effects_are_searched_without_an_index(
    bot: CodeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "MAX_NEWEST", 1)
    address = {"repository": "https://github.com/acme/shop", "ref": "main"}
    bot.dispatch_push("e-1", arguments=address, target={"ref": "main"})
    bot.dispatch_push("e-2", target={"repository": "acme/other", "ref": "main"})
    assert matches_of(bot.push()) == []
    bot.dispatch_push("e-3", arguments=address | {"nth": 3}, target={"ref": "main"})
    assert matches_of(bot.push()) == [("push_ref_after", "confirmed")]


def test_the_compared_repository_is_the_one_that_matched(bot: CodeHost) -> None:
    bot.dispatch_push(arguments={"ref": "main", "remote": "origin"})
    compared = orjson.loads(EventMatch.objects.get(event=bot.push()).compared)
    assert ["repository", "acme/shop", "acme/shop"] in compared


def test_a_push_long_before_the_event_does_not_match(
    bot: CodeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    bot.dispatch_push()
    monkeypatch.setattr(matching, "WINDOW_BEFORE_US", -1)
    monkeypatch.setattr(matching, "WINDOW_AFTER_US", -1)
    assert matches_of(bot.push()) == []


def test_a_part_of_a_compound_command_is_compared(bot: CodeHost) -> None:
    arguments = {
        "command": "make && git push origin main",
        "parts": [
            {"tool": "make", "arguments": {}},
            {"tool": "git.push", "arguments": {"repository": "acme/shop", "ref": "main"}},
        ],
    }
    effect = bot.dispatch_push(tool="make", arguments=arguments, target={"repository": "acme/shop"})
    bot.push()
    effect.refresh_from_db()
    assert effect.confirmed_by == "github"


def test_another_agents_effect_is_not_behind_the_bots_push(bot: CodeHost) -> None:
    with transaction.atomic():
        other = agents.ensure_agent(bot.project, "other")
        agent_identities.remove_identity(AgentIdentity.objects.get(), actor="gatebook")
        agent_identities.add_identity(other, "github", "release-bot", actor="gatebook")
    bot.dispatch_push()
    assert matches_of(bot.push()) == []


def test_a_person_withdraws_a_match(bot: CodeHost) -> None:
    effect = bot.dispatch_push()
    event = bot.push()
    answer = question(bot, event, reason="That was the nightly job, see its log.")
    assert answer.status_code == 302
    effect.refresh_from_db()
    assert (effect.state, effect.outcome, effect.confirmed_by) == ("dispatched", "", "")
    match = EventMatch.objects.get(event=event)
    assert (match.status, match.reason) == ("withdrawn", "That was the nightly job, see its log.")
    kinds = Entry.objects.filter(effect=effect.id).order_by("position")
    assert [entry.kind for entry in kinds][-2:] == ["effect.confirmed", "effect.unconfirmed"]
    event.refresh_from_db()
    assert event.status == "open"
    verdict = bot.agent.get(f"/effects/{effect.id}/verdict").json()
    assert verdict["reason"] != "DONE"
    assert host_events.compare_event(event.id) == "open"  # never matched with it again by itself


def test_a_withdrawal_after_a_report_changes_no_outcome(bot: CodeHost) -> None:
    effect = bot.dispatch_push()
    event = bot.push()
    bot.agent.acknowledge({"id": str(effect.id)})
    question(bot, event, reason="That was the nightly job, see its log.")
    effect.refresh_from_db()
    assert (effect.state, effect.outcome, effect.confirmed_by) == ("acknowledged", "ok", "")


def test_a_withdrawn_match_can_be_chosen_again(bot: CodeHost) -> None:
    effect = bot.dispatch_push()
    event = bot.push()
    question(bot, event, reason="That was the nightly job, see its log.")
    question(bot, event, do="choose")
    effect.refresh_from_db()
    assert (effect.state, effect.confirmed_by) == ("acknowledged", "github")


def test_another_event_keeps_the_confirmation(bot: CodeHost) -> None:
    effect = bot.dispatch_push(arguments={"ref": "main", "sha": SHA})
    event = bot.push()
    run = {
        "action": "completed",
        "workflow_run": {
            "id": 5,
            "event": "push",
            "head_branch": "main",
            "head_sha": SHA,
            "conclusion": "success",
        },
        "repository": {"full_name": "acme/shop", "html_url": "https://github.com/acme/shop"},
        "sender": {"login": "release-bot"},
    }
    assert bot.deliver("workflow_run", run).status_code == 200
    assert sorted(EventMatch.objects.values_list("rule", "status")) == [
        ("push_head_sha", "confirmed"),
        ("run_head_sha", "confirmed"),
    ]
    first = EventMatch.objects.get(event=event)
    question(bot, event, match=str(first.id), reason="The push was made by a person.")
    effect.refresh_from_db()
    assert (effect.state, effect.confirmed_by) == ("acknowledged", "github")


@pytest.mark.parametrize("reason", ["", "no", "x" * 1_001])
def test_a_withdrawal_needs_a_reason(bot: CodeHost, reason: str) -> None:
    bot.dispatch_push()
    event = bot.push()
    answer = question(bot, event, reason=reason)
    assert answer.status_code == 422
    assert "Explain how you know" in answer.content.decode()
    assert matches_of(event) == [("push_ref_after", "confirmed")]


@pytest.mark.parametrize("member", ["viewer", "reviewer"])
def test_only_operators_question_a_match(bot: CodeHost, member: str) -> None:
    bot.dispatch_push()
    event = bot.push()
    assert question(bot, event, member, reason="That was the nightly job.").status_code == 403
    assert matches_of(event) == [("push_ref_after", "confirmed")]


def test_the_effect_page_shows_rule_and_payload(bot: CodeHost) -> None:
    effect = bot.dispatch_push()
    event = bot.push(head_commit={"id": SHA, "message": "<script>alert(1)</script>"})
    page = bot.organization.client("viewer").get(f"/effects/{effect.id}/").content.decode()
    for words in (
        "as confirmed by GitHub",
        "push_ref_after",
        "refs/heads/main",
        f"/code-hosts/{event.delivery_id}/",
        "happened, confirmed by GitHub",
    ):
        assert words in page, words
    assert "<script>alert(1)" not in page


def test_the_page_as_of_a_moment_replays_confirmation_and_withdrawal(
    bot: CodeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    effect = bot.dispatch_push()
    event = bot.push()
    confirmed_at = Entry.objects.latest("position").position
    question(bot, event, reason="That was the nightly job, see its log.")
    client = bot.organization.client("viewer")
    then = client.get(f"/effects/{effect.id}/?asof={confirmed_at}").content.decode()
    assert "as confirmed by GitHub" in then
    now = client.get(f"/effects/{effect.id}/?asof={Entry.objects.latest('position').position}")
    assert "as confirmed by GitHub" not in now.content.decode()


def test_timeline_and_search_show_the_confirmation(bot: CodeHost) -> None:
    effect = bot.dispatch_push()
    event = bot.push()
    client = bot.organization.client("viewer")
    timeline = client.get(f"/sessions/{effect.session_id}/timeline/")
    assert timeline.status_code == 200
    assert str(effect) in client.get("/search/", {"q": "confirmed:github"}).content.decode()
    question(bot, event, reason="That was the nightly job, see its log.")
    assert client.get(f"/sessions/{effect.session_id}/timeline/").status_code == 200
    assert str(effect) not in client.get("/search/", {"q": "confirmed:github"}).content.decode()


def test_a_compensation_is_confirmed_by_people_only(bot: CodeHost) -> None:
    done = bot.dispatch_push()
    bot.agent.acknowledge({"id": str(done.id)}, external_reference=OTHER_SHA)
    undo = bot.agent.post(
        f"/effects/{done.id}/compensate",
        {
            "effect_key": "undo",
            "tool": "git.push",
            "arguments": {"ref": "main", "sha": SHA},
            "target": {"repository": "acme/shop", "ref": "main"},
        },
    ).json()
    bot.agent.dispatch(undo)
    event = bot.push()
    assert matches_of(event) == [("push_head_sha", "evidence")]
    assert Effect.objects.get(id=undo["id"]).state == "dispatched"


def test_an_effect_reported_after_the_delivery_is_found(bot: CodeHost) -> None:
    event = bot.push()
    assert event.status == "open"
    effect = bot.dispatch_push()
    assert host_events.compare_event(event.id) == "matched"
    effect.refresh_from_db()
    assert effect.confirmed_by == "github"


def test_a_delivery_of_another_project_confirms_nothing(bot: CodeHost) -> None:
    elsewhere = Project.objects.create(name="elsewhere")
    source = sources.add_source(elsewhere, "github", "acme", actor="gatebook")
    effect = bot.dispatch_push(arguments={"ref": "main", "sha": SHA})
    answer = bot.deliver(
        "push", build_push(), path=f"/hooks/github/{source.id}", secret=bot.secret(source)
    )
    assert answer.status_code == 200
    effect.refresh_from_db()
    assert effect.confirmed_by == ""
    event = CodeHostEvent.objects.get()
    client = bot.organization.client("viewer")
    assert client.get(f"/code-hosts/{event.delivery_id}/").status_code == 404
