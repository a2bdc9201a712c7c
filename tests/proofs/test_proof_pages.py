"""The pages of proofs, and the quiet line on the pages of what was sealed."""

import json
import re
from pathlib import Path

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from pytest_django import Settings

from accounts.models import Project
from db.clock import now_us
from investigation.incidents import incidents
from journal.models import Entry
from proofs import seal_lag, seal_line
from proofs.anchors import anchors
from proofs.models import Anchor, TreeHead
from proofs.verifier import gatebook_verify
from tests.approvals.conftest import inbox, quiet
from tests.approvals.inbox_scenario import InboxScenario
from tests.journal.attacks import attack
from tests.pages.conftest import agent, sample
from tests.pages.people import Organization
from tests.pages.sample_data import SampleIds
from tests.proofs.sealing import seal_entries

__all__ = ["agent", "inbox", "quiet", "sample"]
pytestmark = pytest.mark.django_db


@pytest.fixture
def viewer(organization: Organization) -> Client:
    return organization.client("viewer")


@pytest.fixture(autouse=True)
def _anchors(settings: Settings, tmp_path: Path) -> None:
    settings.VAR_DIR = tmp_path / "var"
    settings.GATEBOOK_ANCHORS = f"disk=file:{tmp_path}/heads"


def read(client: Client, address: str) -> str:
    """Return the words of a page's main part."""
    answer = client.get(address)
    assert answer.status_code == 200, address
    return " ".join(re.sub(r"<[^>]+>", " ", answer.text.partition("<main")[2]).split())


def group(position: int) -> str:
    """Return a number as `read` returns it: its digits in groups."""
    return f"{position:,}".replace(",", " ")


def publish() -> None:
    for state in anchors.load_anchor_states():
        anchors.publish_now(state.target)


def test_the_page_tells_how_far_the_journal_is_sealed(
    viewer: Client, organization: Organization, sample: SampleIds, tmp_path: Path
) -> None:
    address = reverse("proofs")
    assert "Nothing is sealed yet" in read(viewer, address)
    last = Entry.objects.latest("position").position
    head = seal_entries(5)
    sealed = Entry.objects.order_by("position")[4].position
    words = read(viewer, address)
    assert f"Sealed up to entry {group(sealed)} of {group(last)}" in words
    assert "for the seal, the oldest for" in words
    assert "Anyone who controls the database and every anchor can rewrite history" in words
    head = seal_entries()
    publish()
    words = read(viewer, address)
    assert f"Sealed up to entry {group(last)} , the newest" in words
    assert "in step" in words
    assert str(tmp_path) not in words  # places are for administrators
    assert str(tmp_path) in read(organization.client("administrator"), address)
    # The commands name the newest head, this address and the key in use.
    key = gatebook_verify.parse_key(re.findall(r"--key '([^']+)'", words)[0])
    assert gatebook_verify.check_head_signature(
        gatebook_verify.find_heads(head.note, "head", "kept")[0], [key]
    ) in (None, "")
    note = viewer.get(reverse("head_note", args=[head.id]))
    assert (note.text, note["Content-Disposition"]) == (
        head.note,
        f'attachment; filename="head-{head.id}.txt"',
    )
    assert viewer.get(reverse("head_note", args=[99])).status_code == 404
    # Refused heads, and an anchor that fails: shown to all, the reason to administrators.
    (tmp_path / "heads").write_bytes(b"")
    seal_entries()
    publish()
    assert "contradicts" in read(viewer, address)
    assert "no longer holds tree head" not in read(viewer, address)
    assert "no longer holds tree head" in read(organization.client("administrator"), address)


def test_heads_are_paged(viewer: Client, sample: SampleIds) -> None:
    for _ in range(45):
        head = seal_entries()
    first = viewer.get(reverse("proofs")).text
    older = re.findall(r"\?before=(\d+)#heads", first)
    assert older == [str(head.id - 19)]
    second = viewer.get(reverse("proofs"), {"before": older[0]}).text
    assert f'/proofs/heads/{head.id - 20}/"' in second
    assert f'/proofs/heads/{head.id - 19}/"' not in second


def test_a_proof_is_shown_and_downloaded_for_the_verifier(
    viewer: Client, sample: SampleIds, tmp_path: Path
) -> None:
    entry = Entry.objects.filter(kind="effect.planned").earliest("position")
    address = reverse("proof", args=[entry.position])
    assert "Not proved yet" in read(viewer, address)
    assert viewer.get(reverse("proof_file", args=[entry.position])).status_code == 404
    first = seal_entries()
    publish()
    seal_entries()
    words = read(viewer, address)
    assert f"Sealed under head {first.id} , leaf" in words
    assert "effect.planned" in words
    assert "at byte 0" in words
    with CaptureQueriesContext(connection) as queries:
        viewer.get(address)
    assert len(queries) <= 16
    # The stand-alone verifier takes the file.
    file = viewer.get(reverse("proof_file", args=[entry.position]))
    report = gatebook_verify.Report("proof")
    document = json.loads(file.content)
    gatebook_verify.verify_document(document, "file", report, [])
    assert (report.counts["ok"], report.findings) == (1, [])
    document["entries"][0]["entry"]["kind"] = "effect.failed"
    report = gatebook_verify.Report("proof")
    gatebook_verify.verify_document(document, "file", report, [])
    assert [finding.finding for finding in report.findings] == ["modified"]
    # What the owner of the database changes, the page itself names.
    table = " ON journal_entry" if connection.vendor == "postgresql" else ""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute(f"DROP TRIGGER journal_entry_never_changes{table}")
        cursor.execute(
            "UPDATE journal_entry SET actor = 'forged' WHERE position = %s", [entry.position]
        )
    assert "The entry is not what was sealed" in read(viewer, address)


def test_proofs_stay_in_their_project_and_administrators_facts_with_them(
    viewer: Client, organization: Organization, sample: SampleIds
) -> None:
    other = Project.objects.create(name="elsewhere")
    stranger = Entry.objects.exclude(project=organization.project.id).first()
    seal_entries()
    if stranger is not None:
        assert viewer.get(reverse("proof", args=[stranger.position])).status_code == 404
    assert other.id != organization.project.id
    assert viewer.get(reverse("proof", args=[2**63 - 1])).status_code == 404
    assert Client().get(reverse("proof", args=[1])).status_code == 302
    row = Entry.objects.filter(project=organization.project.id, kind__startswith="admin.").first()
    assert row is not None
    address = reverse("proof", args=[row.position])
    assert "Only administrators see the facts" in read(viewer, address)
    assert viewer.get(reverse("proof_file", args=[row.position])).status_code == 404
    administrator = organization.client("administrator")
    assert administrator.get(reverse("proof_file", args=[row.position])).status_code == 200


def test_one_quiet_line_on_the_pages_of_what_was_sealed(inbox: InboxScenario) -> None:
    inbox.rules()
    gate = inbox.gate(inbox.plan())
    effect, viewer = gate.effect, inbox.organization.client("viewer")
    entry = Entry.objects.filter(effect=effect.id).latest("position")
    person = inbox.user("operator")
    incident = incidents.open_incident(inbox.project, "It ran twice", person, key="twice")
    pages = [
        reverse("effect", args=[effect.id]),
        reverse("session", args=[effect.session_id]),
        reverse("gate", args=[gate.id]),
        f"{reverse('journal')}?at={entry.position}",
        reverse("incident", args=[incident.id]),
    ]
    for address in pages:
        assert re.search(r"not sealed yet, [\d.]+ m?s old", read(viewer, address)), address
    seal_entries()
    for address in pages:
        words = read(viewer, address)
        assert "sealed under head 1, not anchored yet · Check it yourself" in words, address
    publish()
    for address in pages:
        assert re.search(
            r"sealed under head 1, anchored at [\d\s:-]+ · Check it yourself", read(viewer, address)
        ), address
    # Permalinks, and the pages that they open, as of a position.
    for address in (
        f"{reverse('search_link')}?q=effect+asof:%23{entry.position}",
        f"{reverse('search')}?q=effect+asof:%23{entry.position}",
        f"{pages[0]}?asof=%23{entry.position}",
    ):
        assert f"Entries up to {group(entry.position)}: sealed under head 1" in read(
            viewer, address
        )
    # As many probes whatever is sealed: one statement.
    line = seal_line.load_seal_line("effect", effect.id)
    assert line is not None
    assert (line.position, line.head, line.anchored_head) == (entry.position, 1, 1)
    assert seal_line.load_seal_line("until", entry.position + 10**9) is not None
    assert seal_line.load_seal_line("effect", gate.id) is None
    assert not line.is_late(now_us())
    assert line._replace(log_index=None).is_late(line.received_us + seal_lag.LATE_US + 1)
    assert TreeHead.objects.count() == Anchor.objects.count() == 1
    assert attack("DELETE FROM proofs_anchor")
