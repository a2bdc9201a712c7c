"""A zip of exported rows proves the entries that its rows are about."""

import io
import json
import zipfile
from pathlib import Path

import pytest

from investigation.exports import export_writer
from proofs.verifier import gatebook_verify
from tests.api.api_client import Caller
from tests.pages.people import Organization
from tests.proofs.sealing import seal_entries
from tests.query.test_keeping import fetch_export

pytestmark = pytest.mark.django_db


def test_an_exported_zip_proves_the_entries_of_its_rows(
    organization: Organization, agent: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent.session("s-1")
    for n in range(5):
        agent.plan(f"k-{n}", tool="file.read", arguments={"secret": "of the body"})
    viewer = organization.client("viewer")
    path = tmp_path / "rows.zip"
    path.write_bytes(fetch_export(viewer, "event", "bundle"))
    assert "proof.json" not in zipfile.ZipFile(path).namelist()  # nothing is sealed yet

    seal_entries()
    path.write_bytes(fetch_export(viewer, "event", "bundle"))
    bundle = zipfile.ZipFile(path)
    shown = [json.loads(line)["position"] for line in bundle.read("rows.ndjson").splitlines()]
    proved = {row["position"] for row in json.loads(bundle.read("proof.json"))["entries"]}
    assert proved <= set(shown)
    assert len(proved) >= len(shown) - 2  # the exports themselves are newer than the seal
    report, _ = gatebook_verify.verify_bundle(path, ())
    assert report.counts == {"ok": len(proved)}
    assert b"of the body" not in bundle.read("proof.json")

    monkeypatch.setattr(export_writer, "MAX_PROOFS", 3)
    path.write_bytes(fetch_export(viewer, "effect", "bundle"))
    report, _ = gatebook_verify.verify_bundle(path, ())
    assert report.counts == {"ok": 3}

    changed = io.BytesIO()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name).replace(b"file.read", b"file.wrte"))
    path.write_bytes(changed.getvalue())
    report, _ = gatebook_verify.verify_bundle(path, ())
    assert report.exit_code(False) == gatebook_verify.IS_BROKEN
