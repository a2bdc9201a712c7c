"""The person that an agent works for can never approve, and a name in a report helps no other
person."""

import re
from itertools import combinations, product
from typing import Any, Final

import orjson
import pytest
from django.db import DatabaseError, IntegrityError, transaction
from django.urls import reverse

from accounts.models import ROLES, Agent
from approvals.models import Gate, Vote
from db.clock import now_us
from journal.models import Body, Entry
from sessions.models import Session
from tests.api.api_client import code
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.reviewer import Reviewer, url_of
from tests.matrices import keep_core
from tests.rows_with_entries import add_row, change_agents


def request_push(inbox: InboxScenario, name: str = "reviewer", **fields: Any) -> Gate:
    """A push that waits, in a session on behalf of `name`."""
    inbox.agent.session("s-1", on_behalf_of=name)
    return inbox.gate(inbox.agent.plan(**fields))


def pseudonym(inbox: InboxScenario, name: str) -> str:
    return str(inbox.person(name).user.person.pseudonym)


def test_the_requester_is_stored_with_session_entry_and_gate(inbox: InboxScenario) -> None:
    gate = request_push(inbox)
    session = Session.objects.get()
    user = inbox.user("reviewer")
    assert (session.on_behalf_of, gate.requester) == (user, user)
    assert inbox.agent.get(f"/sessions/{session.id}").json()["on_behalf_of"] == "reviewer"
    for kind in ("session.started", "gate.requested"):
        entry = Entry.objects.get(kind=kind)
        assert orjson.loads(entry.facts)["on_behalf_of"] == pseudonym(inbox, "reviewer")
        assert "reviewer" not in entry.facts  # a pseudonym is the only name in the facts
    assert (
        orjson.loads(Body.objects.get(entry__kind="session.started").text)["on_behalf_of"]
        == "reviewer"
    )


@pytest.mark.parametrize("name", ["nobody", "neighbour", "Reviewer", "p_0123"])
def test_an_unknown_name_is_refused_and_opens_nothing(inbox: InboxScenario, name: str) -> None:
    answer = inbox.agent.post("/sessions", {"key": "s-1", "on_behalf_of": name})
    assert code(answer) == (422, "on_behalf_of_unknown")
    assert answer.json()["pointer"] == "/on_behalf_of"
    assert "ask an administrator" in answer.json()["detail"]
    assert not Session.objects.exists()
    assert not Entry.objects.filter(kind="session.started").exists()


def test_an_open_session_cannot_change_the_person_it_works_for(inbox: InboxScenario) -> None:
    inbox.agent.session("s-1", on_behalf_of="reviewer", owner="viewer")
    inbox.agent.session("s-1", on_behalf_of="reviewer")
    for other in ({"on_behalf_of": "administrator"}, {"owner": "operator"}):
        assert code(inbox.agent.post("/sessions", {"key": "s-1", **other})) == (
            409,
            "SESSION_DIFFERS",
        )
    assert Session.objects.get().on_behalf_of == inbox.user("reviewer")


def test_a_report_with_an_unknown_name_is_kept_without_a_person(inbox: InboxScenario) -> None:
    report = {"id": "f-1", "kind": "session.started", "session": "night", "on_behalf_of": "nobody"}
    assert inbox.agent.report([report]).json()["accepted"] == 1
    assert Session.objects.get(key="night").on_behalf_of is None
    assert orjson.loads(Body.objects.get(entry__event_id="f-1").text)["on_behalf_of"] == "nobody"
    fact = {"id": "f-2", "kind": "session.started", "session": "day", "on_behalf_of": "viewer"}
    assert inbox.agent.report([fact]).json()["accepted"] == 1
    assert Session.objects.get(key="day").on_behalf_of == inbox.user("viewer")


@pytest.mark.parametrize("how", ["parent", "branched_from"])
@pytest.mark.parametrize("named", [{}, {"on_behalf_of": "reviewer"}])
def test_a_session_under_or_from_another_one_works_for_the_same_person(
    inbox: InboxScenario, how: str, named: dict[str, str]
) -> None:
    inbox.agent.session("s-1", on_behalf_of="reviewer")
    for key, above in (("below", "s-1"), ("deeper", "below")):
        inbox.agent.session(key, **{how: above}, **named)
        inbox.agent.session(key, **{how: above}, **named)
    assert set(Session.objects.values_list("on_behalf_of__username", flat=True)) == {"reviewer"}
    facts = [
        orjson.loads(text)
        for text in Entry.objects.filter(kind="session.started").values_list("facts", flat=True)
    ]
    assert [text["on_behalf_of"] for text in facts].count(pseudonym(inbox, "reviewer")) == 3
    gate = inbox.gate(inbox.agent.plan("e-1", "deeper"))
    assert inbox.answer(gate, "reviewer").refusal[0] == "self_approval"  # type: ignore[index]
    assert inbox.answer(gate, "administrator").refusal is None


@pytest.mark.parametrize("how", ["parent", "branched_from"])
def test_no_agent_drops_the_requester_of_the_parent_session(inbox: InboxScenario, how: str) -> None:
    inbox.agent.session("s-1", on_behalf_of="reviewer")
    refused = inbox.agent.post("/sessions", {"key": "below", how: "s-1", "on_behalf_of": "viewer"})
    assert code(refused) == (422, "on_behalf_of_differs")
    assert not Session.objects.filter(key="below").exists()
    inbox.agent.session("s-2", on_behalf_of="viewer")
    both = {"key": "below", "parent": "s-1", "branched_from": "s-2"}
    for named in ({}, {"on_behalf_of": "viewer"}, {"on_behalf_of": "reviewer"}):
        assert code(inbox.agent.post("/sessions", both | named)) == (422, "on_behalf_of_differs")


@pytest.mark.parametrize("first", ["above", "below"])
@pytest.mark.parametrize("how", ["parent", "branched_from"])
def test_a_reported_session_inherits_its_person_in_any_order_of_reports(
    inbox: InboxScenario, how: str, first: str
) -> None:
    above = {"id": "f-1", "kind": "session.started", "session": "s-1", "on_behalf_of": "reviewer"}
    below = {"id": "f-2", "kind": "session.started", "session": "below", how: "s-1"}
    for fact in (above, below) if first == "above" else (below, above):
        assert inbox.agent.report([fact]).json()["accepted"] == 1
    gate = inbox.gate(inbox.agent.plan("e-1", "below"))
    assert inbox.answer(gate, "reviewer").refusal[0] == "self_approval"  # type: ignore[index]
    assert inbox.answer(gate, "administrator").refusal is None


@pytest.mark.parametrize("how", ["parent", "branched_from"])
def test_a_report_that_names_another_person_excludes_both(inbox: InboxScenario, how: str) -> None:
    inbox.agent.session("s-1", on_behalf_of="reviewer")
    below = {
        "id": "f-1",
        "kind": "session.started",
        "session": "below",
        how: "s-1",
        "on_behalf_of": "operator",
    }
    assert inbox.agent.report([below]).json()["accepted"] == 1
    inbox.agent.session("deeper", parent="below")
    assert inbox.gate(inbox.agent.plan("e-1", "deeper")).requester == inbox.user("reviewer")
    gate = inbox.gate(inbox.agent.plan("e-1", "below"))
    for named in ("reviewer", "operator"):
        assert inbox.answer(gate, named).refusal[0] == "self_approval"  # type: ignore[index]
    assert inbox.answer(gate, "administrator").refusal is None


def test_the_requester_may_deny_but_not_approve_and_sees_the_reason(inbox: InboxScenario) -> None:
    gate = request_push(inbox)
    rita = Reviewer(inbox)
    html = rita.page(url_of(gate))
    assert (
        "The agent acts on your behalf, so another person must approve. You can still deny the "
        "request." in html
    )
    assert 'value="approve"' not in html
    assert rita.answer(gate).status_code == 409
    assert inbox.answer(gate, "reviewer").refusal == (
        "self_approval",
        "The agent acts on your behalf, so another person must approve.",
    )
    assert not Vote.objects.exists()
    assert str(gate.id) not in rita.page(reverse("inbox"), state="mine")
    assert str(gate.id) in Reviewer(inbox, "administrator").page(reverse("inbox"), state="mine")
    assert rita.answer(gate, "deny").status_code == 302
    assert Gate.objects.get().status == "denied"


def test_the_database_refuses_an_approval_of_a_requester(inbox: InboxScenario) -> None:
    gate, now = request_push(inbox), now_us()
    fields: dict[str, Any] = {
        "project": inbox.project,
        "gate": gate,
        "user": inbox.user("reviewer"),
        "actor": "p_x",
        "card_sha256": "c" * 64,
        "shown_version": 1,
        "shown_digest": gate.digest,
        "shown_at_us": now,
        "view_complete": True,
        "position": 1,
        "voted_at_us": now,
    }
    with (
        pytest.raises((IntegrityError, DatabaseError), match="approver_is_not_a_party"),
        transaction.atomic(),
    ):
        add_row(Vote(**fields, answer="approve", own=True))
    add_row(Vote(**fields, answer="deny"))


def test_pages_show_the_requester_and_the_source_of_the_name(inbox: InboxScenario) -> None:
    gate = request_push(inbox, "viewer")
    reader = Reviewer(inbox)
    page = reader.page(url_of(gate))
    assert "</a> for viewer" not in page
    assert " for viewer in <a" in page
    assert 'For <b>viewer</b> <span class="src is-claimed" title="Claimed by the agent">' in page
    assert "1 reviewer (not operator or viewer)." in page
    by = re.search(r'<p class="by">(.*?)</p>', reader.page(reverse("inbox")))
    assert by
    assert re.sub(r"<[^>]+>", "", by[1]).startswith("deploy-7 for viewer, asked ")
    for url in (
        reverse("session", args=[gate.session_id]),
        reverse("effect", args=[gate.effect_id]),
    ):
        assert 'for viewer <span class="quiet">(claimed by agent)</span>' in " ".join(
            reader.page(url).split()
        )


def test_effects_for_a_person_are_found_by_search(inbox: InboxScenario) -> None:
    request_push(inbox, "viewer")
    inbox.agent.session("s-2")
    inbox.agent.plan("e-2", "s-2", arguments={"ref": "next"})
    reader = Reviewer(inbox).client
    position, others = Gate.objects.order_by("opened_position").values_list(
        "effect__opened_position", flat=True
    )
    html = reader.get(reverse("search"), {"q": "on_behalf_of:viewer"}).content.decode()
    assert (f"e_{position}" in html, f"e_{others}" in html) == (True, False)
    html = reader.get(reverse("sessions"), {"on_behalf_of": "viewer"}).content.decode()
    opened = dict(Session.objects.values_list("key", "opened_position"))
    assert (f'id="s_{opened["s-1"]}"' in html, f'id="s_{opened["s-2"]}"' in html) == (True, False)


def test_permission_is_bound_to_the_requester(inbox: InboxScenario) -> None:
    """A session that is reported to work for another person is no longer what people approved."""
    planned = inbox.plan()
    gate = inbox.gate(planned)
    Session.objects.update(on_behalf_of=inbox.user("reviewer"))
    assert inbox.answer(gate, "reviewer").refusal[0] == "self_approval"  # type: ignore[index]
    assert inbox.answer(gate, "administrator").refusal is None
    refused = inbox.agent.post(
        f"/effects/{planned['id']}/dispatch",
        {"process": "p", "intent_digest": planned["intent_digest"]},
    )
    assert (code(refused), refused.json()["reason"]) == (
        (409, "INTENT_MISMATCH"),
        "digest_mismatch",
    )
    assert (Gate.objects.get().status, inbox.effect(planned).permission) == ("revoked", "none")
    again = inbox.gate(inbox.plan())
    assert again.digest != gate.digest
    assert again.requester == inbox.user("reviewer")


def test_a_denial_for_the_session_stays_under_another_requester(inbox: InboxScenario) -> None:
    """A session known only from reports may still be described: that removes no denial."""
    inbox.agent.report([{"id": "f-1", "kind": "moon.risen", "session": "s-1"}])
    denied = inbox.agent.plan()
    inbox.answer(inbox.gate(denied), "reviewer", "deny_session", "never on a Friday")
    inbox.agent.post(f"/effects/{denied['id']}/supersede")
    inbox.agent.session("s-1", on_behalf_of="viewer")
    assert Session.objects.get().on_behalf_of == inbox.user("viewer")
    again = inbox.agent.plan("e-2")
    assert (again["answer"], again["permission"]) == ("blocked", "denied")
    assert Gate.objects.count() == 1


def test_a_person_named_while_it_waits_becomes_a_party(inbox: InboxScenario) -> None:
    """The agent plans before it opens its session, and names the reviewer only then."""
    inbox.agent.report([{"id": "f-1", "kind": "moon.risen", "session": "s-1"}])
    gate = inbox.gate(inbox.agent.plan())
    inbox.agent.session("s-1", on_behalf_of="reviewer")
    assert Gate.objects.get().requester is None
    assert inbox.answer(gate, "reviewer").refusal[0] == "self_approval"  # type: ignore[index]
    assert not Vote.objects.exists()


PARTS: Final = ("requester", "session_owner", "agent_owner", "nobody", "nobody else")


@pytest.mark.once
@pytest.mark.parametrize(
    ("role", "minimum"),
    keep_core(
        product(ROLES, (1, 2, 3)),
        [("viewer", 3), ("reviewer", 2), ("administrator", 1)],
    ),
)
def test_truth_table_of_quorum_distinctness_and_role(
    inbox: InboxScenario, minimum: int, role: str
) -> None:
    """Every set of up to three voters: a gate is approved when enough reviewers without a relation
    approve.

    Voters without a relation are equivalent; of people who do not review, single voters are enough.
    """
    inbox.rules(
        "name: table\nrules:\n- {id: all, title: All, match: {}, outcome: require,"
        f" require: {{minimum: {minimum}}}}}\n"
    )
    people = {part: inbox.person(part.replace(" ", "-"), role).user for part in PARTS}
    change_agents(Agent.objects.filter(id=inbox.organization.agent.id), owner=people["agent_owner"])
    inbox.agent.session("s-1", on_behalf_of="requester", owner="session_owner")
    reviews = ROLES.index(role) >= ROLES.index("reviewer")
    sets = [
        group for size in ((1, 2, 3) if reviews else (1,)) for group in combinations(PARTS, size)
    ]
    for number, voters in enumerate(
        group for group in sets if "nobody" in group or "nobody else" not in group
    ):
        gate = inbox.gate(inbox.agent.plan(f"e-{number}", arguments={"n": number}))
        for part in (*voters, *voters):  # everybody tries twice
            inbox.answer(gate, part.replace(" ", "-"))
        counted = [part for part in voters if reviews and part.startswith("nobody")]
        counted = counted[:minimum]  # the quorum decides it
        cast = set(Vote.objects.filter(gate=gate).values_list("user", flat=True))
        assert cast == {people[part].pk for part in counted}, voters
        approved = Gate.objects.get(id=gate.id).status == "approved"
        assert approved == (len(counted) >= minimum), (voters, minimum)
