"""Answers that are taken back within five seconds, through the page."""

import re
from collections.abc import Callable

import pytest
import time_machine
from django.db import IntegrityError, connection, transaction
from django.urls import reverse

from approvals.gates.statuses import US
from approvals.models import Gate, Vote
from approvals.views import vote
from approvals.voting import undo
from approvals.voting.votes import VoteResult
from journal.models import Entry
from ledger.models import Effect
from tests.api.api_client import code
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.reviewer import Reviewer, url_of
from tests.rebuild.test_rebuilt_stories import list_differences

pytestmark = pytest.mark.django_db


def take_back(rita: Reviewer, gate: Gate) -> str:
    """Press Undo on the answered request; return the text of the page that follows."""
    answer = rita.client.post(reverse("gate_undo", args=[gate.id]), follow=True)
    assert answer.status_code == 200
    return answer.content.decode()


@pytest.mark.parametrize(("vote", "status"), [("approve", "revoked"), ("deny", "denied")])
def test_an_answer_taken_back_makes_the_request_again(
    inbox: InboxScenario, rita: Reviewer, vote: str, status: str
) -> None:
    planned = inbox.plan()
    gate = inbox.gate(planned)
    page = rita.client.post(
        reverse("gate_vote", args=[gate.id]),
        {"answer": vote, "reason": "too quick", "seen": rita.seen(gate), "settled": "1"},
        follow=True,
    ).content.decode()
    assert f'action="{reverse("gate_undo", args=[gate.id])}"' in page
    assert "is taken back" in take_back(rita, gate)
    again = inbox.gate(planned)
    assert again.id != gate.id
    assert (again.status, again.digest, again.minimum) == ("pending", gate.digest, gate.minimum)
    gate.refresh_from_db()
    assert gate.status == status
    assert Vote.objects.get(gate=gate).answer == vote
    entry = Entry.objects.get(kind="gate.undone", subject=gate.id)
    assert f'"again":"{again.id.hex}"' in entry.facts
    effect = Effect.objects.get(id=gate.effect_id)
    assert (effect.permission, effect.permission_ref) == ("pending", again.id.hex)
    body = {"process": "p-1", "intent_digest": planned["intent_digest"]}
    sent = inbox.agent.post(f"/effects/{planned['id']}/dispatch", body)
    assert code(sent) == (409, "GATE_PENDING")
    assert inbox.agent.get(f"/gates/{gate.id}").json()["status"] == status
    assert list_differences() == []
    assert inbox.answer(again, "reviewer").refusal is None
    assert inbox.agent.dispatch(planned)


def test_an_answer_taken_back_warns_nobody(inbox: InboxScenario, rita: Reviewer) -> None:
    planned = inbox.plan(arguments={"order": "A-1042", "amount": 50})
    gate = inbox.gate(planned)
    rita.answer(gate, "deny")
    take_back(rita, gate)
    again = inbox.gate(planned)
    related = inbox.gate(inbox.plan("e-2", arguments={"order": "A-1042", "amount": 5}))
    for request in (again, related):
        page = rita.page(url_of(request))
        assert not re.search(r"[Dd]enied \d+\s+s ago|[Rr]esubmitted with", page)
        assert f'class="similar" href="{url_of(gate)}"' not in page
    assert not re.search(r"denied \d+\s+s ago|resubmitted\nwith", rita.page(reverse("inbox")))
    assert "denied" in rita.page(reverse("inbox"), state="decided")  # the record keeps it
    rita.answer(again, "deny")  # an answer that stands warns
    assert re.search(r"[Dd]enied \d+\s+s ago", rita.page(url_of(related)))


def test_an_approval_of_several_is_taken_back(inbox: InboxScenario, rita: Reviewer) -> None:
    second = inbox.plan(tool="deploy")  # needs two people
    gate = inbox.gate(second)
    assert inbox.answer(gate, "reviewer").refusal is None
    take_back(rita, gate)
    gate.refresh_from_db()
    assert (gate.status, gate.reason) == ("cancelled", "undone")
    assert inbox.gate(second).status == "pending"


def test_an_answer_stands_after_five_seconds(inbox: InboxScenario, rita: Reviewer) -> None:
    gate = inbox.gate(inbox.plan())
    rita.answer(gate)
    voted_at = Vote.objects.get(gate=gate).voted_at_us
    with time_machine.travel(voted_at / US + 5.5, tick=False):
        assert "for 5 seconds only" in take_back(rita, gate)
    assert (inbox.gate({"id": str(gate.effect_id)}).id, gate.status) == (gate.id, "pending")
    assert not Entry.objects.filter(kind="gate.undone").exists()


def test_an_answer_stands_once_the_agent_used_it(inbox: InboxScenario, rita: Reviewer) -> None:
    planned = inbox.plan()
    gate = inbox.gate(planned)
    rita.answer(gate)
    inbox.agent.dispatch(planned)
    assert "has already used this approval" in take_back(rita, gate)
    assert inbox.gate(planned).status == "used"


USED = "The agent has used it; it cannot be undone."


def ask_for_undo(rita: Reviewer, gate: Gate) -> tuple[int, str]:
    """Ask as the button does whether it still works."""
    url = reverse("gate_undo", args=[gate.id])
    answer = rita.client.get(url, headers={"HX-Request": "true"})
    return answer.status_code, answer.content.decode().strip()


def test_the_button_goes_as_soon_as_the_agent_used_the_approval(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    planned = inbox.plan()
    gate = inbox.gate(planned)
    rita.answer(gate)
    assert ask_for_undo(rita, gate) == (204, "")
    assert ask_for_undo(Reviewer(inbox, "administrator"), gate) == (200, "")
    inbox.agent.dispatch(planned)
    status, text = ask_for_undo(rita, gate)
    assert (status, re.sub(r"<[^>]+>", "", text)) == (200, USED)
    voted_at = Vote.objects.get(gate=gate).voted_at_us
    with time_machine.travel(voted_at / US + 5.5, tick=False):
        assert ask_for_undo(rita, gate) == (200, "")
    assert rita.client.get(reverse("gate_undo", args=[gate.id]))["Location"] == url_of(gate)


def test_the_request_on_the_page_polls_as_soon_as_the_line_above_says_used(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    planned = inbox.plan()
    gate = inbox.gate(planned)
    page = rita.page(rita.answer(gate)["Location"])
    inbox.agent.dispatch(planned)
    url = reverse("gate_undo", args=[gate.id])
    event = rita.client.get(url, headers={"HX-Request": "true"})["HX-Trigger"]
    assert re.search(rf'hx-trigger="[^"]*, {event} from:body" [^>]*data-polls', page)


def test_no_button_is_shown_if_the_agent_was_faster_than_the_page(
    inbox: InboxScenario, rita: Reviewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = inbox.plan()
    gate = inbox.gate(planned)
    run_vote = vote.run_vote

    def run_then_dispatch(verb: Callable[[], VoteResult]) -> VoteResult:
        outcome = run_vote(verb)
        inbox.agent.dispatch(planned)
        return outcome

    monkeypatch.setattr(vote, "run_vote", run_then_dispatch)
    page = rita.page(rita.answer(gate)["Location"])
    assert USED in page
    assert reverse("gate_undo", args=[gate.id]) not in page


@pytest.mark.parametrize(
    ("vote", "who", "sentence"),
    [
        ("deny_session", "reviewer", "Only an approval or a denial"),
        ("request_changes", "reviewer", "Only an approval or a denial"),
        ("approve", "administrator", "You have not answered"),
    ],
)
def test_other_answers_are_not_taken_back(
    inbox: InboxScenario, rita: Reviewer, vote: str, who: str, sentence: str
) -> None:
    gate = inbox.gate(inbox.plan())
    assert inbox.answer(gate, who, vote).refusal is None
    assert sentence in take_back(rita, gate)
    assert Gate.objects.count() == 1


def test_the_database_keeps_a_denial_that_nobody_took_back(inbox: InboxScenario) -> None:
    planned = inbox.plan()
    gate = inbox.gate(planned)
    assert inbox.answer(gate, "reviewer", "deny").refusal is None
    raw = "UPDATE ledger_effect SET permission = 'pending' WHERE permission = 'denied'"
    with pytest.raises(IntegrityError, match="denied_stays_denied"), transaction.atomic():
        connection.cursor().execute(raw)
    with transaction.atomic():
        assert undo.undo_vote(gate, inbox.person("reviewer")).refusal is None
    assert inbox.effect(planned).permission == "pending"


def test_the_page_after_an_answer_counts_what_is_left(inbox: InboxScenario, rita: Reviewer) -> None:
    gates = [inbox.gate(inbox.plan(f"e-{n}", arguments={"ref": f"r{n}"})) for n in range(3)]
    target = rita.answer(gates[0])["Location"]
    page = rita.page(target)
    assert "<b>2 left</b>" in page
    assert re.search(r"<title>\(2\) ", page)
