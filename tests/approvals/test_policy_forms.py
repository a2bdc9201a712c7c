"""Forms of policies and exemptions, without any script."""

import pytest
from django.db import transaction
from django.urls import reverse

from accounts import people
from accounts.models import Agent
from approvals.models import Exemption, PolicySet
from approvals.policies import policies
from db.clock import now_us
from journal import erasures
from journal.models import Entry
from ledger.models import Effect
from sessions.models import Session
from tests.approvals.confirm_helpers import grant
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.test_policy_pages import DRAFT, exempted, page, post
from tests.rows_with_entries import change_agents

pytestmark = pytest.mark.django_db


def test_a_set_shows_its_text_as_it_was_loaded_with_hidden_characters(inbox: InboxScenario) -> None:
    with transaction.atomic():
        loaded = policies.load_policy_set(inbox.project, f"# <b>\u202e\n{DRAFT}")
    text = page(inbox, "policy_set", loaded.pk)
    assert "&lt;b&gt;" in text
    assert "U+202E" in text
    assert "not in force" in text


def test_a_dry_run_of_a_draft_writes_nothing(inbox: InboxScenario) -> None:
    inbox.plan("push", arguments={"n": 1})
    before = (Entry.objects.count(), PolicySet.objects.count())
    answer = post(inbox, "policy_draft", text=DRAFT, days="7", mode="enforce", do="dry_run")
    assert answer.status_code == 200
    text = answer.content.decode()
    handle = Effect.objects.get()
    assert f">{handle}</a>" in text
    assert "basic, draft/push" in text
    assert "Nobody pushes" in text, "the draft stands in the form again"
    assert (Entry.objects.count(), PolicySet.objects.count()) == before


def test_a_draft_is_loaded_and_not_put_in_force(inbox: InboxScenario) -> None:
    answer = post(
        inbox, "policy_draft", text=DRAFT.replace("\n", "\r\n"), days="7", mode="enforce", do="load"
    )
    loaded = PolicySet.objects.get(version=2)
    assert (answer.status_code, answer["Location"]) == (
        302,
        reverse("policy_set", args=[loaded.pk]),
    )
    assert loaded.text == DRAFT
    assert loaded.loaded_by == people.ensure_pseudonym(inbox.user("administrator"))
    current = policies.load_activation(inbox.project)
    assert current is not None
    assert current.policy_set.version == 1
    post(inbox, "policy_draft", text=DRAFT, days="7", mode="enforce", do="load")
    assert PolicySet.objects.count() == 2


@pytest.mark.parametrize("do", ["dry_run", "load"])
def test_a_faulty_draft_comes_back_with_its_line(inbox: InboxScenario, do: str) -> None:
    answer = post(
        inbox, "policy_draft", text=DRAFT + "rulez: []\n", days="7", mode="enforce", do=do
    )
    assert answer.status_code == 422
    text = answer.content.decode()
    assert "Line 4: the file has the unknown key &#x27;rulez&#x27;; did you mean `rules`?" in text
    assert "Nobody pushes" in text
    assert PolicySet.objects.count() == 1


def test_a_set_is_put_in_force_after_a_question(inbox: InboxScenario) -> None:
    with transaction.atomic():
        loaded = policies.load_policy_set(inbox.project, DRAFT)
    assert "It replaces basic@1, mode enforce" in page(
        inbox, "activate_policy", loaded.pk, role="administrator"
    )
    assert post(inbox, "activate_policy", loaded.pk).status_code == 422, (
        "the mode is said, never left as it was"
    )
    assert post(inbox, "activate_policy", loaded.pk, mode="dictate").status_code == 422
    assert post(inbox, "activate_policy", loaded.pk, mode="observe").status_code == 302
    current = policies.load_activation(inbox.project)
    assert current is not None
    assert (current.policy_set, current.mode, current.user) == (
        loaded,
        "observe",
        inbox.user("administrator"),
    )
    assert "administrator" in page(inbox, "policies")


def test_an_exemption_is_granted_shown_and_revoked(inbox: InboxScenario) -> None:
    change_agents(Agent.objects.filter(name="deploy-7"), owner=inbox.user("reviewer"))
    inbox.agent.session("s-1")
    handle = str(Session.objects.get())
    fields = {
        "tool": "git.push",
        "rule": "push",
        "session": handle,
        "hours": "4",
        "reason": "Friday's <i>train</i>",
    }
    assert grant(inbox.organization.client("operator"), **fields).status_code == 302
    granted = Exemption.objects.get()
    assert (granted.tool, granted.rule, str(granted.session)) == ("git.push", "push", handle)
    assert granted.granted_by == inbox.user("operator")
    assert granted.ends_at_us - granted.granted_at_us == pytest.approx(
        4 * 3_600_000_000, abs=5_000_000
    )
    text = page(inbox, "exemptions")
    assert "Friday&#x27;s &lt;i&gt;train&lt;/i&gt;" in text
    assert "in force" in text
    assert "Revoke" not in text.partition("<tbody")[2], "a viewer sees no button"
    assert inbox.plan("push", arguments={"n": 1})["answer"] == "proceed"
    assert post(inbox, "revoke_exemption", granted.pk, role="operator").status_code == 302
    assert inbox.plan("again", arguments={"n": 2})["answer"] == "wait"
    assert "revoked" in page(inbox, "exemptions")
    assert post(inbox, "revoke_exemption", granted.pk, role="operator").status_code == 302
    assert Entry.objects.filter(kind="exemption.revoked").count() == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tool": ""}, "This field is required"),
        ({"reason": "short"}, "Give a reason"),
        ({"hours": "9000"}, "not one of the available choices"),
        ({"session": "s_999999"}, "no session s_999999"),
        ({"session": "s_x"}, "no session s_x"),
    ],
)
def test_an_invalid_exemption_form_comes_back_with_a_sentence(
    inbox: InboxScenario, change: dict[str, str], words: str
) -> None:
    fields = {"tool": "git.push", "hours": "4", "reason": "The release train."} | change
    answer = post(inbox, "grant_exemption", role="operator", **fields)
    assert answer.status_code == 422
    assert words in answer.content.decode()
    assert not Exemption.objects.exists()


def test_an_erased_reason_is_shown_as_erased(inbox: InboxScenario) -> None:
    granted = exempted(inbox)
    erasures.erase_body(
        inbox.project.id, granted.opened_position, reason="Art. 17", actor="tests", now_us=now_us()
    )
    assert '<span class="quiet">erased</span>' in page(inbox, "exemptions")
