"""An exemption requires as much as the rules that it suspends: people, proof and reversibility."""

import re
from itertools import product
from typing import Any, Final

import pytest
from django.db import DatabaseError, IntegrityError, transaction
from django.urls import reverse

from accounts import people
from accounts.models import Agent, Membership
from approvals import exemptions
from approvals.gates.statuses import US
from approvals.models import Exemption, ExemptionVote, Gate
from db.clock import now_us
from db.errors import ChangeRefused
from investigation.history import past_exemptions as replayed
from investigation.history.moment import JournalCut
from journal.models import Entry
from ledger.models import Effect, Tool
from ledger.tools import cache
from tests.api.api_client import code
from tests.approvals.confirm_helpers import code_in, grant, proved
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.reviewer import Reviewer
from tests.matrices import keep_core
from tests.pages.people import PASSWORD
from tests.rows_with_entries import add_row, change_agents, change_gates, change_roles, change_tools

pytestmark = pytest.mark.django_db
REASON: Final = "The release train, INC-204."
SEEN: Final = re.compile(r'name="(seen-\w{32})" value="([^"]+)"')
TWO: Final = """
name: basic
rules:
  - {id: two, title: Two people, match: {tools: [act]}, outcome: require, require: {minimum: 2}}
  - {id: one, title: One person, match: {tools: [other]}, outcome: require}
"""


@pytest.fixture
def inbox(quiet: InboxScenario) -> InboxScenario:
    """A project without any policy, whose agent belongs to none of the grantors."""
    change_agents(Agent.objects.all(), owner=quiet.user("viewer"))
    return quiet


def exempt(inbox: InboxScenario, who: str, tool: str = "act", **scope: Any) -> Exemption:
    """Grant by the service, with code and password."""
    ends = now_us() + 3600 * US
    with transaction.atomic():
        return exemptions.create_exemption(
            inbox.project,
            tool=tool,
            reason=REASON,
            ends_at_us=ends,
            user=inbox.user(who),
            **scope,
            **proved(),
        )


def confirm(exemption: Exemption, inbox: InboxScenario, who: str) -> bool:
    with transaction.atomic():
        return exemptions.confirm_exemption_grant(exemption, inbox.user(who), **proved())


def dispatch(inbox: InboxScenario, effect: dict[str, Any], **more: Any) -> Any:
    body = {"process": "p-1", "intent_digest": effect["intent_digest"], **more}
    return inbox.agent.post(f"/effects/{effect['id']}/dispatch", body)


# Every way to permission × every rule of N people, step-up and what cannot be undone.
# ---------------------------------

RULE: Final = """
name: basic
rules:
  - id: asks
    title: Asks
    match: {{tools: ["act.*"]}}
    outcome: require
    exemptible: {exemptible}
    require: {{minimum: {minimum}, step_up: {step_up}, rationale: {{on: none}}}}
  - {{id: allows, title: Lets go, match: {{}}, outcome: allow}}
"""
RULES: Final = list(
    product(
        (1, 2),
        ("none", "typed_digest"),
        ("reversible", "irreversible"),
        ("never", "reversible", "irreversible"),
    )
)


@pytest.mark.parametrize(
    ("minimum", "step_up", "reversibility", "exemptible"),
    keep_core(
        RULES,
        [
            (1, "none", "reversible", "reversible"),
            (1, "typed_digest", "irreversible", "never"),
            (2, "typed_digest", "irreversible", "irreversible"),
        ],
    ),
)
def test_no_way_to_permission_requires_less_than_the_rule(
    inbox: InboxScenario, minimum: int, step_up: str, reversibility: str, exemptible: str
) -> None:
    inbox.rules(RULE.format(minimum=minimum, step_up=step_up, exemptible=exemptible))
    final = reversibility == "irreversible"
    needed = "typed_digest" if final else step_up
    ways = ("policy", "exempted", "ruled", "batch", "observed", "replayed")
    for way in ways:
        inbox.declare(f"act.{way}", reversibility)
    # Row 17 of the verdicts: the remote recognises its key, so a used permission serves once more.
    change_tools(
        Tool.objects.filter(name="act.replayed"), tool_class="idempotency_key", key_window_s=86_400
    )
    cache.clear_tool_cache()

    def planned(way: str, key: str) -> dict[str, Any]:
        return inbox.plan(key, tool=f"act.{way}", arguments={"key": key})

    def runs(effect: dict[str, Any]) -> bool:
        return bool(dispatch(inbox, effect).status_code == 200)

    # A rule that allows, as well.
    assert not runs(planned("policy", "policy"))

    # An exemption of one person, and of two.
    may = exemptible == "irreversible" or (exemptible == "reversible" and not final)
    granted = exempt(inbox, "operator", "act.exempted")
    assert runs(planned("exempted", "by-one")) is (may and minimum == 1)
    if minimum == 2:
        assert confirm(granted, inbox, "administrator")
        assert runs(planned("exempted", "by-two")) is may
    assert Exemption.objects.get(id=granted.id).uses == int(may)

    # A ruling: with too little proof, by too few, by enough.
    ruled = planned("ruled", "ruled")
    gate = inbox.gate(ruled)
    names = ["reviewer", "administrator"][:minimum]
    for name in names:
        assert not runs(ruled)
        if needed != "none":
            refused = inbox.answer(gate, name, step_up="none").refusal
            assert refused is not None
            assert refused[0] == "step_up_required"
            assert not runs(ruled)
        assert inbox.answer(gate, name, step_up=needed).refusal is None
    assert runs(ruled)

    # A batch.
    batch = planned("batch", "batch")
    rita = Reviewer(inbox)
    rita.client.post(reverse("batch"), {"gate": [str(inbox.gate(batch).id)]})
    tokens = dict(SEEN.findall(rita.client.get(reverse("batch_confirm")).content.decode()))
    form = {**tokens, "gate": [str(inbox.gate(batch).id)], "answer": "approve", "reason": REASON}
    rita.client.post(reverse("batch_confirm"), form)
    assert runs(batch) is (minimum == 1 and needed == "none")

    # Permitted while the project observed, dispatched after the rules are enforced.
    inbox.rules(RULE.format(minimum=minimum, step_up=step_up, exemptible=exemptible), "observe")
    observed = planned("observed", "observed")
    assert observed["permission_basis"] == "observe"
    inbox.rules(RULE.format(minimum=minimum, step_up=step_up, exemptible=exemptible))
    assert not runs(observed)

    # A replay, after the grantors of the first attempt are gone.
    granted = exempt(inbox, "operator", "act.replayed")
    if minimum == 2:
        confirm(granted, inbox, "administrator")
    kept, lost = planned("replayed", "kept"), planned("replayed", "lost")
    assert (runs(kept), runs(lost)) == (may, may)
    if may:
        assert dispatch(inbox, kept, process="p-2", replays=1).status_code == 200
        change_roles(Membership.objects.filter(user__username="operator"), "reviewer")
        assert code(dispatch(inbox, lost, process="p-2", replays=1)) == (409, "GATE_GONE")


# What only an exemption has.
# -----------------------------------------------------------------------------------------


def test_two_people_grant_an_exemption_from_a_rule_of_two(inbox: InboxScenario) -> None:
    inbox.rules(TWO)
    inbox.declare("act")
    client, other = (
        inbox.organization.client("operator"),
        inbox.organization.client("administrator"),
    )
    fields = {"tool": "act", "hours": "1", "reason": REASON}
    assert grant(client, **fields).status_code == 302
    requested = Exemption.objects.get()
    assert (requested.minimum, requested.in_force_at_us) == (2, None)
    assert list(Entry.objects.filter(subject=requested.id).values_list("kind", flat=True)) == [
        "exemption.requested"
    ]
    assert inbox.plan("e-1", tool="act", arguments={"n": 1})["answer"] == "wait"
    assert "requested, 1 more must grant it" in client.get(reverse("exemptions")).text
    url = reverse("confirm_exemption", args=[requested.id])
    assert url not in client.get(reverse("exemptions")).text, (
        "whoever granted it has nothing to confirm"
    )
    assert url in other.get(reverse("exemptions")).text
    assert inbox.organization.client("reviewer").get(url).status_code == 403

    page = client.get(url).text
    client.post(url, {"code": code_in(page), "password": PASSWORD})
    assert ExemptionVote.objects.count() == 1, "no one grants it twice"
    page = other.get(url).text
    assert REASON in page
    for wrong in (
        {"code": "zzzz", "password": PASSWORD},
        {"code": code_in(page), "password": "wrong"},
    ):
        assert other.post(url, wrong).status_code == 422
    assert code_in(page) != code_in(client.get(url).text), "the code is of who was shown it"
    assert other.post(url, {"code": code_in(page), "password": PASSWORD}).status_code == 302
    granted = Exemption.objects.get()
    assert granted.in_force_at_us is not None
    entries = (
        Entry.objects.filter(subject=granted.id).order_by("position").values_list("kind", "actor")
    )
    names = [inbox.user(name).person.pseudonym for name in ("operator", "administrator")]
    assert list(entries) == [("exemption.requested", names[0]), ("exemption.granted", names[1])]
    assert inbox.plan("e-2", tool="act", arguments={"n": 2})["permission_basis"] == "exemption"
    assert other.post(url, {"code": code_in(page), "password": PASSWORD}).status_code == 302
    assert ExemptionVote.objects.count() == 2


def test_a_grant_requires_the_strictest_rule_that_it_could_suspend(inbox: InboxScenario) -> None:
    inbox.rules(TWO)
    for tool, rule, people_ in (
        ("act", "", 2),
        ("*", "", 2),
        ("a*", "", 2),
        ("other", "", 1),
        ("act", "one", 1),
        ("*", "t*", 2),
    ):
        assert exemptions.count_needed_grantors(inbox.project, tool, rule) == people_, (tool, rule)


def test_an_exemption_from_a_rule_that_grew_stricter_suspends_it_no_more(
    inbox: InboxScenario,
) -> None:
    inbox.declare("act")
    inbox.rules(TWO.replace("minimum: 2", "minimum: 1"))
    exempt(inbox, "operator")
    early = inbox.plan("e-1", tool="act", arguments={"n": 1})
    assert early["permission_basis"] == "exemption"
    inbox.rules(TWO)
    assert code(dispatch(inbox, early)) == (409, "GATE_GONE")
    assert inbox.plan("e-2", tool="act", arguments={"n": 2})["answer"] == "wait"


@pytest.mark.parametrize(
    ("who", "how"),
    keep_core(
        product(["operator", "rita"], ["demoted", "removed", "deactivated"]),
        [("operator", "demoted"), ("rita", "removed"), ("operator", "deactivated")],
    ),
)
def test_an_exemption_ends_with_the_right_to_grant_it(
    inbox: InboxScenario, how: str, who: str
) -> None:
    inbox.rules(TWO)
    inbox.declare("act")
    inbox.person("rita", "operator")
    granted = exempt(inbox, "operator")
    assert confirm(granted, inbox, "rita")
    planned = inbox.plan("e-1", tool="act", arguments={"n": 1})
    other = inbox.plan("e-2", tool="act", arguments={"n": 2})
    assert (planned["permission_basis"], other["permission_basis"]) == ("exemption", "exemption")
    assert dispatch(inbox, planned).status_code == 200
    client = inbox.organization.client("administrator")
    page = reverse("exemption", args=[granted.id])
    assert "in force" in client.get(page).text
    assert inbox.agent.get("/search", q="exemption is:live").json()["rows"]
    before = JournalCut(Entry.objects.latest("position").position, now_us())
    member = Membership.objects.get(project=inbox.project, user__username=who)
    with transaction.atomic():
        if how == "demoted":
            people.change_project_role(member, "reviewer", actor="p_boss")
        elif how == "removed":
            people.remove_project_member(member, actor="p_boss")
        else:
            people.close_account(member.user.username)
    answer = dispatch(inbox, other)
    assert code(answer) == (409, "GATE_GONE")
    assert inbox.plan("e-3", tool="act", arguments={"n": 3})["answer"] == "wait"
    assert "too few of its grantors are still allowed to grant it" in client.get(page).text
    assert "no longer allowed to grant it" in " ".join(client.get(page).text.split())
    assert "too few of its grantors" in client.get(reverse("exemptions")).text
    assert not inbox.agent.get("/search", q="exemption is:live").json()["rows"]
    after = JournalCut(Entry.objects.latest("position").position, now_us())
    then = [
        replayed.rebuild_exemptions(inbox.project.id, [granted.id], cut)[granted.id]
        for cut in (before, after)
    ]
    assert then[0].present == 2  # type: ignore[attr-defined]
    if how != "deactivated":  # no entry of the project records it
        assert then[1].present == 1  # type: ignore[attr-defined]


def test_as_of_a_moment_before_the_second_person_it_is_requested(inbox: InboxScenario) -> None:
    inbox.rules(TWO)
    granted = exempt(inbox, "operator")
    cut = JournalCut(Entry.objects.latest("position").position, now_us())
    confirm(granted, inbox, "administrator")
    late = JournalCut(Entry.objects.latest("position").position, now_us())
    row = replayed.rebuild_exemptions(inbox.project.id, [granted.id], cut)[granted.id]
    assert (row.in_force_at_us, row.present) == (None, 1)  # type: ignore[attr-defined]
    row = replayed.rebuild_exemptions(inbox.project.id, [granted.id], late)[granted.id]
    assert (row.in_force_at_us, row.present) == (Exemption.objects.get().in_force_at_us, 2)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "proof",
    [
        {},
        {"step_up": "typed_digest"},
        {"step_up": "reauth", "password_at_us": 0},
        {"step_up": "typed_digest", "password_at_us": -301},
        {"step_up": "typed_digest", "password_at_us": 5},
    ],
)
def test_the_service_requires_code_and_fresh_password(
    inbox: InboxScenario, proof: dict[str, Any]
) -> None:
    given = dict(proof)
    if "password_at_us" in given:
        given["password_at_us"] = now_us() + given["password_at_us"] * US
    with pytest.raises(ChangeRefused, match="the code and your password"), transaction.atomic():
        exemptions.create_exemption(
            inbox.project,
            tool="x",
            reason=REASON,
            ends_at_us=now_us() + US,
            user=inbox.user("operator"),
            **given,
        )
    with pytest.raises(ChangeRefused, match="Only operators"):
        exempt(inbox, "reviewer")
    assert not Exemption.objects.exists()


def test_a_form_that_was_changed_after_its_code_is_refused(inbox: InboxScenario) -> None:
    client = inbox.organization.client("operator")
    fields = {"tool": "act", "hours": "1", "reason": REASON}
    shown = client.post(reverse("grant_exemption"), fields).text
    changed = {**fields, "tool": "*", "code": code_in(shown), "password": PASSWORD}
    assert client.post(reverse("grant_exemption"), changed).status_code == 422
    assert not Exemption.objects.exists()
    assert grant(client, **fields).status_code == 302


def test_the_schema_keeps_it(inbox: InboxScenario) -> None:
    inbox.rules(TWO)
    inbox.declare("act")
    requested = exempt(inbox, "operator")
    now = now_us()
    vote = {
        "exemption": requested,
        "actor": "p",
        "step_up": "typed_digest",
        "position": 1,
        "voted_at_us": now,
    }
    cases: list[tuple[str, Any]] = [
        (
            "exemption_is_granted_by_enough_people",
            lambda: Exemption.objects.update(in_force_at_us=now),
        ),
        ("exemption_terms_never_change", lambda: Exemption.objects.update(minimum=1)),
        ("exemption_vote_never_changes", lambda: ExemptionVote.objects.update(actor="x")),
        (
            "exemption_vote_is_never_deleted",
            lambda: ExemptionVote.objects.all()._raw_delete("default"),
        ),
        (
            "exemption_vote_is_of_an_operator",
            lambda: add_row(ExemptionVote(**vote, user=inbox.user("reviewer"), password_at_us=now)),
        ),
        (
            "exemption_needs_a_recent_password",
            lambda: add_row(
                ExemptionVote(
                    **vote, user=inbox.user("administrator"), password_at_us=now - 301 * US
                )
            ),
        ),
        (
            "exemption_needs_the_code",
            lambda: add_row(
                ExemptionVote(
                    **{**vote, "step_up": "reauth"},
                    user=inbox.user("administrator"),
                    password_at_us=now,
                )
            ),
        ),
        (
            "exemption_starts_requested",
            lambda: add_row(
                Exemption(
                    project=inbox.project,
                    tool="x",
                    granted_by=inbox.user("operator"),
                    opened_position=1,
                    granted_at_us=now,
                    in_force_at_us=now,
                    ends_at_us=now + US,
                )
            ),
        ),
    ]
    planned = inbox.plan("e-1", tool="act", arguments={"n": 1})
    effect = Effect.objects.filter(id=inbox.effect(planned).id)
    change_gates(Gate.objects.all(), status="cancelled", ended_at_us=now)
    effect.update(permission="none", permission_basis="cancelled")
    let_go = {
        "permission": "granted",
        "permission_basis": "exemption",
        "permission_ref": requested.id.hex,
    }
    cases.append(("permission_by_exemption_has_a_valid_one", lambda: effect.update(**let_go)))
    for constraint, broken in cases:
        with pytest.raises((DatabaseError, IntegrityError), match=constraint), transaction.atomic():
            broken()
    confirm(requested, inbox, "administrator")
    effect.update(**let_go)


def test_pages_mark_a_grantor_whose_password_was_recently_set_by_another(
    inbox: InboxScenario,
) -> None:
    inbox.rules(TWO)
    giver = inbox.user("administrator")
    with transaction.atomic():
        people.reset_member_password(
            inbox.person("operator"), giver, actor=people.ensure_pseudonym(giver)
        )
        people.change_own_password(inbox.user("operator"), PASSWORD)
    exemption = exempt(inbox, "operator")
    client = inbox.organization.client("administrator")
    marked = "administrator set this person's password in the 7 days before"
    pages = [
        " ".join(client.get(reverse(page, args=[exemption.id])).text.split())
        for page in _PAGES_OF_ONE
    ]
    assert [marked in page for page in pages] == [True, True]
    assert confirm(exemption, inbox, "administrator")
    assert (
        " ".join(client.get(reverse("exemption", args=[exemption.id])).text.split()).count(marked)
        == 1
    )


_PAGES_OF_ONE: Final = ("exemption", "confirm_exemption")
