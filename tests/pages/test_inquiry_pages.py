"""The reading pages: what each shows of the sample data, and what each refuses."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver, reverse

from ledger.models import Effect
from sessions.models import Artifact, Session, Task
from tests.api.api_client import Caller
from tests.pages.people import Organization
from tests.pages.sample_data import (
    REPORT,
    SampleIds,
    connect_agent,
    done,
    everything,
    fill,
    pass_deadline,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def viewer(organization: Organization) -> Client:
    """Return a browser signed in as a viewer."""
    return organization.client("viewer")


def words(answer: Any) -> str:
    """Return the text of a page without markup."""
    assert answer.status_code == 200, answer.status_code
    return " ".join(re.sub(r"<[^>]+>", " ", main(answer)).split())


def main(answer: Any) -> str:
    """Return the markup of a page's main part."""
    text: str = answer.content.decode()
    return text.partition("<main")[2].partition("</main>")[0]


def effect_page(viewer: Client, sample: SampleIds, name: str) -> str:
    return words(viewer.get(reverse("effect", args=[sample.effects[name]])))


def test_the_list_shows_agent_branch_status_and_parent_of_a_session(
    viewer: Client, sample: SampleIds
) -> None:
    page = words(viewer.get("/sessions/"))
    parent = Session.objects.get(id=sample.session)
    for phrase in (
        "Deploy the web shop",
        "deploy-7",
        "web @ hotfix/rounding",
        "running",
        "leased",
        f"under {parent} Read",
    ):
        assert phrase in page


FILTERED = [
    ("status=running", 2),
    ("status=no_end_told", 0),
    ("status=failed", 0),
    ("mode=leased", 1),
    ("agent=deploy-7", 2),
    ("agent=nobody", 0),
    ("repository=web", 1),
    ("text=deploy", 2),
    ("text=READ", 1),
    ("text=eploy", 0),
    ("parent=deploy-web", 1),
    ("parent=nothing", 0),
]


def test_the_list_is_filtered_by_the_database(viewer: Client, sample: SampleIds) -> None:
    for query, expected in FILTERED:
        assert main(viewer.get(f"/sessions/?{query}")).count('role="row"') == (
            expected + 1 if expected else 0
        )


def test_a_reported_session_without_an_end_is_not_shown_as_running(
    agent: Caller, viewer: Client
) -> None:
    reported = agent.session("told-later", mode="reported")["id"]
    leased = agent.session("watched", mode="leased", parent=reported)["id"]
    rows = {
        key: words(viewer.get(f"/sessions/?text={key}")).partition("Last seen")[2]
        for key in ("told", "watched")
    }
    assert "end not reported" in rows["told"]
    assert "running" not in rows["told"]
    assert "running" in rows["watched"]
    assert "end not reported" not in rows["watched"]
    for url in (reverse("session", args=[reported]), reverse("session_timeline", args=[reported])):
        head = main(viewer.get(url)).partition("</header>")[0]
        assert "end not reported" in head
        assert "running" not in head
    page = viewer.get(reverse("session", args=[reported]))
    assert ", end not reported" in page.text.partition("</title>")[0]
    assert "running" in words(page)  # its sub-session
    assert (
        "running" in main(viewer.get(reverse("session", args=[leased]))).partition("</header>")[0]
    )
    done(agent.post(f"/sessions/{reported}/end", {"status": "completed"}))
    for url in (reverse("session", args=[reported]), "/sessions/?status=completed"):
        assert "completed" in words(viewer.get(url))
    assert "no session matches this" in words(viewer.get("/sessions/?status=no_end_told")).lower()


def test_an_unknown_filter_is_reported_and_not_ignored(viewer: Client, sample: SampleIds) -> None:
    for url in ("/sessions/?stat=x", f"/sessions/{sample.session}/?stat=x"):
        assert "Unknown filter “stat” was ignored" in words(viewer.get(url))
    assert "Unknown state" in words(viewer.get(f"/sessions/{sample.session}/?state=x"))
    assert "Unknown outcome" in words(viewer.get(f"/sessions/{sample.session}/?outcome=x"))
    assert "is not a task" in words(viewer.get(f"/sessions/{sample.session}/?task=x"))
    assert "must be a journal position" in words(
        viewer.get(f"/sessions/{sample.session}/?before=x")
    )


def test_an_empty_list_of_sessions_explains_how_to_begin(
    viewer: Client, organization: Organization
) -> None:
    page = words(viewer.get("/sessions/"))
    assert "No agent has reported anything yet" in page
    assert page.count("post ") == 4
    assert "issue_token" in page


def test_the_session_page_shows_facts_tree_items_children_and_artifacts(
    viewer: Client, sample: SampleIds
) -> None:
    page = words(viewer.get(reverse("session", args=[sample.session])))
    for phrase in (
        "ticket = INC-204",
        "Release 2.8.1",
        "Notify customers",
        "2 / 4 1 failed",
        "Read the logs",
        "report.svg",
    ):
        assert phrase in page
    assert f"{Effect.objects.filter(session=sample.session).count()} effects, newest first" in page
    child = words(viewer.get(reverse("session", args=[sample.child])))
    assert "Under s_" in child


def test_counts_by_state_agree_with_the_filters_behind_them(
    viewer: Client, sample: SampleIds
) -> None:
    pass_deadline(sample.effects["dispatched"])
    page = main(viewer.get(reverse("session", args=[sample.session])))
    links = re.findall(
        r'\?state=(\w+)#timeline">\s*<span[^>]*><svg.*?</svg>([^<]+)</span> (\d+)', page
    )
    assert {state for state, _, _ in links} == {
        *("planned", "acknowledged", "failed", "unknown", "compensated", "superseded")
    }
    for state, _word, number in links:
        table = main(
            viewer.get(reverse("session", args=[sample.session]), {"state": state})
        ).partition('id="rows"')[2]
        assert len(re.findall(r'data-label="Effect"', table)) == int(number)
    assert {state: int(number) for state, _, number in links}["unknown"] == 3


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"outcome": "error"}, {"error", "rejected"}),
        ({"tool": "mail.send"}, {"dispatched", "superseded"}),
        ({"problems": "1"}, {"error", "unknown", "timeout", "rejected", "dispatched"}),
        ({"task": "its"}, {"planned"}),
        ({"tool": "nothing"}, set()),
    ],
)
def test_the_timeline_is_filtered(
    viewer: Client, sample: SampleIds, query: dict[str, str], expected: set[str]
) -> None:
    pass_deadline(sample.effects["dispatched"])
    if "task" in query:
        query = {"task": str(Task.objects.get(id=sample.task))}
    page = main(viewer.get(reverse("session", args=[sample.session]), query)).partition(
        'id="rows"'
    )[2]
    shown = {name for name, identity in sample.effects.items() if f"/effects/{identity}/" in page}
    assert shown == expected


def test_any_row_is_reached_by_a_link(viewer: Client, sample: SampleIds) -> None:
    effect = Effect.objects.get(id=sample.effects["ok"])
    page = main(viewer.get(reverse("session", args=[sample.session]), {"at": str(effect)}))
    row = next(part for part in page.split("<tr") if f'id="{effect}"' in part)
    assert 'class="is-marked"' in row
    absent = words(viewer.get(reverse("session", args=[sample.session]), {"at": "e_999999"}))
    assert "e_999999 is not on this page" in absent


def test_the_timeline_poll_is_empty_until_there_are_changes(
    viewer: Client, agent: Caller, sample: SampleIds
) -> None:
    page = main(viewer.get(reverse("session", args=[sample.session])))
    match = re.search(r'hx-get="([^"]+)"\s+hx-trigger="every 5s"', page)
    assert match
    url = match[1].replace("&amp;", "&")
    quiet = viewer.get(url, headers={"HX-Request": "true"})
    assert (quiet.status_code, quiet.content) == (204, b"")
    agent.plan("news", str(sample.session), arguments={"command": "git tag v2.8.1"})
    news = viewer.get(url, headers={"HX-Request": "true"})
    assert news.status_code == 200
    assert news.content.lstrip().startswith(b'<div id="rows"')
    assert "git tag v2.8.1" in news.content.decode()
    assert "HX-Request" in news.headers["Vary"]
    assert viewer.get(url).content.startswith(b"<!doctype html>")
    paused = main(viewer.get(reverse("session", args=[sample.session]), {"live": "off"}))
    assert "hx-get" not in paused.partition("<main")[2]


def test_the_task_page_shows_which_items_are_done(viewer: Client, sample: SampleIds) -> None:
    url = reverse("task", args=[sample.task])
    page = words(viewer.get(url))
    for phrase in ("customer-0", "done 2", "failed 1", "pending 1", "w-2", "Release 2.8.1"):
        assert phrase in page
    assert "customer-0" not in words(viewer.get(url, {"state": "failed"}))
    assert "Unknown item state" in words(viewer.get(url, {"state": "odd"}))
    assert "Notify customers" in words(viewer.get(reverse("session_tasks", args=[sample.session])))


def test_artifacts_are_downloads_and_never_documents(viewer: Client, sample: SampleIds) -> None:
    answer = viewer.get(reverse("artifact", args=[sample.artifact]))
    assert b"".join(answer) == REPORT
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Content-Disposition"].startswith("attachment")
    assert viewer.get(reverse("artifact", args=[sample.unstored])).status_code == 404
    page = main(viewer.get(reverse("session_artifacts", args=[sample.session])))
    assert page.count("not stored") == 1
    assert 'href="javascript:' not in page
    kept = Artifact.objects.get(id=sample.artifact)
    Artifact.objects.filter(id=sample.artifact).update(sha256="00" * 32)
    assert viewer.get(reverse("artifact", args=[kept.id])).status_code == 404


def patterns(resolver: URLResolver, prefix: str = "") -> Iterator[tuple[str, URLPattern]]:
    """Return every URL pattern with its full route."""
    for pattern in resolver.url_patterns:
        route = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from patterns(pattern, route)
        else:
            yield route, pattern


def test_every_url_with_an_id_of_another_project_is_not_found(
    organization: Organization, sample: SampleIds
) -> None:
    """Try every URL that takes an id of a reading page with the ids of a neighbour."""
    with connect_agent(organization.other_token.agent) as stranger:
        foreign_book = fill(stranger)
    foreign, own = everything(organization.other), everything(organization.project)
    assert foreign_book.session in foreign["session"]
    names = {"session", "task", "effect", "artifact", "position"}
    tried = set()
    viewer = organization.client("administrator")
    for route, pattern in patterns(get_resolver()):
        arguments = set(pattern.pattern.regex.groupindex)
        if not arguments or not arguments <= names or pattern.name is None:
            continue
        tried.add(pattern.name)
        named = (arguments - {"position"} or arguments).pop()
        for identity in foreign[named][:3]:
            kwargs: dict[str, Any] = {named: identity}
            if named != "position" and "position" in arguments:
                kwargs["position"] = foreign["position"][0]
            answer = viewer.get(reverse(pattern.name, kwargs=kwargs))
            if answer.status_code == 405:  # an endpoint that only accepts POST
                answer = viewer.post(reverse(pattern.name, kwargs=kwargs))
            assert answer.status_code == 404, route
    assert tried == {
        *("session", "session_timeline", "session_tasks", "session_artifacts"),
        *(
            "session_decisions",
            "session_handoffs",
            "session_state",
            "session_people",
            "session_resume",
            "session_why",
        ),
        *(
            "session_messages",
            "send_to_session",
            "export_bundle",
            "session_bundle",
            "session_compare",
        ),
        *(
            "task",
            "effect",
            "effect_chain",
            "raw_fact",
            "artifact",
            "erase_body",
            "resolve",
            "resolve_confirm",
        ),
        *("proof", "proof_file"),
    }
    assert not set(own["effect"]) & set(foreign["effect"])
    for handle in map(
        str,
        [
            *Session.objects.filter(project=organization.other),
            *Effect.objects.filter(project=organization.other),
        ],
    ):
        assert viewer.get("/search/jump/", {"id": handle}).status_code == 200, (
            "a neighbour's handle leads nowhere"
        )
    assert str(foreign_book.session) not in viewer.get("/sessions/").content.decode()
    assert "neighbour" not in words(viewer.get("/search/"))
    other_key = Session.objects.filter(project=organization.other).first()
    assert other_key is not None
    assert "There is no session" in words(viewer.get("/search/", {"q": f"session:{other_key}"}))


def test_signed_out_people_are_redirected_to_sign_in(client: Client, sample: SampleIds) -> None:
    for url in (
        "/sessions/",
        f"/sessions/{sample.session}/",
        "/search/",
        "/search/jump/?id=e_1",
        f"/artifacts/{sample.artifact}/",
    ):
        assert client.get(url).headers["Location"].startswith("/sign-in/?next=")


@pytest.mark.parametrize(
    ("status", "offers"), [("running", True), ("completed", False), ("failed", False)]
)
def test_a_session_that_has_ended_is_not_offered_a_stop(
    organization: Organization, agent: Caller, status: str, offers: bool
) -> None:
    session = agent.session("s-1")
    done = agent.plan("done")
    agent.dispatch(done)
    agent.acknowledge(done)
    agent.plan("open")
    if status != "running":
        assert agent.post(f"/sessions/{session['id']}/end", {"status": status}).status_code == 200
    client = organization.client("reviewer")
    assert (
        "Stop this session" in client.get(f"/sessions/{session['id']}/").content.decode()
    ) is offers
    assert "Stop this effect" not in client.get(f"/effects/{done['id']}/").content.decode()
