"""A case file: what it holds, who made it, its proofs, and what is missing from it."""

import csv
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from accounts.people import ensure_pseudonym
from investigation.case_files import case_selection
from investigation.models import Incident
from journal.models import Entry
from ledger.models import Effect
from proofs.verifier import gatebook_verify
from tests.pages.sample_data import erase_plan
from tests.proofs.sealing import seal_entries
from tests.query.incident import Scenario

pytestmark = pytest.mark.django_db


def make_zip(scenario: Scenario, **origin: str) -> zipfile.ZipFile:
    client = scenario.inbox.organization.client("reviewer")
    answer: Any = client.post("/search/case/", {**origin, "do": "zip", "title": "What happened"})
    assert answer.status_code == 200, answer.content
    return zipfile.ZipFile(io.BytesIO(b"".join(answer.streaming_content)))


def read_table(file: zipfile.ZipFile, name: str) -> list[dict[str, str]]:
    rows: list[dict[str, str]] = json.loads(file.read(f"tables/{name}.json"))
    lines = list(csv.DictReader(io.StringIO(file.read(f"tables/{name}.csv").decode())))
    assert len(lines) == len(rows)
    return rows


def test_a_case_file_holds_what_happened_and_proves_it(scenario: Scenario, tmp_path: Path) -> None:
    erased = Effect.objects.get(id=scenario.effects["unknown"]["id"])
    erase_plan(erased.pk)
    seal_entries()
    file = make_zip(scenario, q="effect since:1d")
    effects = {row["effect"]: row for row in read_table(file, "effects")}
    assert len(effects) == Effect.objects.count()
    assert '"ref": "a"' in effects[scenario.handle("hasty")]["arguments"]
    assert "erased" in effects[scenario.handle("unknown")]["arguments"]
    assert effects[scenario.handle("late")]["ran_by"] == "reported by the agent"
    assert effects[scenario.handle("pushed")]["ran_by"] == "Gatebook's clock at the dispatch"
    votes = read_table(file, "votes")
    assert {row["answer"] for row in votes} == {"approved"}
    assert all(row["words"] and row["card_sha256"] for row in votes)
    assert len(read_table(file, "requests")) > len(votes)
    assert any("deploy" in row["tool"] for row in read_table(file, "exemptions"))
    reviewer = ensure_pseudonym(scenario.inbox.user("reviewer"))
    (person,) = [row for row in read_table(file, "people") if reviewer in row["person"]]
    assert "gate.voted approve" in person["did"]
    about = json.loads(file.read("case.json"))
    assert about["made_by"]["pseudonym"] == reviewer
    assert about["missing_texts"] == [
        {
            "position": erased.plan_position,
            "what": f"arguments of {erased}",
            "why": about["missing_texts"][0]["why"],
        }
    ]
    assert "ticket 88" in about["missing_texts"][0]["why"]
    page = file.read("case.html").decode()
    assert "<style>" in page
    assert "<link" not in page
    path = tmp_path / "case.zip"
    path.write_bytes(file.fp.getvalue())  # type: ignore[union-attr]
    report, _ = gatebook_verify.verify_bundle(path, ())
    assert report.exit_code(False) == 0
    assert report.counts["ok"] > len(effects)
    entry = Entry.objects.filter(kind="access.exported").latest("position")
    facts = json.loads(entry.facts)
    assert (entry.actor, facts["what"], facts["format"]) == (reviewer, "case_file", "zip")


def test_a_case_file_starts_from_any_rows(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    retried, hasty = scenario.handle("retried"), scenario.handle("hasty")
    for origin, handles in (
        ({"session": "broken"}, {retried}),
        ({"q": "session status:failed"}, {retried}),
        ({"q": f"gate effect:{hasty}"}, {hasty}),
        ({"q": f"event effect:{hasty}"}, {hasty}),
        ({"q": f"id:{hasty} | group tool"}, {hasty}),
    ):
        rows = read_table(make_zip(scenario, **origin), "effects")
        assert {row["effect"] for row in rows} == handles, origin
    client = scenario.inbox.organization.client("reviewer")
    client.post(
        "/incidents/open/",
        {"title": "A push", "thing": hasty, "reason": "It was fast.", "key": "k"},
    )
    incident = make_zip(scenario, incident=str(Incident.objects.get().id))
    assert {row["effect"] for row in read_table(incident, "effects")} == {hasty}
    assert any("It was fast." in row["words"] for row in read_table(incident, "timeline"))
    monkeypatch.setattr(case_selection, "MAX_EFFECTS", 2)
    document = client.post("/search/case/", {"q": "effect", "do": "print"}).text
    assert "Only the newest 2 effects" in document
    assert client.get("/search/case/", {"q": "stat:x"}).status_code == 422
    assert client.get("/search/case/", {"session": "nowhere"}).status_code == 404
    assert scenario.inbox.organization.client("viewer").get("/search/case/").status_code == 403
