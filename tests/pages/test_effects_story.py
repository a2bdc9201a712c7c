"""An effect page: the worst first, what the call is about, who saw it, and why nobody was asked."""

import re

import pytest
from django.urls import reverse

from display.effect_headline import effect_headline
from ledger.models import Effect
from ledger.violations import VIOLATION_LABELS
from tests.api.api_client import Caller
from tests.approvals.inbox_scenario import InboxScenario
from tests.pages.people import Organization
from tests.pages.sample_data import SampleIds

pytestmark = pytest.mark.django_db
NOW_US = 1_795_262_400_000_000


def read_words(organization: Organization, effect: str, role: str = "viewer") -> str:
    answer = organization.client(role).get(reverse("effect", args=[effect]))
    assert answer.status_code == 200
    page = answer.content.decode().partition("<main")[2].partition("</main>")[0]
    return " ".join(re.sub(r"<[^>]+>", "", page).split())


def test_a_violation_stands_before_the_outcome() -> None:
    effect = Effect(
        state="acknowledged",
        outcome="ok",
        planned_mark="m",
        permission="used",
        settled_at_us=NOW_US,
    )
    for name in ("executed_while_stopped", "acknowledged_twice"):
        wrong = VIOLATION_LABELS[name]
        headline = effect_headline(effect, [], 1, NOW_US, [wrong])
        assert headline.words == f"{wrong.rstrip('.')}:"
        assert headline.rest[0] == " acknowledged"
        assert headline.style == "failed"
    assert effect_headline(effect, [], 1, NOW_US).words == "Acknowledged"


def test_the_title_of_an_edit_is_its_file_and_the_rule_that_let_it_through_is_named(
    organization: Organization, agent: Caller
) -> None:
    inbox = InboxScenario(organization, agent)
    inbox.rules()
    arguments = {"file_path": "payments/rounding.py", "content": "x"}
    target = {"repository": "web", "ref": "refs/heads/main"}
    read = inbox.plan("read", tool="file.read", arguments=arguments, target=target)
    agent.dispatch(read)
    words = read_words(organization, read["id"])
    heading = words.partition("file.read")[2]
    assert heading.strip().startswith("payments/rounding.py")
    assert "The rule basic@1/reads allowed it without asking anybody." in words


def test_what_people_saw_and_did_is_listed_by_name(
    organization: Organization, agent: Caller
) -> None:
    inbox = InboxScenario(organization, agent)
    inbox.rules()
    inbox.declare("deploy")
    effect = inbox.plan("one", tool="deploy")
    gate = inbox.gate(effect)
    looked = organization.client("reviewer").get(reverse("gate", args=[gate.id]))
    assert looked.status_code == 200
    inbox.answer(gate, "sam")
    acts = read_words(organization, effect["id"]).partition("What people saw and did")[2]
    acts = acts.partition("Journal entries")[0]
    assert "approval requested" in acts
    assert re.search(r"\breviewer saw the request, version \d", acts), acts
    assert re.search(r"\bsam answered the request", acts), acts
    assert "without asking anybody" not in acts


def test_related_effects_and_attempts_are_drawn_and_listed(
    organization: Organization, sample: SampleIds
) -> None:
    client = organization.client("viewer")
    links = {}
    for name in ("compensated", "ok"):
        url = reverse("effect", args=[sample.effects[name]])
        page = client.get(url).content.decode()
        graph = page.partition('id="graph"')[2].partition("</section>")[0]
        table = page.partition('id="relations"')[2].partition("</section>")[0]
        drawn = re.findall(r'<a href="(/effects/[^"]+/)">\s*<svg', graph)
        listed = re.findall(r'class="handle" href="(/effects/[^"]+/)"', table)
        assert sorted(drawn) == sorted(listed)
        links[name] = drawn
    assert links["compensated"]
    retried = client.get(reverse("effect", args=[sample.effects["rejected"]])).content.decode()
    assert "attempt 1: " in retried
    assert "attempt 2: " in retried
