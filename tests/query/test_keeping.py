"""Questions as forms, saved queries, permanent links and exports, through the pages."""

import csv
import io
import json
import os
import zipfile
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs, urlsplit

import orjson
import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.urls import reverse

from db.clock import now_us
from investigation.exports import exports
from investigation.history.moment import JournalCut
from investigation.models import Export, SavedQuery
from investigation.query import execute
from investigation.query.permalink import pin_query
from journal import running_writers
from journal.models import Body, Entry
from ledger.models import Effect
from tests.api.api_client import Caller
from tests.pages.people import Organization

pytestmark = pytest.mark.django_db
US = 1_000_000


def page(answer: Any, status: int = 200) -> str:
    assert answer.status_code == status, answer.content[:2000]
    return str(answer.content.decode())


def test_a_question_redirects_to_its_search_or_names_the_missing_value(
    organization: Organization, agent: Caller
) -> None:
    viewer = organization.client("viewer")
    agent.session("s-1")
    agent.plan("k", tool="mail.send")
    shown = page(viewer.get(reverse("questions")))
    assert shown.count('class="question"') == 21
    assert '<option value="mail.send">' in shown
    assert '<option value="operator">' in shown
    answer = viewer.get(reverse("question", args=[1]), {"tool": "git push", "since": "2d"})
    assert answer.status_code == 302
    assert parse_qs(urlsplit(answer["Location"]).query) == {
        "q": ['session status:failed failing_tool:"git push" since:2d']
    }
    lacking = page(viewer.get(reverse("question", args=[1]), {"since": "<b>"}), 422)
    assert "needs a value for tool" in lacking
    assert "<b>" not in lacking.partition("<main")[2].partition('class="sheet')[2]
    assert viewer.get(reverse("question", args=[22])).status_code == 404


def test_a_saved_query_is_private_until_shared_and_only_its_owner_changes_it(
    organization: Organization,
) -> None:
    owner, other = organization.client("operator"), organization.client("viewer")
    new = {"name": "Lost <i>mail</i>", "q": "effect tool:mail.send is:unknown"}
    assert owner.post(reverse("saved_queries"), new).status_code == 302
    kept = SavedQuery.objects.get()
    url = reverse("saved_query", args=[kept.id])
    assert "already have a saved query" in page(owner.post(reverse("saved_queries"), new), 422)
    wrong = owner.post(reverse("saved_queries"), {"name": "x", "q": "effect tol:x"})
    assert "is not a field of" in page(wrong, 422)
    assert other.get(url).status_code == other.post(url, {"do": "delete"}).status_code == 404
    assert organization.client("neighbour").get(url).status_code == 404
    assert "mail" not in page(other.get(reverse("saved_queries")))

    shared = {"name": "Lost mail", "q": kept.text, "shared": "1", "version": "1"}
    assert owner.post(url, shared).status_code == 302
    assert "changed in the meantime" in page(owner.post(url, {**shared, "name": "Other"}), 422)
    assert "Lost mail" in page(other.get(reverse("saved_queries")))
    assert "Only the owner can change it." in page(other.get(url))
    assert (
        other.post(url, {**shared, "version": "2"}).status_code
        == other.post(url, {"do": "delete"}).status_code
        == 404
    )
    assert organization.client("neighbour").get(url).status_code == 404
    assert owner.post(url, {"do": "delete"}).status_code == 302
    assert not SavedQuery.objects.exists()
    entries = Entry.objects.filter(kind__startswith="query.").order_by("position")
    assert list(entries.values_list("kind", flat=True)) == [
        "query.saved",
        "query.changed",
        "query.deleted",
    ]
    assert {entry.actor for entry in entries} == {
        organization.members["operator"].user.person.pseudonym
    }
    assert all(set(json.loads(entry.facts)) == {"shared", "version"} for entry in entries)


def test_a_link_holds_no_age_and_names_the_position(
    organization: Organization, agent: Caller
) -> None:
    agent.session("s-1")
    now = now_us()
    text = "gate since:7d (decided_at:2h OR -used_at:3d..1h) any(effect: dispatched_at:30m tool:x) | group status"
    words = pin_query(text, now)
    at = f"asof:#{JournalCut(running_writers.load_last_position(), now).text}"
    assert f"{at} | group status" in words
    plain = words.replace(f" {at}", "")
    later = now + 3600 * US
    meant = str(execute.matching_rows(execute.compile_query(text, organization.project, now)).query)
    for moment in (now, later):  # returns the same rows at any later time
        assert (
            str(
                execute.matching_rows(
                    execute.compile_query(plain, organization.project, moment)
                ).query
            )
            == meant
        )
    assert pin_query(words, later) == words
    shown = page(organization.client("viewer").get(reverse("search_link"), {"q": text}))
    assert "asof:#" in shown
    assert "since:7d" not in shown.partition("readonly")[2].partition("</textarea>")[0]
    wrong = organization.client("viewer").get(reverse("search_link"), {"q": "effect ("})
    assert "No permalink was created" in page(wrong, 422)


def test_a_view_of_agent_content_is_recorded_once_an_hour(
    organization: Organization, agent: Caller
) -> None:
    agent.session("s-1")
    effect = Effect.objects.get(id=agent.plan("looked-at", why="because")["id"])
    viewer, views = (
        organization.client("viewer"),
        Entry.objects.filter(kind="access.viewed").order_by("position"),
    )
    for _ in range(2):
        page(viewer.get(reverse("effect", args=[effect.id])))
        page(viewer.get(reverse("raw_fact", args=[effect.id, effect.plan_position])))
    page(organization.client("operator").get(reverse("effect", args=[effect.id])))
    assert (
        organization.client("neighbour").get(reverse("effect", args=[effect.id])).status_code == 404
    )
    actors = [
        organization.members[name].user.person.pseudonym
        for name in ("viewer", "viewer", "operator")
    ]
    assert [(entry.actor, json.loads(entry.facts)["what"], entry.effect) for entry in views] == [
        (actor, what, effect.id)
        for actor, what in zip(actors, ("effect", "body", "effect"), strict=True)
    ]


def test_the_command_prints_its_results_and_is_recorded(
    organization: Organization, agent: Caller
) -> None:
    agent.session("s-1")
    agent.plan("k", tool="t")
    output = io.StringIO()
    call_command("search", "effect tool:t", stdout=output)
    assert [json.loads(line)["key"] for line in output.getvalue().splitlines()] == ["k"]
    entry = Entry.objects.get(kind="access.searched")
    assert (entry.actor, json.loads(entry.facts)["found"]) == ("gatebook", 1)
    with pytest.raises(CommandError, match="is not a field of an effect"):
        call_command("search", "effect tol:t", stdout=output)
    if connection.vendor == "sqlite":
        with pytest.raises(CommandError, match="SQLite has no roles"):
            call_command("audit_role", "auditor")


def content_of(answer: Any) -> bytes:
    return b"".join(answer.streaming_content)


def fetch_export(client: Client, q: str, form: str) -> bytes:
    answer = client.post(reverse("export"), {"q": q, "format": form, "do": "now"})
    assert answer.status_code == 200, answer.content
    return content_of(answer)


def test_an_export_is_complete_safe_and_as_of_the_moment_of_its_request(
    organization: Organization, agent: Caller
) -> None:
    agent.session("s-1", title="=cmd|' /C calc'!A0, \"quoted\"\r\nand more")
    for n, tool in enumerate(["@SUM(1)", "-1+1", "+1", "plain, with comma", "\ttab"]):
        agent.plan(f"k-{n}", tool=tool.strip() or "x", arguments={"secret": "of the body"})
    viewer = organization.client("viewer")
    rows = list(
        csv.DictReader(
            io.StringIO(fetch_export(viewer, "effect", "csv").decode("utf-8"), newline="")
        )
    )
    assert [row["tool"] for row in rows] == ["tab", "plain, with comma", "'+1", "'-1+1", "'@SUM(1)"]
    assert rows[0]["attempts"] == "0"
    (session,) = csv.DictReader(
        io.StringIO(fetch_export(viewer, "session", "csv").decode("utf-8"), newline="")
    )
    assert session["title"] == "'=cmd|' /C calc'!A0, \"quoted\"\r\nand more"
    objects = [orjson.loads(line) for line in fetch_export(viewer, "effect", "ndjson").splitlines()]
    assert [exported["tool"] for exported in objects][-1] == "@SUM(1)"

    bundle = zipfile.ZipFile(io.BytesIO(fetch_export(viewer, "effect since:1d", "bundle")))
    about = json.loads(bundle.read("about.json"))
    assert about["rows"] == 5
    assert about["as_of"] <= running_writers.load_last_position()
    assert "since:1d" not in about["query"]
    assert f"asof:#{about['as_of']}@" in about["pinned"]
    for name in ("rows.ndjson", "rows.csv", "query.txt"):
        assert sha256(bundle.read(name)).hexdigest() == about["files"][name]["sha256"]
    assert b"of the body" not in b"".join(bundle.read(name) for name in bundle.namelist())
    groups = fetch_export(viewer, "effect | group state | count", "csv").decode()
    assert groups == "state,count\r\nplanned,5\r\n"

    taken = Entry.objects.filter(kind="access.exported").order_by("position")
    assert taken.count() == 5
    assert {entry.actor for entry in taken} == {
        organization.members["viewer"].user.person.pseudonym
    }
    assert json.loads(Body.objects.get(entry=taken[0]).text)["q"] == "effect"
    assert "is not a field" in page(
        viewer.post(reverse("export"), {"q": "effect tol:x", "format": "csv", "do": "now"}), 422
    )
    assert page(viewer.post(reverse("export"), {"q": "effect", "format": "exe", "do": "now"}), 422)
    assert taken.count() == 5
    now = {"q": "effect", "format": "csv", "do": "now"}
    begun = [viewer.post(reverse("export"), now) for _ in range(2)]
    assert "You already have" in page(viewer.post(reverse("export"), now), 422)
    assert content_of(begun.pop())
    assert fetch_export(viewer, "effect", "csv")
    assert content_of(begun.pop())
    taken = taken.filter(position__lte=taken[4].position)
    assert taken.count() == 5


def test_an_export_job_runs_once_survives_a_kill_and_stays_private(
    organization: Organization, agent: Caller
) -> None:
    agent.session("s-1")
    for n in range(3):
        agent.plan(f"k-{n}", tool="t")
    viewer, admin, other = (
        organization.client(name) for name in ("viewer", "administrator", "reviewer")
    )
    answer = viewer.post(reverse("export"), {"q": "effect", "format": "ndjson", "do": "later"})
    job = Export.objects.get()
    url, file = reverse("export_job", args=[job.id]), reverse("export_file", args=[job.id])
    assert answer["Location"] == url
    assert "Waiting for the job worker" in " ".join(page(viewer.get(url)).split())
    assert viewer.get(file).status_code == 404
    agent.plan("later", tool="t")  # not in the export

    # The worker was just killed: the job does not restart yet, and later starts from the beginning.
    Export.objects.update(state="running", tries=1, heartbeat_at_us=now_us(), rows_done=2)
    assert exports.run_exports() == 0
    poll = f'hx-get="{url}"'
    assert poll in page(viewer.get(url))
    Export.objects.update(heartbeat_at_us=now_us() - 61 * US)
    assert exports.run_exports() == 1
    job.refresh_from_db()
    assert (job.state, job.tries, job.rows_done, job.rows_in_all) == ("done", 2, 3, 3)
    done = page(viewer.get(url))
    assert poll not in done
    assert job.sha256 in done
    for client in (viewer, admin):
        got = content_of(client.get(file))
        assert sha256(got).hexdigest() == job.sha256
        assert [orjson.loads(line)["key"] for line in got.splitlines()] == ["k-2", "k-1", "k-0"]
    for client in (other, organization.client("neighbour")):
        assert client.get(url).status_code == client.get(file).status_code == 404
    assert exports.run_exports() == 0

    Export.objects.update(ended_at_us=now_us() - 25 * 3600 * US)
    folder = exports.export_path(job).parent
    begun, left = folder / "begun.part", folder / "left.part"
    for part in (begun, left):
        part.touch()
    os.utime(left, (0, 0))
    (folder / "taken.part").symlink_to(
        "nowhere"
    )  # listed but missing when read, as if removed by another process
    exports.run_exports()
    assert (begun.exists(), left.exists()) == (True, False)
    assert viewer.get(file).status_code == 404
    assert "was removed" in page(viewer.get(url))
    assert not exports.export_path(job).exists()
    viewer.post(reverse("export"), {"q": "effect", "format": "csv", "do": "later"})
    Export.objects.filter(state="waiting").update(
        state="running", tries=3, heartbeat_at_us=now_us() - 61 * US
    )
    assert exports.run_exports() == 0
    assert Export.objects.get(format="csv").state == "failed"
