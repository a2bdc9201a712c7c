"""URLs of another project: its members are offered a switch, others learn nothing."""

import html
import re
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import pytest
from django.db import transaction
from django.test import Client
from django.urls import reverse

from accounts import people
from accounts.access import PROJECT_PARAMETER
from accounts.models import Project
from approvals import exemptions
from db.clock import now_us
from investigation.exports import exports
from investigation.incidents import incidents
from investigation.models import SavedQuery
from investigation.saved_queries import saved_queries
from tests.api.api_client import Caller
from tests.approvals.confirm_helpers import proved
from tests.pages.people import Organization
from tests.pages.sample_data import SampleIds

pytestmark = pytest.mark.django_db
BUTTON: Final = re.compile(
    r'name="project" value="([^"]+)"><input type="hidden" name="next" value="([^"]+)">'
)


@pytest.fixture
def both(organization: Organization) -> Client:
    """Return the operator of "default", also a member of "payments", which is selected."""
    people.add_project_member(organization.other, "operator", "viewer")
    client = organization.client("operator")
    switch(client, organization.other)
    return client


def switch(client: Client, project: Project, **more: str) -> Any:
    answer = client.post(reverse("switch_project"), {"project": str(project.id), **more})
    assert answer.status_code == 302
    return answer["Location"]


def page(client: Client, url: str, status: int = 200) -> str:
    answer = client.get(url)
    assert answer.status_code == status, (url, answer.status_code)
    return b"".join(answer).decode()


def open_in_project(client: Client, shown: str, project: Project) -> str:
    """Press the button of the page and return the page that the button leads to."""
    [(where, path)] = BUTTON.findall(shown)
    assert where == str(project.id)
    return page(client, switch(client, project, next=html.unescape(path)))


def things(organization: Organization, sample: SampleIds) -> dict[str, str]:
    """Return the page URL of an object of each kind in the project "default"."""
    operator = organization.members["operator"]
    with transaction.atomic():
        exempted = exemptions.create_exemption(
            organization.project,
            tool="*",
            reason="a release is going on",
            ends_at_us=now_us() + 10**9,
            user=operator.user,
            **proved(),
        )
        query = saved_queries.save_query(
            organization.project, operator.user, "Mine", "effect", shared=False
        )
        incident = incidents.open_incident(
            organization.project, "Who pushed?", operator.user, key="k"
        )
    export = exports.request_export(operator, "effect", "csv")
    return {
        "session": reverse("session", args=[sample.session]),
        "effect": f"{reverse('effect', args=[sample.effects['ok']])}?fact=1",
        "task": reverse("task", args=[sample.task]),
        "artifact": reverse("artifact", args=[sample.artifact]),
        "exemption": reverse("exemption", args=[exempted.id]),
        "saved query": reverse("saved_query", args=[query.id]),
        "export": reverse("export_job", args=[export.id]),
        "incident": reverse("incident", args=[incident.id]),
    }


def test_an_object_of_another_own_project_offers_a_switch_and_opens_there(
    organization: Organization, sample: SampleIds, both: Client
) -> None:
    for what, url in things(organization, sample).items():
        shown = page(both, url, 409)
        assert f"<h1>This {what} belongs to another of your projects</h1>" in shown
        assert "It belongs to <b>default</b>. You are in <b>payments</b> now." in shown
        assert "<b>payments</b>" in page(both, url, 409)  # the request has not switched the project
        assert "another of your projects" not in open_in_project(both, shown, organization.project)
        switch(both, organization.other)
    assert (
        both.post(
            reverse("saved_query", args=[SavedQuery.objects.get().id]), {"do": "delete"}
        ).status_code
        == 404
    )


def test_objects_of_foreign_projects_and_private_objects_stay_hidden(
    organization: Organization, sample: SampleIds
) -> None:
    urls = things(organization, sample)
    people.add_project_member(organization.project, "zoe", "viewer", "slate-lantern-orbit-43")
    people.add_project_member(organization.other, "zoe", "viewer")
    neighbour, zoe = organization.client("neighbour"), organization.client("zoe")
    switch(zoe, organization.other)
    for what, url in urls.items():
        answer = page(neighbour, url, 404)
        assert "default" not in answer.partition("<main")[2].partition("<footer")[0]
        assert (
            page(zoe, url, 404 if what in ("saved query", "export") else 409).count("<h1>")
        ) == 1
    unknown_url = urls["session"].replace(
        str(sample.session), str(sample.child)[::-1].replace("-", "")[:32]
    )
    assert page(zoe, unknown_url, 404)


def test_a_link_to_a_search_names_its_project(
    organization: Organization, sample: SampleIds, agent: Caller, both: Client
) -> None:
    shown = page(
        organization.client("viewer"), f"{reverse('search_link')}?q=effect+tool:git.push+since:7d"
    )
    address = html.unescape(re.findall(r"<textarea[^>]*>([^<]+)</textarea>", shown)[0])
    assert parse_qs(urlsplit(address).query)[PROJECT_PARAMETER] == ["default"]
    path = f"{reverse('search')}?{urlsplit(address).query}"
    own_page = page(organization.client("viewer"), path)
    assert "<b>1 effect</b>" in own_page or "effects</b>" in own_page

    refusal = page(both, path, 409)
    assert "<h1>This link belongs to another of your projects</h1>" in refusal
    assert "git.push" not in refusal.partition("<main")[2].partition('name="next"')[0]
    opened_page = open_in_project(both, refusal, organization.project)
    rows = re.compile(r'<th role=rowheader scope=row data-label="Effect">.*?</th>', re.DOTALL)
    assert rows.findall(opened_page) == rows.findall(own_page) != []
    stranger = page(organization.client("neighbour"), path, 404)
    assert "default" not in stranger.partition("<main")[2].partition("<footer")[0]
    assert page(both, reverse("search"))  # the current project is "default" now


def test_the_switch_redirects_to_no_other_site(organization: Organization, both: Client) -> None:
    for path in ("https://evil.example/", "//evil.example/", "javascript:alert(1)", ""):
        assert switch(both, organization.project, next=path) == reverse("home")
    assert switch(both, organization.project, next="/search/?q=effect") == "/search/?q=effect"
