"""For whom an agent says that it works: whom it names can never say yes, and nobody gains anything
by being named."""

import re
from itertools import combinations
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
from tests.approvals.inbox_scenario import Desk
from tests.approvals.reviewer import Reviewer, url_of

UNVERIFIED: Final = "sent by the agent, unverified"


def asked(desk: Desk, name: str = "reviewer", **fields: Any) -> Gate:
    """A push that waits, in a session that works for `name`."""
    desk.agent.session("s-1", on_behalf_of=name)
    return desk.gate(desk.agent.plan(**fields))


def pseudonym(desk: Desk, name: str) -> str:
    return str(desk.person(name).user.person.pseudonym)


def test_whom_it_works_for_is_kept_with_the_session_its_entry_and_the_gate(desk: Desk) -> None:
    gate = asked(desk)
    session = Session.objects.get()
    user = desk.user("reviewer")
    assert (session.on_behalf_of, gate.requester) == (user, user)
    assert desk.agent.get(f"/sessions/{session.id}").json()["on_behalf_of"] == "reviewer"
    for kind in ("session.started", "gate.requested"):
        entry = Entry.objects.get(kind=kind)
        assert orjson.loads(entry.facts)["on_behalf_of"] == pseudonym(desk, "reviewer")
        assert "reviewer" not in entry.facts  # a pseudonym is the only name in the facts
    assert (
        orjson.loads(Body.objects.get(entry__kind="session.started").text)["on_behalf_of"]
        == "reviewer"
    )


@pytest.mark.parametrize("name", ["nobody", "neighbour", "Reviewer", "p_0123"])
def test_an_unknown_name_is_refused_and_opens_nothing(desk: Desk, name: str) -> None:
    answer = desk.agent.post("/sessions", {"key": "s-1", "on_behalf_of": name})
    assert code(answer) == (422, "on_behalf_of_unknown")
    assert answer.json()["pointer"] == "/on_behalf_of"
    assert "ask an administrator" in answer.json()["detail"]
    assert not Session.objects.exists()
    assert not Entry.objects.filter(kind="session.started").exists()


def test_an_open_session_is_not_said_to_be_for_somebody_else(desk: Desk) -> None:
    desk.agent.session("s-1", on_behalf_of="reviewer", owner="viewer")
    desk.agent.session("s-1", on_behalf_of="reviewer")
    for other in ({"on_behalf_of": "administrator"}, {"owner": "operator"}):
        assert code(desk.agent.post("/sessions", {"key": "s-1", **other})) == (
            409,
            "SESSION_DIFFERS",
        )
    assert Session.objects.get().on_behalf_of == desk.user("reviewer")


def test_a_report_with_an_unknown_name_is_kept_and_names_nobody(desk: Desk) -> None:
    report = {"id": "f-1", "kind": "session.started", "session": "night", "on_behalf_of": "nobody"}
    assert desk.agent.report([report]).json()["accepted"] == 1
    assert Session.objects.get(key="night").on_behalf_of is None
    assert orjson.loads(Body.objects.get(entry__event_id="f-1").text)["on_behalf_of"] == "nobody"
    known = {"id": "f-2", "kind": "session.started", "session": "day", "on_behalf_of": "viewer"}
    assert desk.agent.report([known]).json()["accepted"] == 1
    assert Session.objects.get(key="day").on_behalf_of == desk.user("viewer")


@pytest.mark.parametrize("how", ["parent", "branched_from"])
@pytest.mark.parametrize("named", [{}, {"on_behalf_of": "reviewer"}])
def test_a_session_under_or_from_another_one_works_for_the_same_person(
    desk: Desk, how: str, named: dict[str, str]
) -> None:
    desk.agent.session("s-1", on_behalf_of="reviewer")
    for key, above in (("below", "s-1"), ("deeper", "below")):
        desk.agent.session(key, **{how: above}, **named)
        desk.agent.session(key, **{how: above}, **named)
    assert set(Session.objects.values_list("on_behalf_of__username", flat=True)) == {"reviewer"}
    told = [
        orjson.loads(one)
        for one in Entry.objects.filter(kind="session.started").values_list("facts", flat=True)
    ]
    assert [one["on_behalf_of"] for one in told].count(pseudonym(desk, "reviewer")) == 3
    gate = desk.gate(desk.agent.plan("e-1", "deeper"))
    assert desk.answer(gate, "reviewer").refusal[0] == "self_approval"  # type: ignore[index]
    assert desk.answer(gate, "administrator").refusal is None


@pytest.mark.parametrize("how", ["parent", "branched_from"])
def test_no_agent_drops_whom_the_session_above_works_for(desk: Desk, how: str) -> None:
    desk.agent.session("s-1", on_behalf_of="reviewer")
    refused = desk.agent.post("/sessions", {"key": "below", how: "s-1", "on_behalf_of": "viewer"})
    assert code(refused) == (422, "on_behalf_of_differs")
    assert not Session.objects.filter(key="below").exists()
    desk.agent.session("s-2", on_behalf_of="viewer")
    both = {"key": "below", "parent": "s-1", "branched_from": "s-2"}
    for named in ({}, {"on_behalf_of": "viewer"}, {"on_behalf_of": "reviewer"}):
        assert code(desk.agent.post("/sessions", both | named)) == (422, "on_behalf_of_differs")


@pytest.mark.parametrize("first", ["above", "below"])
@pytest.mark.parametrize("how", ["parent", "branched_from"])
def test_a_reported_session_works_for_whom_the_one_above_works_whichever_is_reported_first(
    desk: Desk, how: str, first: str
) -> None:
    above = {"id": "f-1", "kind": "session.started", "session": "s-1", "on_behalf_of": "reviewer"}
    below = {"id": "f-2", "kind": "session.started", "session": "below", how: "s-1"}
    for one in (above, below) if first == "above" else (below, above):
        assert desk.agent.report([one]).json()["accepted"] == 1
    gate = desk.gate(desk.agent.plan("e-1", "below"))
    assert desk.answer(gate, "reviewer").refusal[0] == "self_approval"  # type: ignore[index]
    assert desk.answer(gate, "administrator").refusal is None


@pytest.mark.parametrize("how", ["parent", "branched_from"])
def test_a_report_that_names_somebody_else_sets_nobody_free(desk: Desk, how: str) -> None:
    desk.agent.session("s-1", on_behalf_of="reviewer")
    below = {
        "id": "f-1",
        "kind": "session.started",
        "session": "below",
        how: "s-1",
        "on_behalf_of": "operator",
    }
    assert desk.agent.report([below]).json()["accepted"] == 1
    desk.agent.session("deeper", parent="below")
    assert desk.gate(desk.agent.plan("e-1", "deeper")).requester == desk.user("reviewer")
    gate = desk.gate(desk.agent.plan("e-1", "below"))
    for named in ("reviewer", "operator"):
        assert desk.answer(gate, named).refusal[0] == "self_approval"  # type: ignore[index]
    assert desk.answer(gate, "administrator").refusal is None


def test_whom_it_is_for_says_no_and_never_yes_and_reads_why(desk: Desk) -> None:
    gate = asked(desk)
    rita = Reviewer(desk)
    html = rita.page(url_of(gate))
    assert (
        "The agent acts on your behalf, so another person must approve. You can still deny the "
        "request." in html
    )
    assert 'value="approve"' not in html
    assert rita.answer(gate).status_code == 409
    assert desk.answer(gate, "reviewer").refusal == (
        "self_approval",
        "The agent acts on your behalf, so another person must approve.",
    )
    assert not Vote.objects.exists()
    assert str(gate.id) not in rita.page(reverse("inbox"), state="mine")
    assert str(gate.id) in Reviewer(desk, "administrator").page(reverse("inbox"), state="mine")
    assert rita.answer(gate, "deny").status_code == 302
    assert Gate.objects.get().status == "denied"


def test_the_database_itself_takes_no_yes_of_them(desk: Desk) -> None:
    gate, now = asked(desk), now_us()
    fields: dict[str, Any] = {
        "project": desk.project,
        "gate": gate,
        "user": desk.user("reviewer"),
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
        Vote.objects.create(**fields, answer="approve", own=True)
    Vote.objects.create(**fields, answer="deny")


def test_pages_say_for_whom_and_whose_word_that_is(desk: Desk) -> None:
    gate = asked(desk, "viewer")
    reader = Reviewer(desk)
    page = reader.page(url_of(gate))
    assert "</a> for viewer" not in page
    assert " for viewer in <a" in page
    assert f'For <b>viewer</b> <small class="source" title="{UNVERIFIED}">' in page
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


def test_what_is_done_for_somebody_is_found(desk: Desk) -> None:
    asked(desk, "viewer")
    desk.agent.session("s-2")
    desk.agent.plan("e-2", "s-2", arguments={"ref": "next"})
    reader = Reviewer(desk).client
    found, others = Gate.objects.order_by("opened_position").values_list(
        "effect__opened_position", flat=True
    )
    html = reader.get(reverse("search"), {"q": "on_behalf_of:viewer"}).content.decode()
    assert (f"e_{found}" in html, f"e_{others}" in html) == (True, False)
    html = reader.get(reverse("sessions"), {"on_behalf_of": "viewer"}).content.decode()
    opened = dict(Session.objects.values_list("key", "opened_position"))
    assert (f'id="s_{opened["s-1"]}"' in html, f'id="s_{opened["s-2"]}"' in html) == (True, False)


def test_permission_is_for_whom_it_was_asked(desk: Desk) -> None:
    """A session that is told to be for somebody else meanwhile is no longer what people said yes
    to."""
    planned = desk.plan()
    gate = desk.gate(planned)
    Session.objects.update(on_behalf_of=desk.user("reviewer"))
    assert desk.answer(gate, "reviewer").refusal[0] == "self_approval"  # type: ignore[index]
    assert desk.answer(gate, "administrator").refusal is None
    refused = desk.agent.post(
        f"/effects/{planned['id']}/dispatch",
        {"process": "p", "intent_digest": planned["intent_digest"]},
    )
    assert (code(refused), refused.json()["reason"]) == (
        (409, "INTENT_MISMATCH"),
        "digest_mismatch",
    )
    assert (Gate.objects.get().status, desk.effect(planned).permission) == ("revoked", "none")
    again = desk.gate(desk.plan())
    assert again.digest != gate.digest
    assert again.requester == desk.user("reviewer")


def test_denied_for_good_stays_denied_whomever_it_is_for(desk: Desk) -> None:
    """A session of which only reports are known may still be described: that frees it of nothing."""
    desk.agent.report([{"id": "f-1", "kind": "moon.risen", "session": "s-1"}])
    denied = desk.agent.plan()
    desk.answer(desk.gate(denied), "reviewer", "deny_session", "never on a Friday")
    desk.agent.post(f"/effects/{denied['id']}/supersede")
    desk.agent.session("s-1", on_behalf_of="viewer")
    assert Session.objects.get().on_behalf_of == desk.user("viewer")
    again = desk.agent.plan("e-2")
    assert (again["answer"], again["permission"]) == ("blocked", "denied")
    assert Gate.objects.count() == 1


def test_whoever_is_named_while_it_waits_has_a_part_in_it(desk: Desk) -> None:
    """The agent plans before it opens its session, and names the reviewer only then."""
    desk.agent.report([{"id": "f-1", "kind": "moon.risen", "session": "s-1"}])
    gate = desk.gate(desk.agent.plan())
    desk.agent.session("s-1", on_behalf_of="reviewer")
    assert Gate.objects.get().requester is None
    assert desk.answer(gate, "reviewer").refusal[0] == "self_approval"  # type: ignore[index]
    assert not Vote.objects.exists()


PARTS: Final = ("requester", "session_owner", "agent_owner", "nobody", "nobody else")


@pytest.mark.once
@pytest.mark.parametrize("minimum", [1, 2, 3])
@pytest.mark.parametrize("role", ROLES)
def test_truth_table_of_quorum_distinctness_and_role(desk: Desk, minimum: int, role: str) -> None:
    """Every set of up to three voters: a gate is approved when enough of them review and have no
    part in it.

    Those without a part are like each other; of people who do not review one at a time is enough.
    """
    desk.rules(
        "name: table\nrules:\n- {id: all, title: All, match: {}, outcome: require,"
        f" require: {{minimum: {minimum}}}}}\n"
    )
    people = {part: desk.person(part.replace(" ", "-"), role).user for part in PARTS}
    Agent.objects.filter(id=desk.house.agent.id).update(owner=people["agent_owner"])
    desk.agent.session("s-1", on_behalf_of="requester", owner="session_owner")
    reviews = ROLES.index(role) >= ROLES.index("reviewer")
    sets = [one for size in ((1, 2, 3) if reviews else (1,)) for one in combinations(PARTS, size)]
    for number, voters in enumerate(
        one for one in sets if "nobody" in one or "nobody else" not in one
    ):
        gate = desk.gate(desk.agent.plan(f"e-{number}", arguments={"n": number}))
        for part in (*voters, *voters):  # everybody tries twice
            desk.answer(gate, part.replace(" ", "-"))
        counted = [part for part in voters if reviews and part.startswith("nobody")]
        counted = counted[:minimum]  # with the quorum it is decided
        cast = set(Vote.objects.filter(gate=gate).values_list("user", flat=True))
        assert cast == {people[part].pk for part in counted}, voters
        approved = Gate.objects.get(id=gate.id).status == "approved"
        assert approved == (len(counted) >= minimum), (voters, minimum)
