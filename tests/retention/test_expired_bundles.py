"""A bundle and its import say of expired texts which entry names them."""

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from db import clock
from journal.models import Body, Entry, Erasure
from proofs.verifier import gatebook_verify
from retention import expiry, retention_dry_run, retention_sets
from tests.bundles.conftest import Origin, members, packed
from tests.bundles.test_refusals import summed
from tests.proofs.sealing import seal_entries, verify_here

pytestmark = pytest.mark.django_db
RULES = (
    "name: a\nclasses: [{name: short, keep: 30 days}]\nrules: [{class: short, kind: effect.*}]\n"
)


@pytest.mark.usefixtures("one_window")
def test_a_bundle_proves_which_texts_expired(
    origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    project = origin.session.project
    row = retention_sets.load_retention_set(project, RULES)
    retention_dry_run.count_retention(row)
    retention_sets.activate_retention_set(row.pk, project, row.counted_at_us)
    later = clock.now_us() + 70 * 86_400 * 1_000_000
    monkeypatch.setattr(expiry, "now_us", lambda: later)
    assert expiry.run_retention().bodies > 0
    monkeypatch.undo()
    named = Entry.objects.get(kind="retention.expired")
    expired = Erasure.objects.filter(expired_by=named.position)
    assert not Body.objects.filter(entry__in=expired.values("entry")).exists()
    seal_entries()
    path = tmp_path / "expired.zip"
    path.write_bytes(origin.export())
    report, _ = gatebook_verify.verify_bundle(path, ())
    assert not report.is_broken, report.findings
    of_session = expired.filter(entry__session=origin.session.pk).count()
    assert report.counts["erased"] == of_session + 1  # and the one that a person erased

    files = members(path.read_bytes())
    proofs: dict[str, Any] = json.loads(files["proof.json"])
    short = [row for row in proofs["entries"] if row["entry"]["kind"] != "retention.expired"]
    proofs["entries"] = short
    forged = {**files, "proof.json": json.dumps(proofs).encode()}
    report, _ = gatebook_verify.verify_bundle(packed(summed(forged), tmp_path / "f.zip"), ())
    assert report.counts["missing"] >= of_session

    call_command("import_bundle", str(path), administrator="archivist")
    seal_entries()
    report = verify_here()
    assert {"missing", "modified"}.isdisjoint(report.counts), report.findings
    assert report.counts["erased"] == expired.count() + of_session + 2
    call_command("rebuild", "--check")
    shown = capsys.readouterr().out
    assert "no row differs from the journal" in shown
