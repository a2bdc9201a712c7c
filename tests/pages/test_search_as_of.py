"""A search as of a moment returns what it returned at that moment."""

import pytest
from django.test import Client
from django.urls import reverse

from accounts.models import Project
from db.clock import now_us
from investigation.query import as_of, execute, stream
from investigation.query.parser.ast import QueryError
from journal import running_writers
from journal.models import Entry
from ledger.models import Effect
from tests.api.api_client import Caller
from tests.pages.people import Organization
from tests.pages.sample_data import SampleIds

pytestmark = pytest.mark.django_db
QUERIES = (
    "state:planned",
    "state:dispatched OR state:unknown",
    "outcome:ok -tool:git.push",
    "attempts:>0 permission:used",
    "attempts:>0 since:30d",
    "changed_at:1h",
    "is:violating OR has:reference",
    "none(event: kind:effect.dispatched)",
    "effect seq(effect.planned -> effect.dispatched)",
    "session status:running",
    "session is:ended",
    "session any(event: kind:session.ended)",
    "event kind:effect.dispatched",
    "gate",
)


def load_matches(project: Project, text: str) -> list[tuple[str, str]]:
    """Return handle and shown state of each match, newest first."""
    compiled = execute.compile_query(text, project, now_us())
    rows = [row for chunk in stream.stream_matches(compiled, lambda rows: rows) for row in chunk]
    assert execute.count_matches(compiled)[0] == len(rows)
    assert [row.pk for row in execute.load_results(compiled, lambda rows: rows).rows] == [
        row.pk for row in rows
    ][:50]
    return [(str(row), getattr(row, "state", "") or getattr(row, "status", "")) for row in rows]


def test_a_search_as_of_a_moment_finds_what_it_found_then(
    organization: Organization, agent: Caller, sample: SampleIds, monkeypatch: pytest.MonkeyPatch
) -> None:
    position = Entry.objects.order_by("-position").values_list("position", flat=True)[0]
    before = {text: load_matches(organization.project, text) for text in QUERIES}
    assert all(
        before[text]
        for text in QUERIES
        if "gate" not in text and "ended" not in text and "session.ended" not in text
    )
    for name in ("planned", "dispatched"):
        effect = Effect.objects.get(id=sample.effects[name])
        reference = {"id": str(effect.id), "intent_digest": effect.intent_digest}
        if name == "planned":
            agent.dispatch(reference)
        agent.acknowledge(reference)
    agent.plan("later", str(sample.session), tool="deploy.run", arguments={"n": 1})
    assert agent.post(f"/sessions/{sample.session}/end", {"status": "completed"}).status_code == 200
    now = {text: load_matches(organization.project, text) for text in QUERIES}
    assert (
        sum(now[text] != before[text] for text in QUERIES) >= 8
    )  # most queries return something else now
    for text in QUERIES:
        assert (
            load_matches(
                organization.project,
                f"{text} asof:#{position}" if " OR " not in text else f"({text}) asof:#{position}",
            )
            == (before[text])
        ), text
    # Without an index a page searches one window and the next page continues below.
    monkeypatch.setattr(execute, "SLOW_WINDOW", 3)
    compiled = execute.compile_query(
        f"attempts:>=0 asof:#{position}", organization.project, now_us()
    )
    assert compiled.slow
    assert compiled.past is not None
    assert compiled.past.matching_ids
    seen: list[str] = []
    top: int | None = position + 1
    while top is not None:
        page = execute.load_results(compiled, lambda rows: rows, before=top)
        seen += [str(row) for row in page.rows]
        top = page.older if page.older is not None else page.looked_back_to
    assert seen == [
        handle for handle, _ in load_matches(organization.project, f"effect asof:#{position}")
    ]


def test_the_page_shows_the_moment_and_refuses_a_future_one(
    organization: Organization, sample: SampleIds
) -> None:
    viewer: Client = organization.client("viewer")
    position = Entry.objects.order_by("-position").values_list("position", flat=True)[0]
    page = viewer.get("/search/", {"q": f"state:planned asof:#{position}"})
    assert page.status_code == 200
    assert "/effects/" in page.content.decode()
    with pytest.raises(QueryError, match="does not exist yet"):
        execute.compile_query(f"asof:#{position + 10**12}", organization.project, now_us())
    refused = viewer.get("/search/", {"q": "state:planned asof:2126-01-01"})
    assert refused.status_code == 400
    assert "is in the future" in refused.content.decode()
    with pytest.raises(
        QueryError, match="cannot be combined with an age"
    ):  # the link would show other results tomorrow
        execute.compile_query(f"asof:#{position}@2h", organization.project, now_us())
    for since in ("999999w", "0001-01-01"):
        for name in ("search", "search_link"):
            assert viewer.get(reverse(name), {"q": f"effect since:{since}"}).status_code == 200


def test_a_page_explains_that_too_much_changed_during_the_read(
    organization: Organization, sample: SampleIds, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_much(*_args: object) -> None:
        raise QueryError(0, 0, as_of.TOO_MANY_CHANGES)

    monkeypatch.setattr(as_of, "find_changed_during_read", too_much)
    answer = organization.client("viewer").get(
        "/search/", {"q": f"effect asof:#{running_writers.load_last_position()}"}
    )
    assert answer.status_code == 400
    assert "Too much changed while searching" in answer.content.decode()
