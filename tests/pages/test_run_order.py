"""When effects ran: the order of results, a column, and the CSV of the chosen columns."""

import csv
import io
import re
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from django.urls import reverse

from investigation.exports import exports
from investigation.models import Export
from journal.models import Entry
from ledger.models import Attempt, Effect
from tests.api.api_client import Caller
from tests.pages.people import Organization

pytestmark = pytest.mark.django_db


@pytest.fixture
def viewer(organization: Organization) -> Client:
    return organization.client("viewer")


@pytest.fixture
def handles(agent: Caller) -> dict[str, str]:
    """Effects first seen as a, b, c, d; they ran as c, a, and d before both. b did not run."""
    agent.session("s")
    plans = {name: agent.plan(name, "s", arguments={"n": name}) for name in "abc"}
    for name in "ca":
        agent.dispatch(plans[name])
    reported = {"session": "s", "effect_key": "d", "tool": "mail.send", "arguments": {"n": "d"}}
    ran = {"kind": "effect.acknowledged", "outcome": "ok", "occurred_us": 1_700_000_000_000_000}
    facts: list[dict[str, Any]] = [
        {"id": "d-1", "kind": "effect.planned", **reported},
        {"id": "d-2", **ran, "session": "s", "effect_key": "d"},
    ]
    assert agent.report(facts).status_code == 200
    return {row.effect_key: str(row) for row in Effect.objects.all()}


def list_rows(client: Client, **parameters: Any) -> list[str]:
    page = client.get(reverse("search"), parameters).content.decode()
    return re.findall(r">(e_\d+)</a>", page.partition("<tbody")[2])


def test_results_are_sorted_by_when_they_ran(
    viewer: Client, handles: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    newest_first = [handles[name] for name in "dcba"]
    latest_run_first = [handles[name] for name in "acdb"]
    assert list_rows(viewer, q="effect") == newest_first
    assert list_rows(viewer, q="effect", time="ran") == latest_run_first
    assert list_rows(viewer, q="effect", time="ran", cols="effect,ran") == latest_run_first
    assert list_rows(viewer, q="effect -tool:mail.send", time="ran") == [
        handles[name] for name in "acb"
    ]
    monkeypatch.setattr("investigation.query.execute.PAGE_SIZE", 3)
    assert list_rows(viewer, q="effect", time="ran") == latest_run_first[:3]
    first = viewer.get(reverse("search"), {"q": "effect", "time": "ran"}).content.decode()
    assert "Page 1 of 2" in first
    link = re.search(r'rel="next" href="([^"]+)"', first)
    assert link
    second = viewer.get(reverse("search") + link[1].replace("&amp;", "&")).content.decode()
    assert re.findall(r">(e_\d+)</a>", second.partition("<tbody")[2]) == latest_run_first[3:]
    place = Effect.objects.get(effect_key="b").opened_position
    assert list_rows(viewer, q="effect", time="ran", before=place) == latest_run_first[:3]
    assert list_rows(viewer, q="effect", time="ran", page=9) == latest_run_first[3:]
    beyond: dict[str, Any] = {"q": "effect", "time": "ran", "page": 9, "after": place}
    last = viewer.get(reverse("search"), beyond).content.decode()
    assert "Page 2 of 2" in last
    assert "effects match, so" not in last
    for module in ("results", "page"):
        monkeypatch.setattr(f"pages.search.{module}.MAX_SORTED", 3)
    assert list_rows(viewer, q="effect", time="ran") == newest_first
    many = viewer.get(reverse("search"), {"q": "effect", "time": "ran"}).content.decode()
    assert "More than 3 effects match" in many


def read_csv(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode())))


def test_csv_has_the_columns_of_the_search_and_when_effects_ran(
    viewer: Client, handles: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    results = viewer.get(reverse("search"), {"q": "effect", "cols": "effect,ran,tool"})
    link = re.search(r'href="([^"]+)"\s*>CSV<', results.content.decode())
    assert link
    form = viewer.get(link[1].replace("&amp;", "&")).content.decode()
    chosen = re.search(r'name="cols"\s+value="([^"]+)"', form)
    assert chosen
    sent = {"q": "effect", "format": "csv", "do": "now", "cols": chosen[1]}
    rows = read_csv(b"".join(viewer.post(reverse("export"), sent)))
    assert [list(row) for row in rows] == [["effect", "ran", "tool", "proof"]] * 4
    for row in rows:
        path = row["proof"].removeprefix(settings.GATEBOOK_URL)
        [entry] = Effect.objects.filter(opened_position=row["effect"][2:])
        assert path == reverse("proof", args=[entry.opened_position])
        assert viewer.get(path).status_code == 200
    ran = {row["effect"]: row["ran"] for row in rows}
    assert ran[handles["b"]] == ""
    assert ran[handles["d"]].startswith("2023-11-14T22:13:20")
    assert ran[handles["c"]] < ran[handles["a"]]
    everything = read_csv(b"".join(viewer.post(reverse("export"), {**sent, "cols": ""})))
    assert len(everything[0]) > 20
    assert {row["effect"]: row["ran"] for row in everything} == ran
    later = viewer.post(reverse("export"), {**sent, "do": "later", "cols": "tool,nonsense,effect"})
    assert later.status_code == 302
    export = Export.objects.get()
    assert export.columns == "effect,tool"  # only names of columns are stored
    job = viewer.get(reverse("export_job", args=[export.id])).content.decode()
    repeated = re.search(r'href="([^"]+)"\s*>\s*Export again', job)
    assert repeated
    form = viewer.get(repeated[1].replace("&amp;", "&")).content.decode()
    assert re.search(r'name="cols"\s+value="effect,tool"', form)
    monkeypatch.setattr(exports, "MAX_UNFINISHED", 1)
    refused = viewer.post(reverse("export"), {**sent, "do": "later", "cols": "tool,effect"})
    assert "You have 1 unfinished exports" in refused.content.decode()
    assert re.search(r'name="cols"\s+value="effect,tool"', refused.content.decode())
    assert exports.run_exports() == 1
    assert read_csv(exports.export_path(export).read_bytes())[0].keys() == {
        "effect",
        "tool",
        "proof",
    }


def test_as_of_a_moment_nothing_ran_later(
    viewer: Client, agent: Caller, handles: dict[str, str]
) -> None:
    before = Entry.objects.filter(kind="effect.dispatched").earliest("position").position - 1

    def read_runs(query: str) -> dict[str, Any]:
        return {row["effect"]: row["ran"] for row in agent.get("/search", q=query).json()["rows"]}

    past = read_runs(f"effect -tool:mail.send asof:#{before}")
    assert past == {handles[name]: None for name in "abc"}
    present = read_runs("effect")
    times: dict[str, Any] = dict(Attempt.objects.values_list("effect__effect_key", "received_us"))
    assert times["c"] < times["a"]
    assert present[handles["c"]] < present[handles["a"]]
