"""Answers from a lagging index state the lag; exports and alerts wait for the index."""

import io
import json
import re
import zipfile
from collections.abc import Callable
from html import unescape
from typing import Any, cast

import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from db.clock import now_us
from investigation.exports import exports
from investigation.fulltext import indexer
from investigation.models import Alert, EffectText, Export, SavedQuery
from investigation.query.permalink import pin_query
from journal.models import Entry
from journal.running_writers import load_last_position
from ledger.models import Effect, UsedNameProgress
from ledger.names import name_index
from ledger.names.used_names import load_names_position
from monitoring import effect_hours, job_heartbeats
from monitoring.models import EffectHour, JobHeartbeat
from monitoring.stuck import sweeper
from sessions.models import Session
from tests.api.api_client import Caller, new_key
from tests.pages.people import Organization
from tests.query.test_alerts import Watch, next_alerts, team, watch
from tests.query.test_repeats import complete_effect

__all__ = ["team", "watch"]
pytestmark = pytest.mark.django_db
FRESH = 4  # unindexed entries that a search reads directly in these tests


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    monkeypatch.setattr(indexer, "MAX_UNINDEXED_ENTRIES", FRESH)
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"


def report(agent: Caller, keys: list[str], text: str = "invoice rounding") -> None:
    """Report a plan for each key, all with the same words."""
    items = [
        {
            "id": new_key(),
            "kind": "effect.planned",
            "session": "s-1",
            "effect_key": key,
            "tool": "mail.send",
            "arguments": {"text": text, "n": key},
        }
        for key in keys
    ]
    assert agent.report(items).status_code == 200


@pytest.fixture
def lagging(agent: Caller) -> str:
    """Create a journal with four of 16 plans indexed; return the pattern of the note."""
    agent.session("s-1")
    report(agent, [f"old-{n}" for n in range(4)])
    indexer.update_index()
    read_to = job_heartbeats.load_position(indexer.JOB_NAME)
    report(agent, [f"new-{n}" for n in range(12)])
    return rf"Words are indexed up to entry {read_to:,} of [\d,]+; 8 newer entries are missing\."


@pytest.mark.parametrize("name", ["search_index", "counts", "stuck_checks", "name_index"])
def test_a_position_beyond_the_journal_is_named_and_the_job_begins_again(
    agent: Caller, organization: Organization, name: str
) -> None:
    """The owner sets a position far ahead, so that what the job makes looks complete."""
    run: dict[str, Callable[[], object]] = {
        "search_index": indexer.update_index,
        "counts": effect_hours.count_effect_hours,
        "stuck_checks": sweeper.sweep_stuck,
        "name_index": name_index.index_names,
    }

    def load_place() -> int:
        return load_names_position() if name == "name_index" else job_heartbeats.load_position(name)

    agent.session("s-1")
    report(agent, ["old"])
    run[name]()
    assert f"ready\n{name}: last succeeded" in Client().get("/readyz").text
    report(agent, ["new"])
    last = load_last_position()
    JobHeartbeat.objects.filter(name=name).update(position=last + 1000)
    UsedNameProgress.objects.update(position=last + 1000)
    answer = Client().get("/readyz").text
    assert answer.startswith(f"ready, degraded: {name}\n{name}: claims to have read beyond")
    assert "claims to have read beyond the journal's end" in page(
        organization.client("viewer").get("/tools/")
    )
    run[name]()
    assert load_place() == last
    assert Client().get("/readyz").text.startswith(f"ready\n{name}: last succeeded")
    if name == "search_index":
        assert EffectText.objects.count() == 2
    if name == "counts":
        assert sum(EffectHour.objects.values_list("effects", flat=True)) == 2
    report(agent, ["newer"])
    run[name]()
    assert load_place() > last


def page(answer: Any, status: int = 200) -> str:
    assert answer.status_code == status, answer.content[:2000]
    return unescape(answer.content.decode())


def search(agent: Caller, q: str) -> dict[str, Any]:
    answer = agent.get("/search", q=q)
    assert answer.status_code == 200, answer.text
    content: dict[str, Any] = answer.json()
    return content


@pytest.mark.parametrize(
    "query",
    [
        "invoice",
        "tool:mail.send invoice",
        "effect -invoice",
        "(invoice OR state:failed)",
        "session any(effect: invoice)",
        "event invoice",
        "invoice | group tool | count",
        "invoic* since:7d",
    ],
)
def test_every_answer_by_words_states_how_far_words_are_indexed(
    organization: Organization, agent: Caller, lagging: str, query: str
) -> None:
    viewer = organization.client("viewer")
    read_to = job_heartbeats.load_position(indexer.JOB_NAME)
    shown = page(viewer.get(reverse("search"), {"q": query}))
    assert re.search(lagging, shown)
    answer = search(agent, query)
    (late,) = answer["indexes"]
    assert late["of"] > read_to + 11
    assert {**late, "of": 0} == {
        "index": "words",
        "read_to": read_to,
        "of": 0,
        "missing": 8,
        "complete": False,
    }
    assert any(re.fullmatch(lagging, note) for note in answer["notes"])
    stderr = io.StringIO()
    call_command(
        "search", query, project=organization.project.name, stdout=io.StringIO(), stderr=stderr
    )
    assert re.search(lagging, stderr.getvalue())
    part = viewer.get(
        reverse("search"), {"q": query, "part": "overview"}, headers={"HX-Request": "true"}
    )
    assert re.search(lagging, page(part))
    assert ("part=overview" in shown) == (
        "noted=1" in shown
    )  # a page with the note requests the part without the note
    noted = {"q": query, "part": "overview", "noted": "1"}
    part = viewer.get(reverse("search"), noted, headers={"HX-Request": "true"})
    assert not re.search(lagging, page(part))
    assert re.search(lagging, page(viewer.get(reverse("export"), {"q": query})))
    last = Entry.objects.order_by("-position").values_list("position", flat=True)[0]
    assert search(agent, f"{query.partition(' |')[0]} asof:#{last}")["indexes"][0]["missing"] == 8
    indexer.update_index()
    answer = search(agent, query)
    assert not any("indexed" in note for note in answer["notes"])
    (read,) = answer["indexes"]
    assert (read["missing"], read["complete"]) == (0, True)
    assert "are indexed up to" not in page(viewer.get(reverse("search"), {"q": query}))


def test_an_answer_without_an_index_names_none(agent: Caller, lagging: str) -> None:
    answer = search(agent, "tool:mail.send")
    assert (answer["indexes"], answer["notes"], len(answer["rows"])) == ([], [], 16)


def test_entries_searched_directly_are_not_reported_as_missing(agent: Caller) -> None:
    agent.session("s-1")
    report(agent, ["a", "b", "c"])
    answer = search(agent, "invoice")
    assert (len(answer["rows"]), answer["notes"], answer["indexes"][0]["complete"]) == (3, [], True)


def test_new_effects_too_long_to_be_searched_directly_are_reported_as_missing(
    agent: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Limit the unindexed text that a search reads; here to one effect at a time."""
    monkeypatch.setattr(indexer, "MAX_UNINDEXED_CHARACTERS", 1)
    monkeypatch.setattr("investigation.fulltext.extract.EFFECTS_AT_ONCE", 1)
    agent.session("s-1")
    report(agent, ["a", "b", "c"])
    answer = search(agent, "invoice")
    assert (len(answer["rows"]), answer["indexes"][0]["missing"]) == (1, 2)
    assert "2 newer entries are missing" in answer["notes"][0]


def test_a_pinned_answer_is_complete_once_the_index_has_read_its_moment(
    agent: Caller, lagging: str
) -> None:
    early = pin_query("invoice", now_us(), job_heartbeats.load_position(indexer.JOB_NAME))
    late = pin_query("invoice", now_us())
    assert [index["missing"] for index in search(agent, early)["indexes"]] == [0]
    assert re.fullmatch(lagging, search(agent, late)["notes"][0])
    assert len(search(agent, early)["rows"]) == 4
    report(agent, ["later"])  # moves the directly searched entries on, but not for a past moment
    assert [index["missing"] for index in search(agent, late)["indexes"]] == [8]
    indexer.update_index()
    assert (len(search(agent, late)["rows"]), search(agent, late)["notes"]) == (16, [])


def test_erased_words_are_gone_and_the_others_found_as_of_any_moment(
    organization: Organization, agent: Caller
) -> None:
    agent.session("s-1")
    report(agent, ["a"], "jane doe")
    indexer.update_index()
    moment = pin_query("mail", now_us())
    plan = Effect.objects.get(effect_key="a").plan_position
    erased = organization.client("administrator").post(
        f"/journal/{plan}/erase/", {"reason": "ticket 88"}
    )
    assert erased.status_code == 302
    assert [row["key"] for row in search(agent, moment)["rows"]] == ["a"]
    assert search(agent, moment.replace("mail", "jane"))["rows"] == []


def test_saved_queries_and_audit_questions_show_the_note_too(
    organization: Organization, agent: Caller, lagging: str
) -> None:
    operator = organization.client("operator")
    operator.post(reverse("saved_queries"), {"name": "Invoices", "q": "invoice"})
    shown = page(operator.get(reverse("saved_query", args=[SavedQuery.objects.get().pk])))
    (address,) = set(re.findall(r'href="(/search/\?q=invoice)"', shown))
    assert re.search(lagging, page(operator.get(address)))
    twice = page(operator.get(reverse("question", args=[18]), {"words": "invoice"}, follow=True))
    assert re.search(lagging, twice)
    assert "Repeated calls are indexed up to entry" in twice


@pytest.mark.parametrize(
    "query", ["duplicate:call", "session repeats:>=2", "session | group key | max(repeats)"]
)
def test_answers_by_repeated_calls_state_how_far_calls_are_indexed(
    agent: Caller, query: str
) -> None:
    agent.session("s-1")
    complete_effect(agent, "a", "s-1")
    indexer.update_index()
    complete_effect(agent, "b", "s-1")
    answer = search(agent, query)
    (late,) = answer["indexes"]
    assert (late["index"], late["missing"], late["complete"]) == ("repeats", 3, False)
    assert any(
        note.startswith("Repeated calls are indexed up to entry ") for note in answer["notes"]
    )
    indexer.update_index()
    assert [index["complete"] for index in search(agent, query)["indexes"]] == [True]


@pytest.mark.parametrize(
    "query", ["session is:stuck", "gate is:stuck", "effect is:stuck", "session is:looped"]
)
def test_answers_by_stuck_checks_state_when_the_check_last_ran(agent: Caller, query: str) -> None:
    agent.session("s-1")
    assert any("has not run yet" in note for note in search(agent, query)["notes"])
    call_command("sweep_stuck", stdout=io.StringIO())
    answer = search(agent, query)
    assert ([index["complete"] for index in answer["indexes"]], answer["notes"]) == ([True], [])
    JobHeartbeat.objects.filter(name="stuck_checks").update(
        heartbeat_us=now_us() - 720_000_000, every_us=5_000_000
    )
    answer = search(agent, query)
    assert [(index["index"], index["complete"]) for index in answer["indexes"]] == [
        ("stuck", False)
    ]
    assert any("last ran 12 min" in note for note in answer["notes"])


# Exports.
# -----------------------------------------------------------------------------------------------------------


def test_an_export_of_words_is_made_when_they_are_indexed_up_to_its_position(
    organization: Organization, agent: Caller, lagging: str
) -> None:
    viewer = organization.client("viewer")
    answer = viewer.post(reverse("export"), {"q": "invoice", "format": "bundle", "do": "later"})
    job = Export.objects.get()
    assert answer["Location"] == reverse("export_job", args=[job.id])
    assert re.search(lagging, page(viewer.get(answer["Location"])))
    report(agent, [f"later-{n}" for n in range(6)])
    assert exports.run_exports() == 1
    assert job_heartbeats.load_position(indexer.JOB_NAME) >= job.position
    job.refresh_from_db()
    assert (job.state, job.rows_done, job.rows_in_all) == ("done", 16, 16)
    file = zipfile.ZipFile(io.BytesIO(exports.export_path(job).read_bytes()))
    about = json.loads(file.read("about.json"))
    assert about["rows"] == 16
    assert [
        (index["index"], index["missing"], index["complete"]) for index in about["indexes"]
    ] == [("words", 0, True)]
    assert "are indexed up to" not in page(viewer.get(answer["Location"]))


@pytest.mark.parametrize("query", ["invoice", "duplicate:call", "invoice | group tool | count"])
def test_a_download_becomes_a_background_export_while_the_index_lags(
    organization: Organization, agent: Caller, lagging: str, query: str
) -> None:
    viewer = organization.client("viewer")
    sent = {"q": query, "format": "ndjson", "do": "now"}
    complete_effect(agent, "ran", "s-1")
    answer = viewer.post(reverse("export"), sent)
    assert answer.status_code == 302
    assert exports.run_exports() == 1
    made = exports.export_path(Export.objects.get()).read_bytes()
    now = viewer.post(reverse("export"), sent)
    assert now.status_code == 200
    assert b"".join(cast("Any", now).streaming_content) == made
    assert len(made.splitlines()) == (16 if query == "invoice" else query != "duplicate:call")


def test_an_export_fails_with_a_sentence_if_the_index_cannot_advance(
    organization: Organization, lagging: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    viewer = organization.client("viewer")
    viewer.post(reverse("export"), {"q": "invoice", "format": "csv", "do": "later"})
    monkeypatch.setattr(indexer, "load_last_position", lambda: 0)
    assert exports.run_exports() == 0
    job = Export.objects.get()
    assert job.state == "failed"
    assert re.match(lagging, job.error)
    assert not exports.export_path(job).exists()
    assert re.search(lagging, page(viewer.get(reverse("export_job", args=[job.id]))))


# Alerts.
# ------------------------------------------------------------------------------------------------------------


def test_an_alert_waits_for_the_index_and_then_notifies_each_match_once(
    organization: Organization, agent: Caller, watch: Watch
) -> None:
    agent.session("s-1")
    report(agent, ["old"])
    watch("invoice")
    assert next_alerts() == []
    before = Alert.objects.get()
    report(agent, [f"new-{n}" for n in range(12)])
    for _ in range(2):  # the index does not run
        assert next_alerts() == []
        alert = Alert.objects.get()
        assert (alert.place, alert.checked_at_us) == (before.place, before.checked_at_us)
    indexer.update_index()
    assert next_alerts() == [("operator@example.org", "Gatebook: 12 new effects: “Watched”")]
    report(agent, ["last"])
    assert job_heartbeats.load_position(indexer.JOB_NAME) >= Alert.objects.get().place
    indexer.update_index()
    assert next_alerts() == [("operator@example.org", "Gatebook: 1 new effect: “Watched”")]
    assert next_alerts() == []


def test_alerts_are_not_turned_on_while_the_index_lags(
    organization: Organization, agent: Caller, lagging: str, team: Any
) -> None:
    owner = organization.client("operator")
    owner.post(reverse("saved_queries"), {"name": "Watched", "q": "invoice"})
    url = reverse("saved_query_alerts", args=[SavedQuery.objects.get().pk])
    assert re.search(lagging, page(owner.post(url, {"do": "on"}, follow=True)))
    assert not Alert.objects.exists()
    indexer.update_index()
    assert "one notification per new match" in page(owner.post(url, {"do": "on"}, follow=True))
    assert next_alerts() == []
    report(agent, ["later"])
    indexer.update_index()
    assert next_alerts() == [("operator@example.org", "Gatebook: 1 new effect: “Watched”")]


def test_an_alert_of_repeated_calls_begins_where_they_are_indexed(
    agent: Caller, watch: Watch
) -> None:
    """Compare later calls later, and notify each once."""
    agent.session("s-1")
    complete_effect(agent, "a", "s-1")
    complete_effect(agent, "b", "s-1")
    indexer.update_index()
    complete_effect(agent, "c", "s-1")
    watch("duplicate:call")
    assert Alert.objects.get().place == job_heartbeats.load_position(indexer.JOB_NAME)
    assert next_alerts() == []
    indexer.update_index()
    assert next_alerts() == [("operator@example.org", "Gatebook: 1 new effect: “Watched”")]
    assert next_alerts() == []


def test_a_changed_query_begins_when_it_is_indexed(
    organization: Organization, agent: Caller, watch: Watch
) -> None:
    agent.session("s-1")
    saved = watch("tool:mail.send")
    report(agent, [f"k-{n}" for n in range(12)])
    changed = {"name": "Watched", "q": "invoice", "version": str(saved.version)}
    assert (
        organization.client("operator")
        .post(reverse("saved_query", args=[saved.pk]), changed)
        .status_code
        == 302
    )
    assert next_alerts() == []
    assert Alert.objects.get().text == "tool:mail.send"
    indexer.update_index()
    assert next_alerts() == []
    assert Alert.objects.get().text == "invoice"
    report(agent, ["new"])
    indexer.update_index()
    assert next_alerts() == [("operator@example.org", "Gatebook: 1 new effect: “Watched”")]


# Pages that count repeated calls.


def test_the_chain_of_an_effect_states_how_far_calls_are_indexed(
    organization: Organization, agent: Caller
) -> None:
    agent.session("s-1")
    first = complete_effect(agent, "a", "s-1")
    complete_effect(agent, "b", "s-1")
    viewer, address = organization.client("viewer"), reverse("effect_chain", args=[first])
    assert "Repeated calls are indexed up to entry" in page(viewer.get(address))
    indexer.update_index()
    assert "Repeated calls are indexed" not in page(viewer.get(address))


def test_pages_mark_calls_that_are_not_compared_yet(
    organization: Organization, agent: Caller
) -> None:
    agent.session("s-1")
    for key in "abc":
        effect = complete_effect(agent, key, "s-1")
    viewer = organization.client("viewer")
    session = reverse("session", args=[Session.objects.get(key="s-1").id])
    for address in (session, reverse("effect", args=[effect])):
        assert "compared" in page(viewer.get(address)), address
    indexer.update_index()
    assert "same call 3 times" in " ".join(page(viewer.get(session)).split())
    assert "the same call ran, " in page(viewer.get(reverse("effect", args=[effect])))
    for address in (session, reverse("effect", args=[effect])):
        assert "not compared yet" not in page(viewer.get(address))
