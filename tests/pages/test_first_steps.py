"""The first steps of an empty project: token, first effect, first rule, first held request."""

import io
import re
import zipfile

import pytest
from django.test import Client
from django.urls import reverse

from accounts.models import Agent, Project
from approvals.models import Activation, Gate
from approvals.policies.policies_yaml import parse_policies
from ledger.models import Effect
from pages.first_steps.client_wheel import build_client_wheel
from pages.first_steps.data import FirstSteps
from pages.first_steps.rule_proposals import SeenCall, propose_rules
from sessions.models import Session
from tests.api.api_client import Caller
from tests.pages.people import Organization
from tests.pages.sample_data import connect_agent

pytestmark = pytest.mark.django_db
PAGE = "/first-steps/"


def plan(agent: Caller, key: str, session: str = "first-1") -> str:
    agent.post("/sessions", {"key": session}, key=f"open-{key}")
    mail = {"tool": "mail.send", "arguments": {"to": "ada@example.org", "subject": key}}
    answer = agent.post("/effects", {"session": session, "effect_key": key, **mail}, key=key)
    return str(answer.json()["answer"])


def test_an_empty_project_goes_from_token_to_a_held_effect(organization: Organization) -> None:
    browser = organization.client("administrator")
    browser.post(reverse("first_token"))
    page = browser.get(PAGE).content.decode()
    (token,) = set(re.findall(r"gbk_[A-Za-z0-9_-]+", page))
    assert re.search(r"This token of the agent <b>(<[^>]+>)?my-agent<", page)
    assert token not in browser.get(PAGE).content.decode()
    mark = re.search(r"first-steps/\?since=(\w+)", page)
    assert mark
    poll = {"since": mark[1]}
    assert browser.get(PAGE, poll, headers={"HX-Request": "true"}).status_code == 204

    with connect_agent(organization.agent) as agent:
        agent.client.headers["Authorization"] = f"Bearer {token}"
        assert plan(agent, "greet") == "proceed"
        shown = browser.get(PAGE, poll, headers={"HX-Request": "true"})
        assert shown.status_code == 200
        body = shown.content.decode()
        assert "2 of 3 done" in body
        assert "ada@example.org" in body
        assert "for <b>1</b> of\n1 recorded" in body
        digest = re.search(r'name="shown_tool-1" value="(\w+)"', body)
        assert digest
        form = {"rule": "tool-1", "shown_tool-1": digest[1]}
        browser.post(reverse("first_rule"), form | {"shown_tool-1": "0"})
        assert not Activation.objects.filter(project=organization.project).exists()
        browser.post(reverse("first_rule"), form)
        activation = Activation.objects.get(project=organization.project)
        assert (str(activation.policy_set), activation.mode) == ("first-rule@1", "enforce")
        assert plan(agent, "again") == "wait"
    gate = Gate.objects.get(project=organization.project)
    assert reverse("gate", args=[gate.id]) in browser.get(PAGE).content.decode()


@pytest.mark.parametrize(
    ("session", "command"),
    [
        ("python-17.5", ".venv/bin/python my_agent.py"),
        ("curl-17", "sh my-agent.sh"),
        ("nightly", None),
    ],
)
def test_after_the_rule_the_command_to_run_again_is_shown(
    organization: Organization, session: str, command: str | None
) -> None:
    browser = organization.client("administrator")
    browser.post(reverse("first_token"))
    page = browser.get(PAGE).content.decode()
    token = re.findall(r"gbk_[A-Za-z0-9_-]+", page)[0]
    if command:
        assert f"\n{command}</pre>" in page
        start = session.partition("-")[0]
        assert f'key=f"{start}-' in page or f"RUN={start}-" in page
    with connect_agent(organization.agent) as agent:
        agent.client.headers["Authorization"] = f"Bearer {token}"
        assert plan(agent, "greet", session) == "proceed"
    page = browser.get(PAGE).content.decode()
    assert "Next, you run the agent once more" in page
    digest = re.search(r'name="shown_tool-1" value="(\w+)"', page)
    assert digest
    browser.post(reverse("first_rule"), {"rule": "tool-1", "shown_tool-1": digest[1]})
    page = browser.get(PAGE).content.decode()
    assert "In the terminal of step 1, run the agent once more" in page
    shown = re.search(r'aria-label="Command to run the agent again"\s*>(.*?)</pre>', page)
    assert (shown and shown[1]) == command
    assert "gbk_" not in page


def test_claude_code_runs_again_by_its_name() -> None:
    session = Session(key="0c6f", labels={"client": "claude-code"})
    effect = Effect(tool="Write", session=session, agent=Agent(name="laptop"))
    assert FirstSteps(Project(), None, [effect], None, None).command == "claude"


def test_only_administrators_get_tokens_and_rules(organization: Organization) -> None:
    reader = organization.client("operator")
    assert "Ask one of them" in reader.get(PAGE).content.decode()
    assert reader.post(reverse("first_token")).status_code == 403
    assert reader.post(reverse("first_rule"), {"rule": "irreversible"}).status_code == 403


def test_hidden_steps_come_back(organization: Organization) -> None:
    browser = organization.client("administrator")

    def read(url: str) -> str:
        return browser.get(url).content.decode()

    assert "Start in three steps" in read("/")
    browser.post(reverse("hide_first_steps"), {"do": "hide"})
    assert "Start in three steps" not in read("/")
    assert "Show on the first page" in read(PAGE)
    browser.post(reverse("hide_first_steps"), {"do": "show"})
    assert "Hide these steps" in read(PAGE)
    assert "Start in three steps" in read("/")


def test_proposals_name_exactly_what_was_seen() -> None:
    hostile = SeenCall('we"ird[*].send', repository="api", ref="main")
    proposals = propose_rules([hostile, hostile, SeenCall("http.get")])
    assert [proposal.key for proposal in proposals] == [
        "tool-1",
        "target-1",
        "tool-2",
        "irreversible",
    ]
    (ask, rest) = parse_policies(proposals[1].text)["rules"]
    assert ask["match"] == {
        "tools": ['we"ird[[][*]].send'],
        "repositories": ["api"],
        "refs": ["main"],
    }
    assert (ask["outcome"], rest["outcome"], rest["match"]) == ("require", "allow", {})


def test_the_client_is_a_wheel_of_its_source(client: Client) -> None:
    wheel = build_client_wheel()
    answer = client.get(reverse("client_wheel", args=[wheel.file_name]))
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        names = archive.namelist()
        assert archive.testzip() is None
        assert "gatebook_client/cli.py" in names
        record = archive.read(next(name for name in names if name.endswith("/RECORD"))).decode()
    assert {line.split(",")[0] for line in record.splitlines()} == set(names)
    assert client.get("/first-steps/client/other.whl").status_code == 404
