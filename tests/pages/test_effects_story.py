"""An effect page: the worst first, what the call is about, who saw it, and why nobody was asked."""

import re

import pytest
import time_machine
from django.urls import reverse

from approvals.gates import gates
from approvals.models import Gate
from display.effect_headline import effect_headline
from investigation.fulltext import indexer
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


def read_panel(organization: Organization, gate: Gate) -> str:
    page = organization.client("viewer").get(reverse("gate", args=[gate.id])).content.decode()
    panel = page.partition('class="decide ')[2].partition("</article>")[0]
    return " ".join(re.sub(r"<[^>]+>", " ", panel).split())


@pytest.mark.parametrize(
    ("tool", "answer", "planned", "withdrawn"),
    [
        ("deploy", "deny", "approval was denied.", "approval was denied, and its agent withdrew"),
        ("git.tag", "", "a policy denied it.", "a policy denied it, and its agent withdrew it."),
        ("deploy", "", "", "its agent withdrew it before it was dispatched."),
        (
            "deploy",
            "expire",
            "its request expired without an answer.",
            "its request expired without an answer, and its agent withdrew it.",
        ),
        ("deploy", "request_changes", "", "a reviewer requested changes, and its agent withdrew"),
    ],
)
def test_an_effect_that_never_ran_says_first_why(
    organization: Organization,
    agent: Caller,
    tool: str,
    answer: str,
    planned: str,
    withdrawn: str,
) -> None:
    inbox = InboxScenario(organization, agent)
    inbox.rules()
    effect = inbox.plan("one", tool=tool)
    if answer == "expire":
        gate = inbox.gate(effect)
        with time_machine.travel(gate.decide_by_us / 1_000_000 + 1, tick=False):
            assert gates.expire_due_gates() == 1
        panel = read_panel(organization, gate)
        assert "Expired without a decision after 1 h." in panel
        assert "no answer" in panel
    elif answer:
        gate = inbox.gate(effect)
        asked_us = gate.requested_at_us
        with time_machine.travel(asked_us / 1_000_000 + 25 * 60 + 0.5, tick=False):
            assert inbox.answer(gate, "sam", answer).refusal is None
        panel = read_panel(organization, gate)
        word = "denied" if answer == "deny" else "changes requested"
        assert f"{word.capitalize()} after 25 min." in panel
        assert f"{word} by 1" in panel
        assert " of 2 " not in panel
    page = read_words(organization, effect["id"], "reviewer")
    if planned:
        assert f"Not run: {planned}" in page
        assert "Ran at not run" in page
        assert "not run yet" not in page
        assert "Stop this effect" not in page
    else:
        assert "Stop this effect" in page
    if answer == "expire":
        assert "denied" not in page.partition("Journal entries")[0]
        assert "denial" not in page
    assert agent.post(f"/effects/{effect['id']}/supersede", {}).status_code == 200
    page = read_words(organization, effect["id"], "reviewer")
    assert f"Not run: {withdrawn}" in page
    assert "Approved vs. executed not run Permission" in page
    assert inbox.effect(effect).state == "superseded"


def test_a_permission_of_rules_says_that_no_person_was_asked(
    organization: Organization, agent: Caller
) -> None:
    inbox = InboxScenario(organization, agent)
    inbox.rules()
    read = inbox.plan("read", tool="file.read")
    agent.dispatch(read)
    assert inbox.effect(read).permission_basis == "policy"
    page = read_words(organization, read["id"])
    assert "permission used: no person was asked" in page
    assert "used, granted by policy" in page
    client = organization.client("viewer")
    for url in (reverse("session", args=[inbox.effect(read).session_id]), "/search/?q=effect"):
        assert "used, granted by policy" in client.get(url).content.decode(), url


def test_the_nearest_same_call_is_named_with_its_distance(
    organization: Organization, agent: Caller
) -> None:
    runs = []
    for number, key in enumerate(("one", "two")):
        start = NOW_US / 1_000_000 + number * 391
        with time_machine.travel(start, tick=False):
            agent.session(key)
            planned = agent.plan("mail", key, tool="mail.send", arguments={"to": "a"})
            agent.dispatch(planned)
            agent.acknowledge(planned)
            runs.append(planned["id"])
    indexer.update_index()
    first, second = (read_words(organization, run) for run in runs)
    assert "the same call ran, 6 min 31 s later e_" in first
    assert "the same call ran, 6 min 31 s earlier e_" in second
    assert "same call, 6 min 31 s earlier" in second.partition("Related effects")[2]


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
