"""What a session shows first: what it waits for, and when its effects ran."""

import re

import pytest
from django.urls import reverse

from display.effect_runs import RunTimes, annotate_runs, read_run_times
from ledger.models import Attempt, Effect
from tests.api.api_client import Caller
from tests.approvals.inbox_scenario import InboxScenario
from tests.pages.people import Organization

pytestmark = pytest.mark.django_db
HOUR_US = 3_600_000_000


def read_page(organization: Organization, url: str, role: str = "reviewer") -> str:
    answer = organization.client(role).get(url)
    assert answer.status_code == 200
    return answer.content.decode().partition("<main")[2].partition("</main>")[0]


def words_of(markup: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", "", markup).split())


def test_a_session_that_waits_for_approval_names_its_requests_first(
    organization: Organization, agent: Caller
) -> None:
    inbox = InboxScenario(organization, agent)
    inbox.rules()
    inbox.declare("deploy")
    planned = [
        inbox.plan(key, tool="deploy", arguments={"to": key})
        for key in ("deploy-one", "deploy-two")
    ]
    url = reverse("session", args=[planned[0]["session"]])
    statement = read_page(organization, url).partition('id="resume"')[2].partition("</section>")[0]
    assert words_of(statement).startswith("> Waiting for 2 approvals; the first expires in")
    assert "Nothing else keeps it from resuming." in statement
    assert "Can it resume safely?" not in statement
    for effect in planned:
        assert reverse("gate", args=[inbox.gate(effect).id]) in statement
    counted = read_page(organization, f"{url}?state=awaiting")
    assert counted.count('data-label="Effect"') == 2  # the number links to these rows
    assert "Review 2 requests" in statement
    assert "Review 2 requests" not in read_page(organization, url, "viewer")
    resume = reverse("session_resume", args=[planned[0]["session"]])
    page = organization.client("reviewer").get(resume).text
    title = words_of(page.partition("<title>")[2].partition("</title>")[0])
    assert f"{inbox.gate(planned[0]).session} waits for 2 approvals" in title
    # The effects are drawn before the table and the details.
    page = read_page(organization, url)
    places = [page.index(f'id="{name}"') for name in ("resume", "lanes", "timeline", "details")]
    assert places == sorted(places)


def test_a_table_shows_when_an_effect_ran_and_how_late_that_was(
    organization: Organization, agent: Caller
) -> None:
    inbox = InboxScenario(organization, agent)
    inbox.rules()
    inbox.declare("deploy")
    effect = inbox.plan("late", tool="deploy")
    for person in ("rita", "sam"):
        inbox.answer(inbox.gate(effect), person)
    agent.dispatch(effect)
    agent.acknowledge(effect)
    row = annotate_runs(Effect.objects.filter(id=effect["id"])).get()
    run = read_run_times(row)
    assert (run.ran_source, run.permitted_by, run.gap_words) == ("dispatch", "approval", "")
    assert run.permission_end_us is not None
    ran_us = run.ran_us or 0
    Attempt.objects.filter(effect=effect["id"]).update(received_us=ran_us + 5 * HOUR_US)
    page = read_page(organization, reverse("session", args=[effect["session"]]))
    cell = words_of(page.partition('data-label="Ran at">')[2].partition("</td>")[0])
    assert re.search(r"[45] h .*after (permission ended|approval)$", cell), cell
    assert 'class="gap is-danger"' in page.partition('data-label="Ran at">')[2]


@pytest.mark.parametrize(
    ("run", "words", "is_late"),
    [
        (
            RunTimes(ran_us=10 * HOUR_US, permitted_us=4 * HOUR_US, permitted_by="plan"),
            "6 h after the plan",
            False,
        ),
        (
            RunTimes(ran_us=HOUR_US, permitted_us=HOUR_US - 1_000_000_000, permitted_by="plan"),
            "",
            False,
        ),
        (
            RunTimes(ran_us=9 * HOUR_US, permission_end_us=4 * HOUR_US, permitted_by="exemption"),
            "5 h after its exemption ended",
            True,
        ),
        (RunTimes(ran_us=HOUR_US, is_bypassed=True), "without permission", True),
        (RunTimes(permitted_us=1, permission_end_us=2), "", False),
    ],
)
def test_the_time_from_permission_to_run_has_words(
    run: RunTimes, words: str, is_late: bool
) -> None:
    assert (run.gap_words, run.is_late) == (words, is_late)


def test_reported_work_shows_the_time_it_ran_and_who_said_so(
    organization: Organization, agent: Caller
) -> None:
    at_us = 1_795_262_400_000_000
    opened = agent.session("reported")
    facts = [
        {"id": f"f-{kind}", "kind": f"effect.{kind}", "session": opened["id"], "effect_key": "one"}
        for kind in ("planned", "dispatched", "acknowledged")
    ]
    facts[0] |= {"tool": "git.push", "occurred_us": at_us}
    facts[1] |= {"occurred_us": at_us + HOUR_US}
    facts[2] |= {"occurred_us": at_us + 2 * HOUR_US, "outcome": "ok"}
    assert agent.report(facts).status_code == 200
    url = reverse("session", args=[opened["id"]])
    page = read_page(organization, f"{url}?times=answered")
    cell = page.partition('data-label="Ran at">')[2].partition("</td>")[0]
    assert "13:00:00" in cell
    assert "reported by the agent, by its clock" in cell
    assert words_of(page.partition("data-label=Took class=num>")[2].partition("</td>")[0]) == "1 h"
